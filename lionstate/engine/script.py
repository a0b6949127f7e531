"""The vocabulary between scripts, writers and the queue: calls, units, batches and the three outcomes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Generic, Protocol, TypeAlias, TypeVar, cast

from sqlalchemy import Connection

from lionstate.engine.observer import Observer
from lionstate.errors import OutcomeUnknownError, StateError

__all__ = [
    "Batch",
    "Call",
    "Continued",
    "Deferred",
    "Look",
    "NotWritten",
    "Outcome",
    "Refused",
    "Reply",
    "Script",
    "Unit",
    "Unknown",
    "Written",
    "answer",
    "done_here",
]

R = TypeVar("R")
_MOST_ON_A_THREAD = 1024 * 1024


def _same(raw: Any) -> Any:
    return raw


Script: TypeAlias = Callable[[Connection], R]
Call: TypeAlias = Callable[[Connection], Any]
Look: TypeAlias = Callable[[Connection], bool | None]
"""Looks, in a transaction of its own, for what another one was to write: there, not there, or None: cannot be told."""


@dataclass(frozen=True, slots=True)
class Deferred(Generic[R]):
    """What a read script returns when the rest is pure work that grows with history.

    The runner calls ``finish(raw)`` outside the script's transaction and, when ``size`` is large, in a worker thread.

    Attributes:
        raw: What was read.
        finish: A pure function from ``raw`` to the result, or to ``Continued`` when more must be read first.
        size: Bytes or elements of ``raw``, to choose where ``finish`` runs.
        observe: Tells the store's observer what kind of read this was.
        answered: Shows the store's observer the result.
    """

    __deferred__: ClassVar[bool] = True

    raw: Any
    finish: Callable[[Any], R | Continued[R]]
    size: int = 0
    observe: Callable[[Observer], None] | None = None
    answered: Callable[[Observer, Any], None] | None = None


@dataclass(frozen=True, slots=True)
class Continued(Generic[R]):
    """What pure work says when the rest must be read: the next script, which gets a snapshot of its own."""

    script: Callable[[Connection], Deferred[R] | R]


def done_here(found: R) -> R:
    """What a read script returned with its pure work done, for a runner on a thread of its own, after the transaction.

    What is too much for one thread to hold the interpreter's lock for, or is to be observed first, is left.
    """
    if not isinstance(found, Deferred) or found.size > _MOST_ON_A_THREAD or found.observe is not None:
        return found
    return cast(R, Deferred(found.finish(found.raw), _same, answered=found.answered))


@dataclass(slots=True)
class Reply:
    """A script's result together with what is applied in memory after COMMIT, and only then.

    Attributes:
        value: The result.
        after_commit: What is applied; None for nothing.
        is_there: Tells by rows whether all that this call wrote stands in the store; None if they do not tell.
    """

    value: Any
    after_commit: Callable[[], None] | None = None
    is_there: Look | None = None


@dataclass(frozen=True, slots=True)
class Refused:
    """A call was refused: of a fold before anything was written for it, alone with what it wrote staying.

    The caller gets the error; the other calls of the transaction go on.
    """

    __refused__: ClassVar[bool] = True

    error: StateError


def answer(value: R) -> R:
    """What the caller of a lone script gets: its value, or the error of its refusal raised."""
    if isinstance(value, Refused):
        raise value.error
    return value


@dataclass(slots=True)
class Written:
    """The call's transaction is committed."""

    value: Any


@dataclass(frozen=True, slots=True)
class NotWritten:
    """Nothing of the call is in the store, and nothing will be."""

    error: StateError


@dataclass(frozen=True, slots=True)
class Unknown:
    """The commit was sent and its result could not be learned."""

    error: OutcomeUnknownError = field(default_factory=OutcomeUnknownError)


Outcome: TypeAlias = Written | NotWritten | Unknown


@dataclass(slots=True)
class Unit:
    """Calls that run next to each other in a batch.

    Attributes:
        calls: One script per ticket, used alone when the unit has one call and when a batch is replayed.
        fold: Runs all calls together and returns one value or ``Refused`` each; None runs them in turn.
        locks_first: A call touches several progressions one after another: ``Batch.lock`` must come before it.
    """

    calls: Sequence[Call]
    fold: Callable[[Connection], Sequence[Any]] | None = None
    locks_first: bool = False


class Batch(Protocol):
    """What a writer runs in one transaction.

    Attributes:
        lane: For whom, to measure lock holds by: ``request`` or ``maintenance``.
    """

    @property
    def lane(self) -> str: ...

    def wanted(self) -> bool:
        """Asked while the writer waits for its lock: whether anybody still wants the batch."""
        ...

    def take(self) -> Sequence[Unit]:
        """Decide, under the writer's lock, what is still alive and how it folds; a second call changes nothing."""
        ...

    def lock(self, conn: Connection) -> None:
        """Take every lock of the batch in one order; called before a replay and before a batch of several units
        or with one that asks for it."""
        ...
