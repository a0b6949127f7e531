"""Which facade methods the conformance tests call, and how the calls end; a plugin of pytest.

It watches the calls of the tests in ``tests/conformance`` on the backend ``sqlite`` (the others run the same tests).
After a run of the whole suite, or of a part with ``--method-kinds``, it prints methods and tests by family, and the
run fails when a method was never called with success, for a row that is missing, with an input that is refused or,
where it allocates or compares, while another call of the same method was under way.
"""

from __future__ import annotations

import functools
import os
import re
from collections import defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from lionstate import StateDB
from lionstate.errors import InvalidInputError, StateError
from lionstate.facade import Facade
from lionstate.operations import OPERATIONS

__all__ = ["KINDS", "MethodKinds"]

KINDS = ("success", "missing", "invalid", "concurrent")
_ON_SQLITE = re.compile(r"(?<!daemon)[\[-]sqlite[\]-]")
_OUTPUT = "method_kinds"
_COMPLETE = "method_kinds_complete"
_ROOM = Path(__file__).resolve().parents[1] / "conformance"

# Methods for which no row can be missing: they take no key and refer to nothing, or are about all rows.
_NOTHING_TO_MISS = frozenset(
    (
        "create_engine_def",
        "create_invocation",
        "create_progression",
        "create_schedule",
        "create_project",
        "create_show",
        "create_team",
        "create_workflow_def",
        "insert_admin_event",
        "insert_message",
        "preview_prune",
        "prune_sessions",
        "purge_dispatches",
        "reap_expired_leases",
        "register_heartbeat",
        "register_project",
        "save_definition",
        "spend_stats",
        "store_stats",
        "submit_task",
        "verify_approval_chain",
    )
)
# Methods that take nothing, or for which what no row is called is missing as any other id.
_NOTHING_TO_REFUSE = frozenset(("get_message", "next_dispatch_at", "store_stats"))


# Methods that allocate (numbers, versions, keys, leases, places), compare what is stored with what the caller expects,
# or create a row that may be there: several callers at once are what they are for.
CONCURRENT = frozenset(
    (
        "ack_dispatch",
        "append_to_progression",
        "apply_schedule_set",
        "attach_session_invocation",
        "cancel_task",
        "claim_due_dispatches",
        "claim_tasks",
        "consume_approval",
        "create_approval",
        "create_branch",
        "create_engine_def",
        "create_invocation",
        "create_play",
        "create_progression",
        "create_project",
        "create_run_tag",
        "create_schedule",
        "create_schedule_run",
        "create_schedule_run_and_advance",
        "create_session",
        "create_show",
        "create_team",
        "create_team_message",
        "create_workflow_def",
        "delete_imported_session",
        "delete_progression",
        "deny_approval",
        "enqueue_dispatch",
        "enqueue_revival_heartbeat",
        "finalize_branch",
        "finalize_session_control",
        "finish_dispatch_attempt",
        "finish_task",
        "grant_approval",
        "insert_artifact",
        "insert_engine_run",
        "insert_message",
        "insert_messages",
        "insert_session_control",
        "insert_session_signal",
        "mark_session_control_applying",
        "mark_team_messages_read",
        "merge_invocation_node_metadata",
        "merge_session_node_metadata",
        "prune_sessions",
        "purge_dispatches",
        "reap_expired_leases",
        "record_message",
        "register_heartbeat",
        "register_project",
        "renew_task",
        "repair_branch_progression",
        "repair_session_progression",
        "resolve_claimed_session_control",
        "retry_dispatch",
        "save_definition",
        "set_progression",
        "submit_task",
        "tombstone_and_replace_schedule_run",
        "touch_session_activity",
        "update_invocation",
        "update_play",
        "update_schedule",
        "update_schedule_run",
        "update_session",
        "update_show",
        "update_status",
    )
)


def families() -> dict[str, list[str]]:
    """Facade methods by the mixin that has them."""
    return {
        mixin.__name__.removesuffix("Facade"): sorted(name for name in vars(mixin) if name in OPERATIONS)
        for mixin in Facade.__mro__
        if mixin.__name__.endswith("Facade") and mixin is not Facade
    }


def wanted(name: str) -> list[str]:
    """The kinds of calls that a method must be tested with."""
    left_out = {
        "missing": _NOTHING_TO_MISS,
        "invalid": _NOTHING_TO_REFUSE,
        "concurrent": OPERATIONS.keys() - CONCURRENT,
    }
    return [kind for kind in KINDS if name not in left_out.get(kind, ())]


def _names_nothing(value: Any) -> bool:
    """Whether an argument is a key that tests use for no row."""
    if isinstance(value, dict):
        return any(map(_names_nothing, value.values()))
    if isinstance(value, (list, tuple)):
        return any(map(_names_nothing, value))
    return isinstance(value, str) and "missing" in value


def _test_on_sqlite() -> str | None:
    """The conformance test that runs now, if it runs on SQLite in process."""
    test = os.environ.get("PYTEST_CURRENT_TEST", "").partition(" ")[0]
    return test.partition("[")[0] if "tests/conformance/" in test and _ON_SQLITE.search(test) else None


def _kinds(arguments: tuple[Any, ...], outcome: Any, error: BaseException | None) -> set[str]:
    if isinstance(error, InvalidInputError):
        return {"invalid"}
    if isinstance(error, StateError):
        return {"missing"} if error.code in ("not_found", "foreign_key") else set()
    if error is not None:
        return set()
    if _names_nothing(list(arguments)):
        # Asked for several, some of which are there.
        several = any(isinstance(one, list) and not all(map(_names_nothing, one)) for one in arguments)
        return {"missing", "success"} if several and outcome else {"missing"}
    # A read that finds nothing; what a change returns without a result is success.
    return {"missing"} if outcome in ([], {}, 0, False) and outcome is not None else {"success"}


@dataclass
class _Overlap:
    """Calls of one method from the first until none is under way: all of them, and those that were not refused.

    Only counted, so that a test of many calls costs no more than the calls.
    """

    calls: int = 0
    under_way: int = 0
    taken: int = 0


class MethodKinds:
    """Collects in every process, and reports in the one that the user started."""

    def __init__(self) -> None:
        """Watch the one seam between a facade method and where it runs."""
        self.seen: dict[tuple[str, str], set[str]] = defaultdict(set)
        self.overlaps: dict[str, _Overlap] = defaultdict(_Overlap)
        self.complete = False
        self.lacking: list[str] = []
        for seam in ("_run", "_read"):
            setattr(StateDB, seam, self._watched(getattr(StateDB, seam)))

    def _watched(self, run: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        @functools.wraps(run)
        async def watched(state: StateDB, script: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
            outcome = error = None
            self._begun(script.__name__)
            try:
                outcome = await run(state, script, *args, **kwargs)
            except BaseException as caught:
                error = caught
                raise
            finally:
                self._ended(script.__name__, error)
                self._note(script.__name__, (*args, *kwargs.values()), outcome, error)
            return outcome

        return watched

    def _begun(self, name: str) -> None:
        overlap = self.overlaps[name]
        overlap.calls += 1
        overlap.under_way += 1

    def _ended(self, name: str, error: BaseException | None) -> None:
        overlap, test = self.overlaps[name], _test_on_sqlite()
        overlap.under_way -= 1
        overlap.taken += not isinstance(error, InvalidInputError)
        if overlap.under_way:
            return
        if test is not None and overlap.calls > 1 and overlap.taken:
            self.seen[name, "concurrent"].add(test)
        del self.overlaps[name]

    def _note(self, name: str, arguments: tuple[Any, ...], outcome: Any, error: BaseException | None) -> None:
        function = _test_on_sqlite()
        if function is None:
            return
        for kind in _kinds(arguments, outcome, error):
            self.seen[name, kind].add(function)
        if outcome is None and error is None and name.startswith(("get_", "next_")):
            self.seen[name, "missing"].add(function)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Note whether the whole suite is going to run."""
        files = {item.path.name for item in items if item.path.parent == _ROOM}
        whole = files >= {path.name for path in _ROOM.glob("test_*.py")}
        selected = config.option.keyword or config.option.markexpr or config.option.collectonly
        self.complete = config.option.method_kinds or (whole and not selected)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Take over what a worker has seen."""
        output = getattr(node, "workeroutput", {})
        self.complete = self.complete or output.get(_COMPLETE, False)
        for name, kind, tests in output.get(_OUTPUT, ()):
            self.seen[name, kind].update(tests)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Hand over, or judge."""
        output = getattr(session.config, "workeroutput", None)
        if output is not None:
            output[_COMPLETE] = self.complete
            output[_OUTPUT] = [(name, kind, sorted(tests)) for (name, kind), tests in self.seen.items()]
        elif self.complete and exitstatus == pytest.ExitCode.OK:
            self.lacking = [
                f"{name}: no test with {kind}"
                for name in sorted(OPERATIONS)
                for kind in wanted(name)
                if not self.seen.get((name, kind))
            ]
            if self.lacking:
                session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print methods and tests by family."""
        if not self.complete:
            return
        write = terminalreporter.write_line
        terminalreporter.section("facade methods and their conformance tests, on each of five backends")
        write(f"{'family':<18}{'methods':>8}{'tests':>7}" + "".join(f"{kind:>11}" for kind in KINDS))
        for family, names in families().items():
            by_kind = [{test for name in names for test in self.seen.get((name, kind), ())} for kind in KINDS]
            counts = "".join(f"{len(tests):>11}" for tests in by_kind)
            write(f"{family:<18}{len(names):>8}{len(set().union(*by_kind)):>7}{counts}")
        for line in self.lacking:
            write(line, red=True)
