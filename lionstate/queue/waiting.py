"""What waits and what flies: tickets in order of arrival per class, and the keys that running ones hold."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence

from lionstate.queue.ticket import QueueLimits, Ticket, TicketClass

__all__ = ["WaitingRoom"]

_SCAN_FACTOR = 4


class WaitingRoom:
    """Keeps order per key: a ticket leaves only when no running and no earlier waiting one has a key of it.

    Attributes:
        depth: Tickets that wait.
        size_bytes: Sum of their estimated sizes.

    Contract: design §2.2.
    """

    def __init__(self, limits: QueueLimits) -> None:
        """Start empty."""
        self._limits = limits
        self._waiting: dict[TicketClass, deque[Ticket]] = {kind: deque() for kind in TicketClass}
        # A count per key: tickets of one batch may share a key and land at different times.
        self._in_flight: dict[str, int] = {}
        self._everything_in_flight = 0
        self.size_bytes = 0
        self.depth = 0

    def oldest_age_seconds(self) -> float:
        """Age of the ticket that has waited longest; 0 when none waits."""
        heads = [waiting[0].submitted_at for waiting in self._waiting.values() if waiting]
        return time.monotonic() - min(heads) if heads else 0.0

    def head(self, kind: TicketClass) -> Ticket | None:
        """The first ticket of a class."""
        waiting = self._waiting[kind]
        return waiting[0] if waiting else None

    def enter(self, tickets: Sequence[Ticket]) -> None:
        """Put tickets at the end."""
        for ticket in tickets:
            self._waiting[ticket.kind].append(ticket)
            self.size_bytes += ticket.size_bytes
        self.depth += len(tickets)

    def enter_in_front(self, tickets: Sequence[Ticket]) -> None:
        """Put tickets back, before everything that waits, in their order."""
        for ticket in reversed(tickets):
            self._waiting[ticket.kind].appendleft(ticket)
            self.size_bytes += ticket.size_bytes
        self.depth += len(tickets)

    def leave(self, unwanted: Callable[[Ticket], bool]) -> list[Ticket]:
        """Take out the waiting tickets that are no longer wanted."""
        gone: list[Ticket] = []
        for waiting in self._waiting.values():
            found = [ticket for ticket in waiting if unwanted(ticket)]
            if found:
                gone += found
                kept = [ticket for ticket in waiting if not unwanted(ticket)]
                waiting.clear()
                waiting.extend(kept)
        self.size_bytes -= sum(ticket.size_bytes for ticket in gone)
        self.depth -= len(gone)
        return gone

    def fly(self, tickets: Iterable[Ticket]) -> None:
        """Hold the keys of tickets that run."""
        for ticket in tickets:
            if ticket.keys is None:
                self._everything_in_flight += 1
            else:
                for key in ticket.keys:
                    self._in_flight[key] = self._in_flight.get(key, 0) + 1

    def land(self, tickets: Iterable[Ticket]) -> None:
        """Give the keys of tickets back."""
        for ticket in tickets:
            if ticket.keys is None:
                self._everything_in_flight -= 1
                continue
            for key in ticket.keys:
                left = self._in_flight[key] - 1
                if left:
                    self._in_flight[key] = left
                else:
                    del self._in_flight[key]

    def pick(self, kind: TicketClass, most: int, hold_of: Callable[[Ticket], float]) -> list[Ticket]:
        """Take from the front what nothing stands in the way of, up to the bounds of a batch."""
        limits, waiting = self._limits, self._waiting[kind]
        if len(waiting) == 1 and most and not self._in_flight and not self._everything_in_flight:
            # Alone: nothing to weigh.
            ticket = waiting.popleft()
            self.size_bytes -= ticket.size_bytes
            self.depth -= 1
            return [ticket]
        picked: list[Ticket] = []
        skipped: list[Ticket] = []
        behind: set[str] = set()
        size, hold = 0, 0.0
        scans = _SCAN_FACTOR * most
        while waiting and len(picked) < most and scans:
            scans -= 1
            ticket = waiting[0]
            if picked and (
                ticket.alone
                or size + ticket.size_bytes > limits.max_batch_bytes
                or hold + hold_of(ticket) > limits.max_hold_seconds
            ):
                break
            waiting.popleft()
            if self._stands_behind(ticket, behind):
                skipped.append(ticket)
                if ticket.keys is None:
                    break
                behind |= ticket.keys
                continue
            picked.append(ticket)
            size += ticket.size_bytes
            hold += hold_of(ticket)
            if ticket.alone:
                break
        waiting.extendleft(reversed(skipped))
        self.size_bytes -= size
        self.depth -= len(picked)
        return picked

    def _stands_behind(self, ticket: Ticket, behind: set[str]) -> bool:
        if self._everything_in_flight:
            return True
        if ticket.keys is None:
            return bool(self._in_flight or behind)
        return not (behind.isdisjoint(ticket.keys) and self._in_flight.keys().isdisjoint(ticket.keys))
