"""Every public exception of lionstate; the bounded reason codes are `lionstate.codes`, and named here too.

    StateError                                 HTTP  exit
    ├ InvalidInputError (ValueError)            400   2
    │   └ ArtifactPathError  MissingKeyError (KeyError)
    ├ AccessDeniedError                         401   2   raised by the daemon's listeners
    ├ NotFoundError (LookupError)               404   4
    ├ ConflictError                             409   1
    │   ├ UniqueConflictError  ForeignKeyError  TransitionRejectedError  OwnershipConflictError
    │   ├ NestedWriteError  PhaseConflictError  AdmissionRejectedError (ValueError)
    │   ├ IdempotencyConflictError  ResultNotKeptError
    │   └ VersionRaceError (RuntimeError)
    ├ ProgressionError                          409   1
    │   ├ ProgressionBlockedError  MalformedCollectionError
    │   └ ParityError  PrefixGapError  StaleCursorError
    ├ OverloadedError                           503   9   outcome: not written
    ├ DeadlineExceededError                     504   5   outcome: not written
    ├ BackendError                              500   1
    │   ├ BackendBusyError  BackendUnavailableError  DamagedTextError
    │   └ OutcomeUnknownError
    ├ SchemaError                               503   3
    │   ├ SchemaTooNewError  ForeignLineageError  UnrecognizedStoreError
    │   └ NotEmptyError  UncopyableError  TwoSqliteLibrariesError  UnverifiedLionagiError
    ├ DifferenceError                           500   6
    ├ ClosedError (RuntimeError)                503   1
    └ DaemonError                               -     9   raised by StateClient only
        └ DaemonUnreachableError  WireError

A class has exactly one ``code``: the code of the HTTP problem document and of the metric label.
An exception's docstring is its default message.
"""

from __future__ import annotations

from typing import Final

from lionstate.codes import BlockedCode, HeldReason
from lionstate.errors.base import BackendError, StateError, WithCause, WithReason
from lionstate.errors.doubt import OutcomeUnknownError
from lionstate.errors.input import ArtifactPathError, InvalidInputError, MissingKeyError

__all__ = [
    "ERROR_CODES",
    "AccessDeniedError",
    "AdmissionRejectedError",
    "ArtifactPathError",
    "BackendBusyError",
    "BackendError",
    "BackendUnavailableError",
    "BlockedCode",
    "ClosedError",
    "ConflictError",
    "DaemonError",
    "DaemonUnreachableError",
    "DamagedTextError",
    "DeadlineExceededError",
    "DifferenceError",
    "ForeignKeyError",
    "ForeignLineageError",
    "HeldReason",
    "IdempotencyConflictError",
    "InvalidInputError",
    "MalformedCollectionError",
    "MissingKeyError",
    "NestedWriteError",
    "NotEmptyError",
    "NotFoundError",
    "OutcomeUnknownError",
    "OverloadedError",
    "OwnershipConflictError",
    "ParityError",
    "PhaseConflictError",
    "PrefixGapError",
    "ProgressionBlockedError",
    "ProgressionError",
    "ResultNotKeptError",
    "SchemaError",
    "SchemaTooNewError",
    "StaleCursorError",
    "StateError",
    "TransitionRejectedError",
    "TwoSqliteLibrariesError",
    "UncopyableError",
    "UniqueConflictError",
    "UnrecognizedStoreError",
    "UnverifiedLionagiError",
    "VersionRaceError",
    "WireError",
    "error_from_code",
]


class AccessDeniedError(StateError):
    """The daemon does not serve this caller; nothing was changed."""

    code = "access_denied"
    http_status = 401
    exit_code = 2


class NotFoundError(StateError, LookupError):
    """The row does not exist."""

    code = "not_found"
    http_status = 404
    exit_code = 4


class ConflictError(StateError):
    """The request contradicts what the store holds; nothing was changed."""

    code = "conflict"
    http_status = 409


class UniqueConflictError(ConflictError):
    """A row with this key exists already."""

    code = "unique_conflict"


class ForeignKeyError(ConflictError):
    """A referenced row does not exist, or rows still refer to this one."""

    code = "foreign_key"


class TransitionRejectedError(ConflictError):
    """The status is terminal and the change was not an audited override."""

    code = "transition_rejected"


class AdmissionRejectedError(WithReason, ConflictError, ValueError):
    """The queue does not take this task; ``reason`` is the reason code it would be skipped with."""

    code = "admission_rejected"


class OwnershipConflictError(ConflictError):
    """Another owner holds this."""

    code = "ownership_conflict"
    exit_code = 10


class NestedWriteError(ConflictError):
    """A facade call was made by the task that holds the write transaction."""

    code = "nested_write"


class PhaseConflictError(ConflictError):
    """The operation does not apply in this phase."""

    code = "phase_conflict"
    exit_code = 7


class VersionRaceError(ConflictError, RuntimeError):
    """Another writer took the next version every time it was tried."""

    code = "version_race"


class IdempotencyConflictError(ConflictError):
    """This idempotency key was used for another call; nothing was changed: a new call needs a new key."""

    code = "idempotency_conflict"


class ResultNotKeptError(ConflictError):
    """The first call with this key was written, and its result not kept; nothing was changed now: read it instead."""

    code = "result_not_kept"


class ProgressionError(StateError):
    """The progression cannot serve the request."""

    code = "progression_error"
    http_status = 409


class ProgressionBlockedError(WithReason, ProgressionError):
    """The progression is blocked and has no trustworthy source for this request."""

    code = "progression_blocked"
    exit_code = 8
    _said = "progression is blocked"


_WRITE_ANEW: Final = (
    "Write it anew with set_progression, and where it is blocked (lionstate progression-migrate blocked show),"
    " blocked retry it then"
)


class MalformedCollectionError(WithReason, ProgressionError):
    """The stored collection is not a JSON array."""

    code = "malformed_collection"

    @classmethod
    def of(cls, progression_id: str | None, reason: str | None, remedy: str = _WRITE_ANEW) -> MalformedCollectionError:
        """Say which one it is, as far as that is known, by what verdict, and how it is mended."""
        whose = "" if progression_id is None else f" of progression {progression_id!r}"
        why = "" if reason is None else f": {reason}"
        return cls(
            f"the stored collection{whose} is not readable{why}; nothing was changed. {remedy};"
            " lionstate progression-migrate codes says what the code means",
            reason=reason,
        )


class ParityError(ProgressionError):
    """The two representations of a progression differ."""

    code = "parity"
    exit_code = 6


class PrefixGapError(ProgressionError):
    """The frozen prefix and the relational tail do not meet."""

    code = "prefix_gap"


class StaleCursorError(ProgressionError):
    """The progression was replaced since the cursor was taken."""

    code = "stale_cursor"


class OverloadedError(StateError):
    """The write queue is full; nothing was written."""

    code = "overloaded"
    http_status = 503
    exit_code = 9
    retryable = True


class DeadlineExceededError(StateError):
    """The deadline passed before the write was started; nothing was written."""

    code = "deadline_exceeded"
    http_status = 504
    exit_code = 5
    retryable = True


class BackendBusyError(BackendError):
    """The database stayed locked for the whole wait; nothing was written."""

    code = "backend_busy"
    http_status = 503
    exit_code = 5
    retryable = True


class BackendUnavailableError(WithCause, BackendError):
    """The database cannot be reached or cannot store; nothing was written."""

    code = "backend_unavailable"
    http_status = 503
    exit_code = 4
    retryable = True


class DamagedTextError(BackendError):
    """A stored text is not UTF-8: nothing was changed, and only what needs this value fails; write it anew."""

    code = "damaged_text"


class SchemaError(StateError):
    """The store's schema is not one that this version works on; nothing was changed."""

    code = "schema"
    http_status = 503
    exit_code = 3


class SchemaTooNewError(SchemaError):
    """The store was written by a newer version; nothing was changed."""

    code = "schema_too_new"


class ForeignLineageError(SchemaError):
    """The store belongs to another application; nothing was changed."""

    code = "foreign_lineage"


class UnrecognizedStoreError(SchemaError):
    """The file or database is not a store that lionstate knows; nothing was changed."""

    code = "unrecognized_store"


class NotEmptyError(SchemaError):
    """The target holds something already and is no copy of this source that was begun; nothing was changed."""

    code = "not_empty"


class UncopyableError(SchemaError):
    """The target cannot hold some values of the source; nothing was changed."""

    code = "uncopyable"


class TwoSqliteLibrariesError(SchemaError):
    """Two SQLite libraries would open one file in one process, which loses commits."""

    code = "two_sqlite_libraries"


class DifferenceError(StateError):
    """What was written is not what was read: a copy, a backup or their source has changed."""

    code = "difference"
    exit_code = 6


class ClosedError(StateError, RuntimeError):
    """The store is not open."""

    code = "closed"
    http_status = 503


class UnverifiedLionagiError(SchemaError):
    """This is not the LionAGI that the bridge was made for; nothing was changed."""

    code = "unverified_lionagi"


class DaemonError(StateError):
    """The daemon could not be used."""

    code = "daemon"
    exit_code = 9


class DaemonUnreachableError(DaemonError):
    """No daemon answers at this address."""

    code = "daemon_unreachable"
    retryable = True


class WireError(DaemonError):
    """The daemon's answer could not be understood."""

    code = "wire"


def _tree(cls: type[StateError]) -> list[type[StateError]]:
    return [cls, *(found for child in cls.__subclasses__() for found in _tree(child))]


ERROR_CODES: Final = frozenset(found.code for found in _tree(StateError))


def error_from_code(code: str, message: str, *, reason: str | None = None) -> StateError:
    """Build the exception that a bounded ``code`` names; StateError for an unknown one.

    ``reason`` is the blocked code, for the classes that carry one.
    """
    # The first of a code: a class without one of its own has its parent's.
    cls = {found.code: found for found in reversed(_tree(StateError))}.get(code, StateError)
    error = cls(message)
    if reason is not None and isinstance(error, WithReason):
        error.reason = reason
    return error
