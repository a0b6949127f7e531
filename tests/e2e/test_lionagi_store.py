"""A store that LionAGI 0.36.0 wrote: lionstate leaves its tables alone, and the fence stops its old writers.

Contract: design decisions 21, 32; reference §3.1, §3.4.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from lionstate import StateDB
from lionstate.migration import StopReason
from lionstate.schema.ddl import DELETE_TRIGGER, FENCE, FENCE_MESSAGE
from tests.support.lionagi_store import (
    FIXTURE,
    POSTGRESQL,
    SQLITE,
    Statement,
    Statements,
    catalogue,
    copy_to_postgresql,
    is_own,
)

_EXPECTED = json.loads(FIXTURE.with_suffix(".json").read_text(encoding="utf-8"))
_REFUSALS = (sqlite3.IntegrityError, asyncpg.IntegrityConstraintViolationError)


class OldWriter:
    """A connection of a process that knows only the JSON value, with the transactions of LionAGI."""

    def __init__(self, url: str, statements: Statements) -> None:
        self.statements = statements
        self._url = url
        self._sqlite: sqlite3.Connection | None = None
        self._postgresql: asyncpg.Connection | None = None

    async def __aenter__(self) -> OldWriter:
        if self._url.startswith("postgresql"):
            self._postgresql = await asyncpg.connect(self._url.replace("+asyncpg", ""))
        else:
            self._sqlite = sqlite3.connect(self._url, isolation_level=None)
            for pragma in ("busy_timeout = 5000", "journal_mode = WAL", "synchronous = NORMAL", "foreign_keys = ON"):
                self._sqlite.execute(f"PRAGMA {pragma}")
        return self

    async def __aexit__(self, *_exc: object) -> None:
        if self._postgresql is not None:
            await self._postgresql.close()
        if self._sqlite is not None:
            self._sqlite.close()

    async def _execute(self, text: str, *arguments: Any) -> None:
        if self._postgresql is not None:
            await self._postgresql.execute(text, *arguments)
        elif self._sqlite is not None:
            self._sqlite.execute(text, arguments)

    async def send(self, transaction: Sequence[Statement], values: Mapping[str, Any]) -> None:
        """Run a transaction as LionAGI does: any error rolls all of it back."""
        await self._execute("BEGIN IMMEDIATE" if self._sqlite is not None else "BEGIN")
        try:
            for statement in transaction:
                await self._execute(statement.text, *statement.arguments(values))
        except BaseException:
            await self._execute("ROLLBACK")
            raise
        await self._execute("COMMIT")


@dataclass
class RealStore:
    """The fixture's rows on one backend, open in lionstate.

    Attributes:
        session_id: A session of it with several branches.
        progression_id: The progression of one of these branches.
        order: The ids of that progression.
    """

    url: str
    statements: Statements
    state: StateDB
    session_id: str
    progression_id: str
    order: list[str]

    async def collection(self) -> str:
        """The text of the JSON value."""
        async with self.state.transaction() as transaction:
            row = await transaction.fetch_one(
                "SELECT collection FROM progressions WHERE id = :id", {"id": self.progression_id}
            )
            return str(row["collection"])

    async def has_message(self, message_id: str) -> bool:
        """Whether the message's row is there."""
        async with self.state.transaction() as transaction:
            return await transaction.fetch_one("SELECT 1 FROM messages WHERE id = :id", {"id": message_id}) is not None

    async def cut_over(self) -> None:
        """Migrate this one progression."""
        await self.state.migration.set_accept_foreign_writers(True)
        step = await self.state.migration.step(progression_id=self.progression_id)
        # The fence gives way to the server's own analyze; a slow machine needs more steps.
        while step.stop_reason in (StopReason.BUSY, StopReason.CAP_SECONDS, StopReason.THROTTLED):
            step = await self.state.migration.step(progression_id=self.progression_id)
        assert 1 == step.cut_over

    async def migrate(self) -> None:
        """Migrate the whole store."""
        await self.state.migration.set_accept_foreign_writers(True)
        while (step := await self.state.migration.step()).stop_reason is not StopReason.DONE:
            assert not step.blocked
            assert not step.held

    def values(self, message_id: str) -> dict[str, Any]:
        """The parameters of every statement, for one message."""
        return {
            "message": message_id,
            "progression": self.progression_id,
            "session": self.session_id,
            "collection": json.dumps([*self.order, message_id]),
            "now": 2_000_000_000.5,
            "node_metadata": '{"lion_class": "lionagi.protocols.messages.instruction.Instruction"}',
            "content": '{"instruction": "said by an old writer"}',
            "embedding": None,
            "sender": None,
            "recipient": None,
            "channel": None,
            "role": "user",
            "lion_class": 2,
        }


def _values(path: Path) -> dict[str, str]:
    """The JSON value of every progression, through a plain connection."""
    conn = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        return dict(conn.execute("SELECT id, collection FROM progressions").fetchall())
    finally:
        conn.close()


def _conversation() -> tuple[str, str, list[str]]:
    """A session of the fixture, the progression of one of its branches, and that progression's ids."""
    session_id, session = next(iter(_EXPECTED["sessions"].items()))
    for branch in _EXPECTED["branches"].values():
        if branch["order"][0] in session["order"]:
            return session_id, branch["progression_id"], branch["order"]
    raise AssertionError("the fixture has no branch of its first session")


@pytest.fixture(
    params=[
        "sqlite",
        pytest.param("postgresql-15", marks=pytest.mark.postgresql),
        pytest.param("postgresql-18", marks=pytest.mark.postgresql),
    ]
)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[RealStore]:
    """The fixture's rows in a store of their own."""
    if request.param == "sqlite":
        url, statements = str(tmp_path / "real.db"), SQLITE
        shutil.copyfile(FIXTURE, url)
        async with StateDB(url) as state:
            yield RealStore(url, statements, state, *_conversation())
        return
    server = request.getfixturevalue(f"postgres_{request.param[-2:]}")
    name = f"lionagi_{uuid.uuid4().hex}"
    url = server.create_database(name)
    await copy_to_postgresql(FIXTURE, url)
    async with StateDB(url=url) as state:
        yield RealStore(url, POSTGRESQL, state, *_conversation())
    server.drop_database(name)


TRANSACTIONS = ("live", "extend", "wholesale")


class TestOldWriter:
    """What LionAGI 0.36.0 sends, on a connection that knows nothing of lionstate."""

    @pytest.mark.parametrize("name", TRANSACTIONS)
    async def test_is_refused_after_cutover(self, store: RealStore, name: str) -> None:
        await store.cut_over()
        before = await store.collection()
        transaction = getattr(store.statements, name)()
        async with OldWriter(store.url, store.statements) as writer:
            with pytest.raises(_REFUSALS) as caught:
                await writer.send(transaction, store.values("foreign"))
        assert FENCE_MESSAGE == str(caught.value)
        assert before == await store.collection()
        assert not await store.has_message("foreign")
        assert store.order == await store.state.get_progression(store.progression_id)

    @pytest.mark.parametrize("name", TRANSACTIONS)
    async def test_is_served_while_json_is_the_authority(self, store: RealStore, name: str) -> None:
        transaction = getattr(store.statements, name)()
        async with OldWriter(store.url, store.statements) as writer:
            await writer.send(transaction, store.values("foreign"))
        assert [*store.order, "foreign"] == json.loads(await store.collection())
        assert (name != "wholesale") is await store.has_message("foreign")
        assert [*store.order, "foreign"] == await store.state.get_progression(store.progression_id)

    async def test_may_repeat_a_message_that_is_in_the_frozen_value(self, store: RealStore) -> None:
        await store.cut_over()
        before = await store.collection()
        async with OldWriter(store.url, store.statements) as writer:
            await writer.send(store.statements.live(), store.values(store.order[3]))
        assert before == await store.collection()


class TestMigration:
    """The whole store."""

    async def test_keeps_every_order(self, store: RealStore) -> None:
        await store.migrate()
        status = await store.state.migration.status()
        everything = [*_EXPECTED["sessions"].values(), *_EXPECTED["branches"].values()]
        assert {"items": len(everything)} == {phase: count for phase, count in status.phases.items() if count}
        for expected in everything:
            assert expected["order"] == await store.state.get_progression(expected["progression_id"])


class TestCatalogue:
    """Table and index text of the real file."""

    async def test_is_what_it_was_after_lionstate_worked_on_it(self, tmp_path: Path) -> None:
        path = tmp_path / "real.db"
        shutil.copyfile(FIXTURE, path)
        before, values = catalogue(path), _values(path)
        assert not any(is_own(row) for row in before)
        session_id, progression_id, order = _conversation()
        async with StateDB(path) as state:
            store = RealStore(str(path), SQLITE, state, session_id, progression_id, order)
            await state.append_to_progression(progression_id, "appended")
            store.order = [*order, "appended"]
            await store.cut_over()
            await state.append_to_progression(progression_id, "tail")
            assert [*order, "appended", "tail"] == await state.get_progression(progression_id)
            await store.migrate()
        after = catalogue(path)
        assert before == [row for row in after if not is_own(row)]
        assert {FENCE, DELETE_TRIGGER} == {name for kind, name, _, _ in after if kind == "trigger"}
        values[progression_id] = json.dumps([*order, "appended"])
        assert {key: json.loads(value) for key, value in values.items()} == {
            key: json.loads(value) for key, value in _values(path).items()
        }
