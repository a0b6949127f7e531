"""Whose turn it is: requests before maintenance, which still gets one often enough, and never two in a row."""

from __future__ import annotations

import time

from lionstate.queue.holds import HoldModel
from lionstate.queue.ticket import QueueLimits, Ticket, TicketClass
from lionstate.queue.waiting import WaitingRoom

__all__ = ["Turns"]


class Turns:
    """Picks the tickets of the next batch out of the waiting room."""

    def __init__(self, room: WaitingRoom, limits: QueueLimits, holds: HoldModel) -> None:
        """Pick from ``room`` within ``limits``, by what ``holds`` knows of each operation."""
        self._room = room
        self._limits = limits
        self._holds = holds
        self._since_maintenance = 0
        self._last_was_maintenance = False

    def next_batch(self) -> list[Ticket]:
        """The tickets of the next batch, [] if none may run now."""
        maintenance = self._room.head(TicketClass.MAINTENANCE)
        due = maintenance is not None and (
            self._room.head(TicketClass.REQUEST) is None or self._maintenance_is_due(maintenance)
        )
        if due and (tickets := self._room.pick(TicketClass.MAINTENANCE, 1, self._hold_of)):
            self._since_maintenance = 0
            self._last_was_maintenance = True
            return tickets
        tickets = self._room.pick(TicketClass.REQUEST, self._limits.max_batch_operations, self._hold_of)
        if tickets:
            self._since_maintenance += 1
            self._last_was_maintenance = False
        return tickets

    def take_alone(self, ticket: Ticket) -> bool:
        """Whether a ticket that nothing waits or runs beside is a batch by itself, and its turn now."""
        limits = self._limits
        if ticket.kind is not TicketClass.REQUEST or not (limits.max_operations and limits.max_batch_operations):
            return False
        self._since_maintenance += 1
        self._last_was_maintenance = False
        return True

    def _hold_of(self, ticket: Ticket) -> float:
        return self._holds.of(ticket.name)

    def _maintenance_is_due(self, head: Ticket) -> bool:
        # Never twice in a row: a request that waits is starved by nothing.
        if self._last_was_maintenance:
            return False
        waited = time.monotonic() - head.submitted_at
        limits = self._limits
        return self._since_maintenance >= limits.maintenance_after_batches or waited >= limits.maintenance_after_seconds
