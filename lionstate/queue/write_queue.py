"""Group commit: take what waits when a lane becomes free, fold it, run it in one transaction, settle the tickets."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any

from lionstate.engine import NotWritten, Observer, Outcome, Reply, Unknown, Writer, Written
from lionstate.engine.offload import run_pure
from lionstate.errors import BackendError, ClosedError, DeadlineExceededError, OverloadedError
from lionstate.progression.parsed import Later, NeedsParse, ParsedValues
from lionstate.queue.batch import Probe, QueuedBatch
from lionstate.queue.ticket import QueueLimits, Ticket, TicketClass

__all__ = ["WriteQueue"]

_SWEEP_SECONDS = 0.05
_SCAN_FACTOR = 4
_MAX_PARSES = 5
_FIRST_HOLD_SECONDS = 0.0002


class WriteQueue:
    """Bounded, ordered per key, served by as many lanes as the writer has.

    All methods run on the event loop's thread except ``claim``, which the writer's thread calls.
    """

    def __init__(self, writer: Writer, limits: QueueLimits, observer: Observer, parsed: ParsedValues) -> None:
        """Serve ``writer``; ``parsed`` is kept in step with what commits."""
        self.writer = writer
        self.limits = limits
        self._observer = observer
        self._parsed = parsed
        self._waiting: dict[TicketClass, deque[Ticket]] = {kind: deque() for kind in TicketClass}
        self._bytes = 0
        self._free_lanes = writer.lanes
        self._in_flight: set[str] = set()
        self._everything_in_flight = 0
        self._claims = threading.Lock()
        self._hold_estimates: dict[str, float] = {}
        self._since_maintenance = 0
        self._last_was_maintenance = False
        self._sweeping: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._active: set[QueuedBatch] = set()
        self._closed = False
        self._idle = asyncio.Event()
        self._idle.set()
        self.on_commit: list[Callable[[Sequence[Ticket]], None]] = []

    def submit(self, ticket: Ticket) -> None:
        """Enter one ticket.

        Raises:
            OverloadedError: The queue is full in count or bytes; nothing was entered.
            ClosedError: The queue drains or is closed.
        """
        self.submit_all((ticket,))

    def submit_all(self, tickets: Sequence[Ticket]) -> None:
        """Enter tickets together and in order, or none of them."""
        if self._closed:
            raise ClosedError("the store is closing; nothing was written")
        size = sum(ticket.size_bytes for ticket in tickets)
        waiting = self.depth
        fits = waiting + len(tickets) <= self.limits.max_operations and self._bytes + size <= self.limits.max_bytes
        if not fits and (waiting or len(tickets) > self.limits.max_operations):
            raise OverloadedError(
                f"the write queue holds {waiting} operations ({self._bytes} bytes); nothing was written",
                retry_after_seconds=max(0.05, waiting * self._mean_hold()),
            )
        for ticket in tickets:
            self._waiting[ticket.kind].append(ticket)
        self._bytes += size
        self._idle.clear()
        if self._sweeping is None:
            self._sweeping = asyncio.get_running_loop().call_later(_SWEEP_SECONDS, self._sweep)
        self._pump()

    @property
    def depth(self) -> int:
        """Tickets that wait."""
        return sum(len(waiting) for waiting in self._waiting.values())

    @property
    def size_bytes(self) -> int:
        """Estimated size of the tickets that wait."""
        return self._bytes

    def oldest_age_seconds(self) -> float:
        """Age of the ticket that has waited longest; 0 when none waits."""
        heads = [waiting[0].submitted_at for waiting in self._waiting.values() if waiting]
        return time.monotonic() - min(heads) if heads else 0.0

    def _mean_hold(self) -> float:
        holds = self._hold_estimates.values()
        return sum(holds) / len(holds) if holds else _FIRST_HOLD_SECONDS

    def _pump(self) -> None:
        while self._free_lanes and (tickets := self._next_batch()):
            self._free_lanes -= 1
            self._set_flight(tickets)
            batch = QueuedBatch(self.writer.dialect, self.claim, tickets)
            self._active.add(batch)
            started = self.writer.start(batch)
            started.add_done_callback(lambda future, batch=batch: self._ended(batch, future))  # type: ignore[misc]
        self._observe_depth()

    def _observe_depth(self) -> None:
        self._observer.queue_depth(self.depth, self._bytes, self.oldest_age_seconds())

    def _next_batch(self) -> list[Ticket]:
        requests, maintenance = (self._waiting[kind] for kind in TicketClass)
        if maintenance and (not requests or self._maintenance_is_due(maintenance[0])):
            tickets = self._pick(maintenance, 1)
            if tickets:
                self._since_maintenance = 0
                self._last_was_maintenance = True
                return tickets
        tickets = self._pick(requests, self.limits.max_batch_operations)
        if tickets:
            self._since_maintenance += 1
            self._last_was_maintenance = False
        return tickets

    def _maintenance_is_due(self, head: Ticket) -> bool:
        if self._last_was_maintenance:
            return False
        waited = time.monotonic() - head.submitted_at
        limits = self.limits
        return self._since_maintenance >= limits.maintenance_after_batches or waited >= limits.maintenance_after_seconds

    def _pick(self, waiting: deque[Ticket], most: int) -> list[Ticket]:
        """Take from the front what no lane and no earlier waiting ticket stands in the way of."""
        picked: list[Ticket] = []
        skipped: list[Ticket] = []
        behind: set[str] = set()
        size, hold = 0, 0.0
        scans = _SCAN_FACTOR * most
        while waiting and len(picked) < most and scans:
            scans -= 1
            ticket = waiting[0]
            estimate = self._hold_estimates.get(ticket.name, _FIRST_HOLD_SECONDS)
            if picked and (
                ticket.alone
                or size + ticket.size_bytes > self.limits.max_batch_bytes
                or hold + estimate > self.limits.max_hold_seconds
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
            size, hold = size + ticket.size_bytes, hold + estimate
            self._bytes -= ticket.size_bytes
            if ticket.alone:
                break
        waiting.extendleft(reversed(skipped))
        return picked

    def _stands_behind(self, ticket: Ticket, behind: set[str]) -> bool:
        if self._everything_in_flight:
            return True
        if ticket.keys is None:
            return bool(self._in_flight or behind)
        return not (self._in_flight.isdisjoint(ticket.keys) and behind.isdisjoint(ticket.keys))

    def _set_flight(self, tickets: Iterable[Ticket]) -> None:
        for ticket in tickets:
            if ticket.keys is None:
                self._everything_in_flight += 1
            else:
                self._in_flight |= ticket.keys

    def _land(self, tickets: Sequence[Ticket], *, staying: Collection[int] = ()) -> None:
        """Free the keys of tickets that have ended; those that go round keep theirs, shared ones included."""
        for ticket in tickets:
            if id(ticket) in staying:
                continue
            if ticket.keys is None:
                self._everything_in_flight -= 1
            else:
                self._in_flight -= ticket.keys
        for ticket in tickets:
            if id(ticket) in staying and ticket.keys is not None:
                self._in_flight |= ticket.keys

    def claim(self, tickets: Sequence[Ticket], now: float) -> list[Ticket]:
        """Take the tickets that are still wanted; called when the writer holds its lock, on its thread."""
        alive = []
        with self._claims:
            for ticket in tickets:
                if ticket.claimed or ticket.future.done():
                    continue
                if ticket.deadline is not None and ticket.deadline <= now:
                    continue
                ticket.claimed = True
                alive.append(ticket)
        for ticket in alive:
            self._observer.queue_wait(now - ticket.submitted_at)
        return alive

    def _sweep(self) -> None:
        """Answer the tickets whose deadline passed before they were taken."""
        now = time.monotonic()
        late: list[Ticket] = []
        for waiting in self._waiting.values():
            if any(ticket.deadline is not None and ticket.deadline <= now for ticket in waiting):
                keep = [ticket for ticket in waiting if ticket.deadline is None or ticket.deadline > now]
                late += [ticket for ticket in waiting if ticket.deadline is not None and ticket.deadline <= now]
                waiting.clear()
                waiting.extend(keep)
        self._bytes -= sum(ticket.size_bytes for ticket in late)
        with self._claims:
            for batch in self._active:
                for ticket in batch.tickets:
                    if not ticket.claimed and ticket.deadline is not None and ticket.deadline <= now:
                        ticket.claimed = True
                        late.append(ticket)
        for ticket in late:
            self._settle(ticket, NotWritten(DeadlineExceededError()))
        self._observe_depth()
        self._sweeping = None
        if self.depth or self._active:
            self._sweeping = asyncio.get_running_loop().call_later(_SWEEP_SECONDS, self._sweep)
        self._note_idle()

    def _ended(self, batch: QueuedBatch, future: asyncio.Future[list[Outcome]]) -> None:
        self._free_lanes += 1
        self._active.discard(batch)
        try:
            outcomes = future.result()
        except BaseException as error:
            failure = BackendError(f"the writer failed: {type(error).__name__}")
            failure.__cause__ = error
            outcomes = [Unknown() if batch.taken else NotWritten(failure)] * len(batch.taken or batch.tickets)
            batch.taken = batch.taken or list(batch.tickets)
        again = self._settle_batch(batch, outcomes)
        taken = set(map(id, batch.taken))
        for ticket in batch.tickets:
            if id(ticket) not in taken and not ticket.future.done():
                self._settle(ticket, NotWritten(DeadlineExceededError()))
        self._land(batch.tickets, staying=again)
        self._pump()
        self._note_idle()

    def _settle_batch(self, batch: QueuedBatch, outcomes: Sequence[Outcome]) -> set[int]:
        """Settle what is final; return the ids of the tickets that go round again (their keys stay in flight)."""
        self._observer.batch(len(batch.taken))
        self._learn_holds(batch)
        busy = [
            ticket
            for ticket, outcome in zip(batch.taken, outcomes, strict=True)
            if isinstance(outcome, NotWritten) and outcome.error.code == "backend_busy" and self._may_wait(ticket)
        ]
        reparse: list[tuple[Ticket, NeedsParse | Later]] = []
        written: list[Ticket] = []
        going_round = set(map(id, busy))
        for ticket, outcome in zip(batch.taken, outcomes, strict=True):
            if id(ticket) in going_round:
                continue
            if isinstance(outcome, Written):
                if isinstance(outcome.value, (NeedsParse, Later)):
                    reparse.append((ticket, outcome.value))
                    going_round.add(id(ticket))
                    continue
                if isinstance(outcome.value, Reply):
                    outcome.value.after_commit()
                    outcome = Written(outcome.value.value)
                written.append(ticket)
            self._settle(ticket, outcome)
        if written:
            for listener in self.on_commit:
                listener(written)
        if busy:
            self._spawn(self._split(busy))
        if reparse:
            self._spawn(self._parse(reparse))
        return going_round

    def _learn_holds(self, batch: QueuedBatch) -> None:
        if not batch.taken:
            return
        each = (time.monotonic() - batch.began_at) / len(batch.taken)
        for name in {ticket.name for ticket in batch.taken}:
            before = self._hold_estimates.get(name, each)
            self._hold_estimates[name] = 0.8 * before + 0.2 * each

    def _settle(self, ticket: Ticket, outcome: Outcome) -> None:
        name = {Written: "written", NotWritten: "not_written"}.get(type(outcome), "unknown")
        self._observer.operation(ticket.name, name)
        if not ticket.future.done():
            ticket.future.set_result(outcome)

    def _note_idle(self) -> None:
        if not self.depth and not self._active and not self._tasks:
            self._idle.set()

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        task.add_done_callback(lambda _: self._note_idle())

    def _go_round(self, tickets: Sequence[Ticket]) -> None:
        """Put tickets back in front, in their order."""
        for ticket in tickets:
            ticket.claimed = False
        self._land(tickets)
        for kind in TicketClass:
            self._waiting[kind].extendleft(reversed([ticket for ticket in tickets if ticket.kind is kind]))
        self._bytes += sum(ticket.size_bytes for ticket in tickets)
        self._pump()

    async def _parse(self, wanted: Sequence[tuple[Ticket, NeedsParse | Later]]) -> None:
        """Parse outside the transaction; the tickets of those keys come first in the next batch."""
        needs = {need.progression_id: need for _, need in wanted if isinstance(need, NeedsParse)}
        for found in needs.values():
            await self._parsed.learn(found, run_pure)
        for ticket, need in wanted:
            if isinstance(need, NeedsParse):
                ticket.parses += 1
                if ticket.parses >= _MAX_PARSES:
                    # Other processes append faster than we parse; under the lock nobody can.
                    self._parsed.insist(need.progression_id)
        self._go_round([ticket for ticket, _ in wanted])

    def _may_wait(self, ticket: Ticket) -> bool:
        """On PostgreSQL a lane gives way early; the ticket may wait for its rows until its deadline."""
        if not self.writer.dialect.capabilities.concurrent_writers or self._closed:
            return False
        now = time.monotonic()
        if ticket.busy_until is None:
            ticket.busy_until = now + 5.0
        return now < min(ticket.busy_until, ticket.deadline or ticket.busy_until)

    async def _split(self, tickets: Sequence[Ticket]) -> None:
        """Of a batch that gave way, let the free tickets run together and the locked ones alone."""
        ids = sorted({progression for ticket in tickets for progression in ticket.progressions})
        locked: set[str] = set()
        if len(tickets) > 1:
            probe = Probe(self.writer, ids)
            await self.writer.start(probe)
            locked = probe.locked
        else:
            await asyncio.sleep(0.01)
        for ticket in tickets:
            ticket.alone = len(tickets) == 1 or not locked.isdisjoint(ticket.progressions)
        self._go_round(tickets)

    async def drain(self, budget_seconds: float) -> int:
        """Refuse new tickets, run the waiting ones within the budget; return how many were refused."""
        self._closed = True
        try:
            async with asyncio.timeout(budget_seconds):
                await self._idle.wait()
        except TimeoutError:
            pass
        left = [ticket for waiting in self._waiting.values() for ticket in waiting]
        for waiting in self._waiting.values():
            waiting.clear()
        self._bytes = 0
        for ticket in left:
            self._settle(ticket, NotWritten(ClosedError("the store closed before the write was started")))
        if self._sweeping is not None:
            self._sweeping.cancel()
            self._sweeping = None
        return len(left)
