"""What follows a batch: what is observed and learned of it, and effects that must not undo what is committed."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from typing import Any

from lionstate.engine import Observer
from lionstate.errors import DeadlineExceededError, OverloadedError, StateError
from lionstate.queue.batch import QueuedBatch
from lionstate.queue.holds import HoldModel
from lionstate.queue.ticket import Ticket

__all__ = ["EndedBatches", "refusal", "safely"]

_log = logging.getLogger(__name__)
_MOST_UNTOLD = 16


class EndedBatches:
    """Tells the observer of batches, and the hold model how long they took.

    Of lone calls it tells several at once: one by one they would delay the next each time, by a hundredth of what it
    takes. What a batch of several took counts for the size of the next one, so that is told without delay.
    """

    def __init__(self, observer: Observer, holds: HoldModel) -> None:
        """Nothing has ended."""
        self._observer = observer
        self._holds = holds
        self._untold: list[tuple[QueuedBatch, Sequence[Ticket], float]] = []

    def note(self, batch: QueuedBatch, written: Sequence[Ticket]) -> None:
        """A batch has ended just now, with these tickets written."""
        self._untold.append((batch, written, time.monotonic()))
        if len(batch.tickets) > 1:
            # The callers just answered go first: what they ask next is on its way to the writer when this is counted.
            asyncio.get_running_loop().call_soon(self.tell)
        elif len(self._untold) >= _MOST_UNTOLD:
            self.tell()

    def tell(self) -> None:
        """Tell what is untold."""
        untold, self._untold = self._untold, []
        for batch, written, ended_at in untold:
            safely(self._tell, batch, written, ended_at)

    def _tell(self, batch: QueuedBatch, written: Sequence[Ticket], ended_at: float) -> None:
        taken, began_at = batch.taken, batch.began_at
        self._observer.batch(len(taken))
        if not taken:
            return
        counted = _counted(taken)
        self._observer.queue_waits([began_at - ticket.submitted_at for ticket in taken])
        # Lanes share the machine: what others ran meanwhile is not this batch's doing.
        self._holds.learn(counted, len(taken), (ended_at - began_at) / batch.beside)
        for name, count in (counted if len(written) == len(taken) else _counted(written)).items():
            self._observer.operation(name, "written", count)


def _counted(tickets: Sequence[Ticket]) -> dict[str, int]:
    """How many there are of each operation."""
    counts: dict[str, int] = {}
    for ticket in tickets:
        counts[ticket.name] = counts.get(ticket.name, 0) + 1
    return counts


def refusal(error: StateError) -> str:
    """The metrics' outcome of what is not written: who turned it away, where that was the queue or the clock."""
    return error.code if isinstance(error, OverloadedError | DeadlineExceededError) else "not_written"


def safely(effect: Callable[..., None], *args: Any) -> None:
    """Run what follows a commit; the commit stands whatever comes of it."""
    try:
        effect(*args)
    except Exception:
        _log.exception("an effect after a commit failed")
