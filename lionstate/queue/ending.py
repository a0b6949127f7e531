"""What follows a batch: what is observed and learned of it, and effects that must not undo what is committed."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from lionstate.engine import Observer
from lionstate.errors import DeadlineExceededError, OverloadedError, StateError
from lionstate.queue.batch import QueuedBatch
from lionstate.queue.holds import HoldModel
from lionstate.queue.ticket import Ticket

__all__ = ["observe_batch", "refusal", "safely"]

_log = logging.getLogger(__name__)


def observe_batch(
    observer: Observer, holds: HoldModel, batch: QueuedBatch, written: Sequence[Ticket], ended_at: float
) -> None:
    """Tell the observer of a batch, and the hold model how long it took."""
    taken, began_at = batch.taken, batch.began_at
    observer.batch(len(taken))
    if taken:
        observer.queue_waits([began_at - ticket.submitted_at for ticket in taken])
        # Lanes share the machine: what others ran meanwhile is not this batch's doing.
        holds.learn(_counted(taken), len(taken), (ended_at - began_at) / batch.beside)
    for name, count in _counted(written).items():
        observer.operation(name, "written", count)


def _counted(tickets: Sequence[Ticket]) -> dict[str, int]:
    """How many there are of each operation."""
    counts: dict[str, int] = {}
    for ticket in tickets:
        counts[ticket.name] = counts.get(ticket.name, 0) + 1
    return counts


def refusal(error: StateError) -> str:
    """The metrics' outcome of what is not written: who turned it away, where that was the queue or the clock."""
    return error.code if isinstance(error, OverloadedError | DeadlineExceededError) else "not_written"


def safely(effect: Callable[[], None]) -> None:
    """Run what follows a commit; the commit stands whatever comes of it."""
    try:
        effect()
    except Exception:
        _log.exception("an effect after a commit failed")
