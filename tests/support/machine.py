"""A state machine over the API against a plain-Python model: lists, and who points at whom.

Whatever was done before, reads give the model's lists; what migration does never shows in them.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from lionstate import StateDB
from lionstate.errors import ForeignKeyError, InvalidInputError, NotFoundError, PhaseConflictError, StateError
from lionstate.migration import ProgressionMigrationService, StopReason, VerificationOutcome
from tests.support.backends import Backend, database_of, empty_database
from tests.support.cast import FOREIGN_APPEND
from tests.support.conversations import message
from tests.support.migration import WHOLE, patient
from tests.support.stores import params_of

__all__ = ["target", "try_histories"]

NAMES = st.sampled_from(["p", "q", "r"])
IDS = st.sampled_from([f"m{number}" for number in range(8)])
# Repeated ids are what an import may bring.
LISTS = st.lists(IDS, max_size=6)
HOLDERS = st.sampled_from(["s", "t"])
FEW = st.integers(1, 4)


class Histories(RuleBasedStateMachine):
    """Progressions in every phase, messages, sessions, branches, and the verbs of the migration."""

    runner: ClassVar[asyncio.Runner]
    target: ClassVar[str]

    def __init__(self) -> None:
        super().__init__()
        self.lists: dict[str, list[str]] = {}
        self.sessions: dict[str, str] = {}
        self.branches: dict[str, tuple[str, str]] = {}
        self.messages: dict[str, str] = {}
        self.is_paused = False

    def run_now(self, awaitable: Any) -> Any:
        """Wait for one call."""

        async def call() -> Any:
            return await awaitable

        return self.runner.run(call())

    def refused(self, error: type[StateError], awaitable: Any) -> None:
        """A call that must be refused."""
        try:
            self.run_now(awaitable)
        except error:
            return
        raise AssertionError(f"not refused: {error.__name__}")

    def open(self) -> None:
        """Open the store as another process would."""
        self.state = StateDB(url=self.target) if "://" in self.target else StateDB(self.target)
        self.run_now(self.state.open())
        self.backend = Backend("any", self.state, self.state)
        self.service = ProgressionMigrationService(self.state.store, actor="test", accept_foreign_writers=True)

    @initialize()
    def begin(self) -> None:
        self.open()
        self.run_now(empty_database(self.state))
        # The fence, as any store has it after its first cutover or creation in items.
        self.run_now(self.state.create_progression("fence", []))
        self.run_now(patient(self.backend))
        self.lists["fence"] = []

    def teardown(self) -> None:
        if hasattr(self, "state"):
            self.run_now(self.state.close())

    def phase_of(self, name: str) -> str:
        """What the store says."""
        return str(self.run_now(self.service.explain(name)).phase)

    @invariant()
    def everything_reads_as_the_model_has_it(self) -> None:
        for name in ("p", "q", "r"):
            assert self.lists.get(name, []) == self.run_now(self.state.get_progression(name)), name

    # Progressions.

    @rule(name=NAMES, ids=LISTS)
    def create(self, name: str, ids: list[str]) -> None:
        self.run_now(self.state.create_progression(name, ids))
        self.lists.setdefault(name, ids)

    @rule(name=NAMES, ids=LISTS)
    def put_as_an_old_writer(self, name: str, ids: list[str]) -> None:
        if name not in self.lists:
            self.run_now(self.backend.put_progression(name, str(ids).replace("'", '"')))
            self.lists[name] = ids

    def _append(self, name: str, message_id: str) -> None:
        ids = self.lists.get(name)
        if ids is not None and message_id not in ids:
            self.lists[name] = [*ids, message_id]

    @rule(name=NAMES, message_id=IDS)
    def append(self, name: str, message_id: str) -> None:
        self.run_now(self.state.append_to_progression(name, message_id))
        self._append(name, message_id)

    @rule(pairs=st.lists(st.tuples(NAMES, IDS), max_size=6), atomic=st.booleans())
    def append_many(self, pairs: list[tuple[str, str]], atomic: bool) -> None:
        async def call() -> None:
            async with self.state.batch(atomic=atomic) as batch:
                for name, message_id in pairs:
                    batch.append_to_progression(name, message_id)

        self.run_now(call())
        for name, message_id in pairs:
            self._append(name, message_id)

    @rule(name=NAMES, ids=LISTS)
    def replace(self, name: str, ids: list[str]) -> None:
        self.run_now(self.state.set_progression(name, ids))
        if name in self.lists:
            self.lists[name] = ids

    @rule(name=NAMES, ids=LISTS, bad=st.sampled_from(["", "a\0b", "\ud800", "x" * 1_025]))
    def replace_with_what_may_not_be_written(self, name: str, ids: list[str], bad: str) -> None:
        """fault 30: a refused replacement changes nothing."""
        self.refused(InvalidInputError, self.state.set_progression(name, [*ids, bad]))

    @rule(name=NAMES)
    def delete(self, name: str) -> None:
        if name in self.sessions.values() or name in {progression for _, progression in self.branches.values()}:
            self.refused(ForeignKeyError, self.state.delete_progression(name))
            return
        assert (name in self.lists) == self.run_now(self.state.delete_progression(name))
        self.lists.pop(name, None)

    @rule(name=NAMES, limit=FEW, newest_first=st.booleans())
    def read_in_pages(self, name: str, limit: int, newest_first: bool) -> None:
        """fault 31: no skip, no repeat."""
        found: list[tuple[int, str]] = []
        while True:
            edge = {"before_ordinal" if newest_first else "after_ordinal": found[-1][0]} if found else {}
            page = self.run_now(self.state.list_progression_items(name, limit=limit, newest_first=newest_first, **edge))
            assert len(page) <= limit
            found += page
            if not page:
                break
        expected = list(enumerate(self.lists.get(name, [])))
        assert (expected[::-1] if newest_first else expected) == found
        assert len(expected) == self.run_now(self.state.count_progression_items(name))

    # Messages, sessions, branches.

    @rule(session=HOLDERS, name=NAMES)
    def create_session(self, session: str, name: str) -> None:
        call = self.state.create_session({"id": session, "progression_id": name})
        if session not in self.sessions and name not in self.lists:
            self.refused(ForeignKeyError, call)
            return
        self.run_now(call)
        self.sessions.setdefault(session, name)

    @rule(branch=HOLDERS, session=HOLDERS, name=NAMES)
    def create_branch(self, branch: str, session: str, name: str) -> None:
        call = self.state.create_branch({"id": branch, "session_id": session, "progression_id": name})
        if branch not in self.branches and (session not in self.sessions or name not in self.lists):
            self.refused(ForeignKeyError, call)
            return
        self.run_now(call)
        self.branches.setdefault(branch, (session, name))

    @rule(message_id=IDS, text=st.sampled_from(["one", "two"]), session=HOLDERS, of_branch=NAMES, of_session=NAMES)
    def record(self, message_id: str, text: str, session: str, of_branch: str, of_session: str) -> None:
        given = message(message_id, content={"text": text})
        self.run_now(self.state.record_message(given, session, of_branch, of_session))
        self.messages[message_id] = text
        self._append(of_branch, message_id)
        self._append(of_session, message_id)

    @rule(message_id=IDS)
    def read_message(self, message_id: str) -> None:
        found = self.run_now(self.state.get_message(message_id))
        assert self.messages.get(message_id) == (None if found is None else found["content"]["text"])

    @rule(branch=HOLDERS)
    def read_branch_messages(self, branch: str) -> None:
        found = self.run_now(self.state.get_branch_messages(branch))
        _, name = self.branches.get(branch, ("", ""))
        held = [message_id for message_id in self.lists.get(name, []) if message_id in self.messages]
        assert held == [row["id"] for row in found]

    # Migration.

    @rule(most=FEW)
    def step(self, most: int) -> None:
        step = self.run_now(self.service.step(max_items=most, max_seconds=60))
        assert self.is_paused == (step.stop_reason is StopReason.PAUSED)

    @rule()
    def migrate(self) -> None:
        step = self.run_now(self.service.step(**WHOLE))
        ends = {StopReason.PAUSED} if self.is_paused else {StopReason.DONE, StopReason.NOTHING_TO_DO, StopReason.HELD}
        assert step.stop_reason in ends, step

    def _needs_phase(self, name: str, phases: Sequence[str], call: Any) -> bool:
        """Whether a verb was possible: it is refused in other phases, and for what is missing."""
        if name not in self.lists:
            self.refused(NotFoundError, call)
        elif self.phase_of(name) not in phases:
            self.refused(PhaseConflictError, call)
        else:
            self.run_now(call)
            return True
        return False

    @rule(name=NAMES)
    def roll_back(self, name: str) -> None:
        self._needs_phase(name, ("dual",), self.service.rollback(name))

    @rule(name=NAMES)
    def release(self, name: str) -> None:
        if name in self.lists:
            self.run_now(self.service.release(name))

    @rule(name=NAMES)
    def retry(self, name: str) -> None:
        self._needs_phase(name, ("blocked",), self.service.retry(name))

    @rule(name=NAMES, enabled=st.booleans())
    def compat_read(self, name: str, enabled: bool) -> None:
        self._needs_phase(name, ("items",), self.service.set_compat_read(name, enabled))

    @rule(enabled=st.booleans())
    def compat_read_everywhere(self, enabled: bool) -> None:
        self.run_now(self.service.set_compat_read_everywhere(enabled))

    @rule(name=NAMES)
    def verify(self, name: str) -> None:
        """fault 8: a verification finds nothing that nobody did, in any phase."""
        if name not in self.lists:
            self.refused(NotFoundError, self.service.verify(name))
            return
        phase = self.phase_of(name)
        result = self.run_now(self.service.verify(name))
        foreign = result.code == "foreign_write" and phase in ("dual", "blocked")
        assert result.outcome is not VerificationOutcome.MISMATCH or foreign, result
        assert phase != "items" or result.outcome is VerificationOutcome.MATCH

    @rule()
    def pause(self) -> None:
        self.run_now(self.service.pause())
        self.is_paused = True

    @precondition(lambda self: self.is_paused)
    @rule()
    def resume(self) -> None:
        assert self.run_now(self.service.resume())
        self.is_paused = False

    @rule(name=NAMES)
    def append_as_another_program(self, name: str) -> None:
        """fault 23: it knows the JSON alone; what it is told was written is served, or it is refused."""
        if name not in self.lists:
            return
        sql = FOREIGN_APPEND[self.state.dialect]
        # Where the frozen JSON holds the id, such an append matches no row: nothing is written, and nothing is refused.
        if self.phase_of(name) == "items" and "foreign" not in self.lists[name]:
            self.refused(StateError, self.backend.execute(sql, mid="foreign", pid=name))
        else:
            self.run_now(self.backend.execute(sql, mid="foreign", pid=name))
            self._append(name, "foreign")

    @rule()
    def status(self) -> None:
        found = self.run_now(self.service.status())
        assert len(self.lists) == sum(found.phases.values())

    @rule()
    def reopen(self) -> None:
        self.run_now(self.state.close())
        self.open()


@pytest.fixture(params=params_of(["sqlite", "postgresql-18"]))
def target(request: pytest.FixtureRequest, empty_store: Path, tmp_path: Path) -> str:
    """A store for histories: a path or a URL."""
    if request.param == "sqlite":
        return str(shutil.copyfile(empty_store, tmp_path / "state.db"))
    return database_of(request.getfixturevalue("postgres_18"), "histories")


def try_histories(target: str, *, examples: int, steps: int) -> None:
    """Try so many histories of so many steps, each on an emptied store."""
    with asyncio.Runner() as runner:
        machine: Any = type("OnOneStore", (Histories,), {"runner": runner, "target": target})
        chosen = settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        )
        run_state_machine_as_test(machine, settings=chosen)
