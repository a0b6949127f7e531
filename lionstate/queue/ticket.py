"""One write that waits for its transaction."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from sqlalchemy import Connection

from lionstate.engine import Call, Outcome

__all__ = ["Fold", "QueueLimits", "Ticket", "TicketClass"]


class TicketClass(StrEnum):
    """Who asks: a caller, or the migration's maintenance."""

    REQUEST = "request"
    MAINTENANCE = "maintenance"


class Fold(Protocol):
    """Runs several calls of one operation in a handful of statements."""

    def __call__(self, conn: Connection, calls: Sequence[Mapping[str, Any]], /) -> Sequence[Any]:
        """Return one value, ``Refused``, ``NeedsParse`` or ``Later`` per call, in their order.

        A call behind one that needs a parse, on any key of it, must be ``Later``.
        """
        ...


@dataclass(frozen=True, slots=True)
class QueueLimits:
    """Bounds of a write queue.

    Attributes:
        max_operations: Tickets that may wait; one more is refused as overloaded.
        max_bytes: Sum of their estimated sizes.
        max_batch_operations: Tickets in one transaction.
        max_batch_bytes: Sum of their sizes in one transaction.
        max_hold_seconds: Estimated time in one transaction; a single longer operation runs alone.
        maintenance_after_batches: Request batches after which waiting maintenance goes first.
        maintenance_after_seconds: The same bound as a time.
        busy_wait_seconds: How long a ticket may go round because rows stay locked (PostgreSQL).
    """

    max_operations: int = 10_000
    max_bytes: int = 64 * 1024 * 1024
    max_batch_operations: int = 256
    max_batch_bytes: int = 8 * 1024 * 1024
    max_hold_seconds: float = 0.025
    maintenance_after_batches: int = 8
    maintenance_after_seconds: float = 0.25
    busy_wait_seconds: float = 5.0


@dataclass(slots=True, eq=False)
class Ticket:
    """A call, what it may touch and who waits for it.

    Attributes:
        name: The operation's name, for metrics.
        call: The call alone.
        params: The bound parameters that its fold takes.
        fold: How several such calls run together; None runs each alone.
        keys: Sessions and progressions it may touch; None is unknown, which means all.
        size_bytes: Estimated size.
        deadline: ``time.monotonic()`` after which it is not started; None waits for ever.
        kind: Whose turn it takes.
        future: Gets the outcome; a cancelled one drops the ticket unless it is claimed.
        submitted_at: ``time.monotonic()`` of submission.
        claimed: A transaction runs it, or it is answered already.
        alone: It had to wait for locked rows and holds nobody else up.
        parses: How often it went round for a parse.
        rounds: How often it went round because rows were locked.
        busy_until: When it stops waiting for locked rows.
    """

    name: str
    call: Call
    params: Mapping[str, Any]
    fold: Fold | None
    keys: frozenset[str] | None
    size_bytes: int
    deadline: float | None
    kind: TicketClass
    future: asyncio.Future[Outcome]
    submitted_at: float
    claimed: bool = field(default=False)
    alone: bool = field(default=False)
    parses: int = field(default=0)
    rounds: int = field(default=0)
    busy_until: float | None = field(default=None)

    @property
    def progressions(self) -> frozenset[str]:
        """The progression ids among its keys, for locking."""
        return frozenset([key[2:] for key in self.keys or () if key.startswith("p:")])

    def is_late(self, now: float) -> bool:
        """Whether its deadline has passed."""
        return self.deadline is not None and self.deadline <= now
