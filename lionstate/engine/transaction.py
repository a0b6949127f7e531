"""One batch in one transaction: optimistic first, then a replay that isolates what fails.

Synchronous and the same for both databases: SQLite calls it on the writer thread, PostgreSQL inside ``run_sync``.
Whatever leaves ``execute_batch`` as an ordinary exception was rolled back; only ``CommitFailed`` leaves a doubt.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Protocol

from sqlalchemy import Connection

from lionstate.dialects import Dialect
from lionstate.engine.script import (
    Batch,
    Call,
    Look,
    NotWritten,
    Outcome,
    Refused,
    Reply,
    Unit,
    Unknown,
    Written,
)
from lionstate.errors import (
    BackendBusyError,
    BackendError,
    BackendUnavailableError,
    InvalidInputError,
    OutcomeUnknownError,
    StateError,
)

__all__ = ["CommitFailed", "Session", "execute_batch", "require_open", "translate"]

_log = logging.getLogger(__name__)
_TRANSIENT_RETRIES = 3


class Session(Protocol):
    """A connection whose transactions the batch may begin and end."""

    conn: Connection
    dialect: Dialect

    def begin(self) -> None:
        """Begin a write transaction; raises BackendBusyError after the whole wait."""
        ...

    def is_open(self) -> bool:
        """Whether a transaction is open: the database may have ended it."""
        ...

    def before_commit(self, is_there: Look | None = None) -> None:
        """The last statements before COMMIT; an error here means that nothing is written.

        Args:
            is_there: Tells of all that is written whether it is there, should COMMIT raise.
        """
        ...

    def commit(self) -> None:
        """Commit; any error means that the outcome is in doubt."""
        ...

    def rollback(self) -> None:
        """End the transaction whatever state it is in; never raises."""
        ...

    def after_failed_commit(self, error: BaseException) -> StateError | None:
        """Find out what became of a COMMIT that raised: None if it is there, else the error to give."""
        ...


class CommitFailed(Exception):
    """COMMIT raised: ``settled`` outcomes stand, ``doubtful`` ones are unknown until the writer finds out."""

    def __init__(self, settled: list[Outcome], doubtful: list[Outcome], remaining: int) -> None:
        """Keep the outcomes by what is known of them; ``remaining`` calls were never started."""
        self.settled = settled
        self.doubtful = doubtful
        self.remaining = remaining
        super().__init__("COMMIT failed")

    def resolve(self, committed: bool | None, error: StateError) -> list[Outcome]:
        """The outcome of every call, in order.

        Args:
            committed: Whether the commit is there; None if that could not be found out.
            error: What those get that are not written.
        """
        doubtful = self.doubtful
        if committed is False:
            doubtful = [NotWritten(error) if isinstance(found, Written) else found for found in doubtful]
        elif committed is None:
            unknown = Unknown(OutcomeUnknownError.after_commit(error.cause))
            doubtful = [unknown if isinstance(found, Written) else found for found in doubtful]
        return [*self.settled, *doubtful, *[NotWritten(error)] * self.remaining]


def translate(dialect: Dialect, error: BaseException) -> StateError:
    """The public exception for anything a script or a driver raised; unknown ones become BackendError."""
    if isinstance(error, StateError):
        return error
    found = dialect.classify_error(error)
    if found is not None:
        found.__cause__ = error
        return found
    if isinstance(error, UnicodeDecodeError):
        # Never a caller's: what comes in is text already.
        failed: StateError = BackendUnavailableError("the store holds text that is not UTF-8: it may be damaged")
    elif isinstance(error, (ValueError, TypeError, LookupError, OverflowError)):
        failed = InvalidInputError(f"{type(error).__name__} in the operation")
    else:
        failed = BackendError(f"the operation failed: {type(error).__name__}")
    failed.__cause__ = error
    _log.debug("a script raised", exc_info=error)
    return failed


def execute_batch(session: Session, batch: Batch) -> list[Outcome]:
    """Run a batch and return one outcome per call, in the order of ``batch.take()``.

    Raises:
        CommitFailed: COMMIT raised; the writer decides.
    """
    try:
        session.begin()
    except Exception as error:
        session.rollback()
        return _all_refused([call for unit in batch.take() for call in unit.calls], translate(session.dialect, error))
    try:
        units = batch.take()
    except BaseException:
        session.rollback()
        raise
    if not units:
        session.rollback()
        return []
    for attempt in range(_TRANSIENT_RETRIES + 1):
        try:
            if attempt:
                session.begin()
            outcomes = _together(session, batch, units)
        except Exception as error:
            session.rollback()
            if session.dialect.is_transient(error) and attempt < _TRANSIENT_RETRIES:
                continue
            calls = [call for unit in units for call in unit.calls]
            refusal = translate(session.dialect, error)
            if session.dialect.is_store_failure(error) or len(calls) == 1 or _gave_way(refusal):
                return _all_refused(calls, refusal)
            break
        _commit(session, [], outcomes, 0)
        return outcomes
    return _replay(session, batch, calls)


def _all_refused(calls: Sequence[Call], error: StateError) -> list[Outcome]:
    return [NotWritten(error)] * len(calls)


def _gave_way(error: StateError) -> bool:
    return isinstance(error, BackendBusyError)


def _together(session: Session, batch: Batch, units: Sequence[Unit]) -> list[Outcome]:
    conn, dialect = session.conn, session.dialect
    if dialect.capabilities.concurrent_writers and (len(units) > 1 or units[0].locks_first):
        batch.lock(conn)
    if len(units) == 1 and len(units[0].calls) == 1:
        value = units[0].calls[0](conn)
        require_open(session)
        session.before_commit(value.is_there if isinstance(value, Reply) else None)
        return [_settled(value)]
    outcomes: list[Outcome] = []
    for unit in units:
        outcomes += [_settled(value) for value in _values(session, unit)]
        require_open(session)
    session.before_commit()
    return outcomes


def _values(session: Session, unit: Unit) -> Sequence[Any]:
    if unit.fold is not None:
        values = unit.fold(session.conn)
        if len(values) != len(unit.calls):
            raise BackendError(f"a fold of {len(unit.calls)} calls returned {len(values)} values")
        return values
    values = []
    for call in unit.calls:
        if values:
            require_open(session)
        values.append(call(session.conn))
    return values


def _settled(value: Any) -> Outcome:
    return NotWritten(value.error) if isinstance(value, Refused) else Written(value)


def require_open(session: Session) -> None:
    """SQLITE_FULL, I/O errors and RAISE(ROLLBACK) end a transaction silently; a COMMIT after that would lie."""
    if not session.is_open():
        raise BackendError("the database ended the transaction before it was committed")


def _commit(session: Session, settled: list[Outcome], doubtful: list[Outcome], remaining: int) -> None:
    try:
        session.commit()
    except Exception as error:
        raise CommitFailed(settled, doubtful, remaining) from error


class _Ended(Exception):
    """The database ended the transaction; every outcome noted so far went with it."""


def _replay(session: Session, batch: Batch, calls: Sequence[Call]) -> list[Outcome]:
    """Run the calls in savepoints of one transaction, so that only the failing ones are refused."""
    try:
        session.begin()
        batch.lock(session.conn)
        outcomes = [_in_savepoint(session, call) for call in calls]
        require_open(session)
        session.before_commit()
    except _Ended:
        session.rollback()
    except Exception as error:
        session.rollback()
        return _all_refused(calls, translate(session.dialect, error))
    else:
        _commit(session, [], outcomes, 0)
        return outcomes
    return _one_by_one(session, calls)


def _in_savepoint(session: Session, call: Call) -> Outcome:
    """One call of a replay; what no other call would survive either is raised."""
    conn, dialect = session.conn, session.dialect
    savepoint = conn.begin_nested()
    try:
        outcome = _settled(call(conn))
        require_open(session)
        savepoint.commit()
    except Exception as error:
        refusal = translate(dialect, error)
        if dialect.is_store_failure(error) or _gave_way(refusal):
            # Giving way: later calls on the same rows would overtake the one that has to wait.
            raise
        if not session.is_open():
            raise _Ended from error
        savepoint.rollback()
        return NotWritten(refusal)
    return outcome


def _one_by_one(session: Session, calls: Sequence[Call]) -> list[Outcome]:
    """Run each call in a transaction of its own: a script of this batch ends transactions under us."""
    outcomes: list[Outcome] = []
    for position, call in enumerate(calls):
        remaining = len(calls) - position
        try:
            session.begin()
            outcome = _settled(call(session.conn))
            require_open(session)
            session.before_commit()
        except Exception as error:
            session.rollback()
            refusal = translate(session.dialect, error)
            if session.dialect.is_store_failure(error) or _gave_way(refusal):
                return [*outcomes, *[NotWritten(refusal)] * remaining]
            outcome = NotWritten(refusal)
        else:
            _commit(session, outcomes, [outcome], remaining - 1)
        outcomes.append(outcome)
    return outcomes
