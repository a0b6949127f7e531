"""``execute_batch`` on a scripted session: every branch of design §2.1, without a database."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from lionstate.engine import Look, NotWritten, Outcome, Refused, Unit, Unknown, Written
from lionstate.engine.transaction import CommitFailed, execute_batch
from lionstate.errors import (
    BackendBusyError,
    BackendError,
    BackendUnavailableError,
    InvalidInputError,
    OutcomeUnknownError,
    StateError,
)


class _Transient(Exception):
    """A deadlock."""


class _StoreFailure(Exception):
    """The disk is full."""


class _Session:
    """Notes what happens to it; ``open`` is what the driver says of the transaction."""

    def __init__(self, *, concurrent: bool = False) -> None:
        self.log: list[str] = []
        self.open = False
        self.fail: dict[str, list[BaseException | None]] = {"begin": [], "before_commit": [], "commit": []}
        self.conn: Any = SimpleNamespace(begin_nested=self._savepoint)
        self.dialect: Any = SimpleNamespace(
            capabilities=SimpleNamespace(concurrent_writers=concurrent),
            in_transaction=lambda _conn: self.open,
            is_transient=lambda error: isinstance(error, _Transient),
            is_store_failure=lambda error: isinstance(error, _StoreFailure),
            classify_error=_classify,
        )

    def _next(self, what: str) -> None:
        self.log.append(what)
        error = self.fail[what].pop(0) if self.fail[what] else None
        if error is not None:
            raise error

    def begin(self) -> None:
        self._next("begin")
        self.open = True

    def is_open(self) -> bool:
        return self.open

    def before_commit(self, is_there: Look | None = None) -> None:
        self._next("before_commit")

    def commit(self) -> None:
        self._next("commit")
        self.open = False

    def rollback(self) -> None:
        self.log.append("rollback")
        self.open = False

    def after_failed_commit(self, error: BaseException) -> StateError | None:
        raise AssertionError("the writer's matter")

    def _savepoint(self) -> Any:
        self.log.append("savepoint")

        def end(what: str) -> None:
            self.log.append(what)
            if not self.open:
                raise RuntimeError("no such savepoint")

        return SimpleNamespace(commit=lambda: end("release"), rollback=lambda: end("rollback to"))


def _classify(error: BaseException) -> StateError | None:
    if isinstance(error, _Transient):
        return BackendBusyError()
    return BackendUnavailableError() if isinstance(error, _StoreFailure) else None


class _Batch:
    def __init__(self, session: _Session, *units: Unit) -> None:
        self.session = session
        self.units = units
        self.lock_error: BaseException | None = None
        self.taken = 0

    lane = "request"

    def wanted(self) -> bool:
        return True

    def take(self) -> Sequence[Unit]:
        self.taken += 1
        return self.units

    def lock(self, conn: Any) -> None:
        self.session.log.append("lock")
        if self.lock_error is not None:
            raise self.lock_error


@pytest.fixture
def session() -> _Session:
    """A session that succeeds."""
    return _Session()


def _says(session: _Session, name: str, *outcomes: Any) -> Callable[[Any], Any]:
    """A call that notes its runs and returns or raises in turn, the last one for ever."""
    waiting = list(outcomes)

    def call(_conn: Any) -> Any:
        session.log.append(name)
        found = waiting.pop(0) if len(waiting) > 1 else waiting[0]
        if isinstance(found, BaseException):
            raise found
        if callable(found):
            return found()
        return found

    return call


def _run(session: _Session, *calls: Callable[[Any], Any]) -> list[Outcome]:
    return execute_batch(session, _Batch(session, *(Unit([call]) for call in calls)))


def _kinds(outcomes: Sequence[Outcome]) -> list[str]:
    return [found.error.code if not isinstance(found, Written) else repr(found.value) for found in outcomes]


def test_a_batch_is_one_transaction_without_savepoints(session: _Session) -> None:
    outcomes = _run(session, _says(session, "a", 1), _says(session, "b", 2))
    assert [Written(1), Written(2)] == outcomes
    assert ["begin", "a", "b", "before_commit", "commit"] == session.log


def test_a_refusal_is_an_outcome_and_not_an_error(session: _Session) -> None:
    error = InvalidInputError()
    outcomes = _run(session, _says(session, "a", Refused(error)), _says(session, "b", 2))
    assert [NotWritten(error), Written(2)] == outcomes
    assert "rollback" not in session.log


def test_nothing_alive_is_nothing_run(session: _Session) -> None:
    assert [] == _run(session)
    assert ["begin", "rollback"] == session.log


def test_locks_come_first_where_writers_are_concurrent() -> None:
    for units, expected in ((1, False), (2, True)):
        session = _Session(concurrent=True)
        _run(session, *(_says(session, "a", 1) for _ in range(units)))
        assert expected is ("lock" in session.log)
    session = _Session(concurrent=True)
    execute_batch(session, _Batch(session, Unit([_says(session, "a", 1)], locks_first=True)))
    assert ["begin", "lock", "a", "before_commit", "commit"] == session.log


def test_a_begin_that_fails_writes_nothing(session: _Session) -> None:
    session.fail["begin"] = [BackendBusyError("held")]
    outcomes = _run(session, _says(session, "a", 1), _says(session, "b", 2))
    assert ["backend_busy", "backend_busy"] == _kinds(outcomes)
    assert ["begin", "rollback"] == session.log


def test_a_single_call_that_fails_is_not_replayed(session: _Session) -> None:
    outcomes = _run(session, _says(session, "a", ValueError()))
    assert ["invalid_input"] == _kinds(outcomes)
    assert ["begin", "a", "rollback"] == session.log


def test_a_replay_isolates_the_call_that_fails(session: _Session) -> None:
    outcomes = _run(session, _says(session, "a", 1), _says(session, "b", ValueError()), _says(session, "c", 3))
    assert ["1", "invalid_input", "3"] == _kinds(outcomes)
    assert ["begin", "a", "b", "rollback"] == session.log[:4]
    replay = [
        "begin",
        "lock",
        "savepoint",
        "a",
        "release",
        "savepoint",
        "b",
        "rollback to",
        "savepoint",
        "c",
        "release",
    ]
    assert [*replay, "before_commit", "commit"] == session.log[4:]


def test_a_failure_of_the_store_starts_no_replay(session: _Session) -> None:
    outcomes = _run(session, _says(session, "a", 1), _says(session, "b", _StoreFailure()))
    assert ["backend_unavailable"] * 2 == _kinds(outcomes)
    assert ["begin", "a", "b", "rollback"] == session.log


def test_a_failure_of_the_store_ends_a_replay(session: _Session) -> None:
    """Also when the transaction is still open: the next call would only fail as well."""
    outcomes = _run(session, _says(session, "a", 1), _says(session, "b", ValueError(), _StoreFailure()))
    assert ["backend_unavailable"] * 2 == _kinds(outcomes)
    assert "commit" not in session.log
    assert "rollback" == session.log[-1]


def test_giving_way_starts_no_replay(session: _Session) -> None:
    outcomes = _run(session, _says(session, "a", 1), _says(session, "b", BackendBusyError()))
    assert ["backend_busy"] * 2 == _kinds(outcomes)
    assert ["begin", "a", "b", "rollback"] == session.log


def test_giving_way_in_a_replay_takes_all_back(session: _Session) -> None:
    """A later call on the same rows must not overtake the one that goes round."""
    outcomes = _run(session, _says(session, "a", 1), _says(session, "b", ValueError(), BackendBusyError()))
    assert ["backend_busy"] * 2 == _kinds(outcomes)
    assert "commit" not in session.log


@pytest.mark.parametrize(("failures", "runs", "expected"), [(1, 2, "1"), (3, 4, "1"), (4, 4, "backend_busy")])
def test_deadlocks_are_retried_within_a_bound(session: _Session, failures: int, runs: int, expected: str) -> None:
    outcomes = _run(session, _says(session, "a", *[_Transient()] * failures, 1), _says(session, "b", 2))
    assert expected == _kinds(outcomes)[0]
    assert runs == session.log.count("a")


def test_a_begin_that_fails_in_a_retry_writes_nothing(session: _Session) -> None:
    session.fail["begin"] = [None, BackendBusyError()]
    outcomes = _run(session, _says(session, "a", _Transient(), 1), _says(session, "b", 2))
    assert ["backend_busy"] * 2 == _kinds(outcomes)
    assert not session.open


def test_a_transaction_that_ended_silently_is_not_committed(session: _Session) -> None:
    """The call returns normally, the driver says that there is no transaction: all of it is run again."""

    def ends() -> int:
        session.open = False
        return 2

    outcomes = _run(session, _says(session, "a", 1), _says(session, "b", ends), _says(session, "c", 3))
    assert ["1", "backend", "3"] == _kinds(outcomes)
    assert "c" not in session.log[: session.log.index("rollback")]


def test_a_silent_rollback_in_a_replay_voids_what_was_noted(session: _Session) -> None:
    """Each call then gets a transaction of its own; none is acknowledged that went with the old one."""

    def ends() -> int:
        session.open = False
        raise KeyError("trapped")

    outcomes = _run(session, _says(session, "a", 1), _says(session, "b", ends), _says(session, "c", 3))
    assert ["1", "invalid_input", "3"] == _kinds(outcomes)
    assert 2 == session.log.count("commit")
    alone = "begin,a,before_commit,commit,begin,b,rollback,begin,c,before_commit,commit"
    assert alone.split(",") == session.log[-11:]


def test_a_silent_rollback_by_the_store_ends_all(session: _Session) -> None:
    def ends() -> int:
        session.open = False
        raise _StoreFailure

    outcomes = _run(session, _says(session, "a", 1), _says(session, "b", ValueError(), ends, 2))
    assert ["backend_unavailable"] * 2 == _kinds(outcomes)
    assert "commit" not in session.log


def test_one_by_one_stops_at_what_nobody_can_help(session: _Session) -> None:
    def ends() -> int:
        session.open = False
        raise KeyError("trapped")

    for failure, code in ((_StoreFailure(), "backend_unavailable"), (BackendBusyError(), "backend_busy")):
        session.log.clear()
        calls = [
            _says(session, "a", ends, ends, 1),
            _says(session, "b", failure),
            _says(session, "c", 3),
        ]
        outcomes = _run(session, *calls)
        assert ["1", code, code] == _kinds(outcomes)
        assert "c" not in session.log


def test_an_error_before_commit_leaves_no_doubt(session: _Session) -> None:
    """PostgreSQL's question for the transaction id: nothing was sent that could have committed."""
    session.fail["before_commit"] = [_StoreFailure()]
    assert ["backend_unavailable"] == _kinds(_run(session, _says(session, "a", 1)))
    assert ["begin", "a", "before_commit", "rollback"] == session.log


def test_a_lock_that_fails_before_a_replay_writes_nothing(session: _Session) -> None:
    batch = _Batch(session, Unit([_says(session, "a", 1)]), Unit([_says(session, "b", ValueError())]))
    batch.lock_error = BackendBusyError()
    assert ["backend_busy"] * 2 == _kinds(execute_batch(session, batch))
    assert "savepoint" not in session.log


def test_a_fold_that_forgets_a_call_is_an_error_and_its_calls_are_run_alone(session: _Session) -> None:
    calls = [_says(session, "a", 1), _says(session, "b", 2)]
    outcomes = execute_batch(session, _Batch(session, Unit(calls, lambda _conn: [None])))
    assert ["1", "2"] == _kinds(outcomes)


def test_a_take_that_raises_rolls_back(session: _Session) -> None:
    class _Broken(_Batch):
        def take(self) -> Sequence[Unit]:
            raise RuntimeError("a defect")

    with pytest.raises(RuntimeError):
        execute_batch(session, _Broken(session))
    assert ["begin", "rollback"] == session.log


def test_a_commit_that_raises_leaves_a_doubt(session: _Session) -> None:
    session.fail["commit"] = [OSError()]
    with pytest.raises(CommitFailed) as caught:
        _run(session, _says(session, "a", 1), _says(session, "b", Refused(InvalidInputError())))
    failed = caught.value
    assert ([], ["1", "invalid_input"], 0) == (failed.settled, _kinds(failed.doubtful), failed.remaining)


def test_a_commit_that_raises_one_by_one_keeps_what_was_committed(session: _Session) -> None:
    def ends() -> int:
        session.open = False
        raise KeyError("trapped")

    session.fail["commit"] = [None, OSError()]
    calls = [_says(session, "a", 1), _says(session, "b", ends, ends, 2), _says(session, "c", 3)]
    with pytest.raises(CommitFailed) as caught:
        _run(session, *calls)
    failed = caught.value
    assert (["1"], ["2"], 1) == (_kinds(failed.settled), _kinds(failed.doubtful), failed.remaining)


@pytest.mark.parametrize(
    ("committed", "expected"),
    [
        (True, ["'s'", "'d'", "invalid_input", "backend"]),
        (False, ["'s'", "backend", "invalid_input", "backend"]),
        (None, ["'s'", "outcome_unknown", "invalid_input", "backend"]),
    ],
)
def test_a_doubt_is_resolved_call_by_call(committed: bool | None, expected: list[str]) -> None:
    """What was settled stands; refusals stay refusals; what was never started is not written."""
    failed = CommitFailed([Written("s")], [Written("d"), NotWritten(InvalidInputError())], 1)
    outcomes = failed.resolve(committed, BackendError())
    assert expected == _kinds(outcomes)
    assert isinstance(outcomes[1], {True: Written, False: NotWritten, None: Unknown}[committed])
    assert isinstance(outcomes[3], NotWritten)
    if committed is None:
        assert isinstance(outcomes[1].error, OutcomeUnknownError)
