"""Group commit: take what waits when a lane becomes free, fold it, run it in one transaction, settle the tickets."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import logging
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from lionstate.engine import NotWritten, Observer, Outcome, Reply, Unknown, Writer, Written
from lionstate.engine.offload import run_pure
from lionstate.errors import (
    BackendBusyError,
    BackendError,
    ClosedError,
    DeadlineExceededError,
    OverloadedError,
    StateError,
)
from lionstate.progression.parsed import Later, NeedsParse, ParsedValues
from lionstate.queue.batch import Probe, QueuedBatch
from lionstate.queue.ending import EndedBatches, refusal, safely
from lionstate.queue.holds import HoldModel
from lionstate.queue.ticket import QueueLimits, Ticket, TicketClass
from lionstate.queue.turns import Turns
from lionstate.queue.waiting import WaitingRoom

__all__ = ["WriteQueue"]

_log = logging.getLogger(__name__)
_SWEEP_SECONDS = 0.05
_PARSES_OUTSIDE = 5
_MAX_PARSES = 20
_ALONE_PAUSE = 0.01
_LEAST_RETRY_AFTER = 0.05


class WriteQueue:
    """Bounded, ordered per key, served by as many lanes as the writer has.

    All methods run on the event loop's thread except ``claim``, which the writer's thread calls.
    """

    def __init__(self, writer: Writer, limits: QueueLimits, observer: Observer, parsed: ParsedValues) -> None:
        """Serve ``writer``; ``parsed`` is kept in step with what commits."""
        self.writer = writer
        # Where writers run side by side, a hold stands in nobody's way but on the same rows.
        self.limits = dataclasses.replace(limits, max_hold_seconds=limits.max_hold_seconds * writer.lanes)
        self._observer = observer
        self._parsed = parsed
        self._room = WaitingRoom(self.limits)
        self._free_lanes = writer.lanes
        self._claims = threading.Lock()
        self._holds = HoldModel()
        self._turns = Turns(self._room, self.limits, self._holds)
        self._ended_batches = EndedBatches(observer, self._holds)
        self._gathering = False
        self._sweeping: asyncio.TimerHandle | None = None
        self._joining: asyncio.TimerHandle | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._active: set[QueuedBatch] = set()
        self._closed = False
        self._drained = False
        # Set once nothing waits or runs any more and nothing more can come.
        self._idle = asyncio.Event()
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
        if not tickets:
            return
        if self._sweeping is None:
            self._sweep_later()
        if len(tickets) == 1 and self._is_still() and self._turns.take_alone(tickets[0]):
            self._start(tickets)
            return
        if not self._has_room(tickets):
            # Callers that went away leave their tickets behind until the next sweep.
            self._room.leave(lambda ticket: ticket.future.done())
            if not self._has_room(tickets):
                raise OverloadedError(
                    f"the write queue holds {self.depth} operations ({self.size_bytes} bytes); nothing was written",
                    retry_after_seconds=max(_LEAST_RETRY_AFTER, self.depth * self._holds.mean()),
                )
        self._room.enter(tickets)
        self._pump()

    def _has_room(self, tickets: Sequence[Ticket]) -> bool:
        limits, depth, count = self.limits, self._room.depth, len(tickets)
        if count == 1 and not depth:
            # One ticket that is larger than the bound must be able to run at all.
            return limits.max_operations > 0
        size = self._room.size_bytes + sum(ticket.size_bytes for ticket in tickets)
        return depth + count <= limits.max_operations and size <= limits.max_bytes

    @property
    def depth(self) -> int:
        """Tickets that wait."""
        return self._room.depth

    @property
    def size_bytes(self) -> int:
        """Estimated size of the tickets that wait."""
        return self._room.size_bytes

    def oldest_age_seconds(self) -> float:
        """Age of the ticket that has waited longest; 0 when none waits."""
        return self._room.oldest_age_seconds()

    def _is_still(self) -> bool:
        """Whether nothing waits, runs or goes round: what comes now has nothing to be weighed against."""
        return not (self._active or self._room.depth or self._tasks or self._gathering)

    def _pump(self) -> None:
        while not self._gathering and self._another_lane_pays() and (tickets := self._turns.next_batch()):
            self._start(tickets)

    def _start(self, tickets: Sequence[Ticket]) -> None:
        self._free_lanes -= 1
        self._room.fly(tickets)
        batch = QueuedBatch(self.writer.dialect, self.claim, tickets)
        self._active.add(batch)
        batch.beside = len(self._active)
        ended = functools.partial(self._ended, batch)
        try:
            self.writer.start(batch, ended)
        except StateError as error:
            batch.take()
            outcomes = [NotWritten(error)] * len(batch.taken)
            asyncio.get_running_loop().call_soon(ended, outcomes, None)

    def _another_lane_pays(self) -> bool:
        """Whether a batch may start now.

        Beside running ones only when as much waits as flies, or has waited for longer than two transactions take: a
        few calls that start at once end at once as well and never join the others again, and many small transactions
        were seen to do a third of what one large one does.
        """
        if not self._free_lanes or not self._room.depth:
            return False
        if not self._active or self._room.depth >= sum(len(batch.tickets) for batch in self._active):
            return True
        wait = min(2 * self._holds.fixed, _SWEEP_SECONDS) - self._room.oldest_age_seconds()
        if wait <= 0 or self._room.head(TicketClass.MAINTENANCE) is not None:
            return True
        if self._joining is None:
            self._joining = asyncio.get_running_loop().call_later(wait, self._joined)
        return False

    def _joined(self) -> None:
        self._joining = None
        self._pump()

    def claim(self, tickets: Sequence[Ticket], now: float) -> list[Ticket]:
        """Take the tickets that are still wanted; called when the writer holds its lock, on its thread."""
        alive = []
        with self._claims:
            for ticket in tickets:
                if ticket.claimed or ticket.future.done() or ticket.is_late(now):
                    continue
                ticket.claimed = True
                alive.append(ticket)
        return alive

    def _take_back(self, unwanted: Callable[[Ticket], bool]) -> list[Ticket]:
        """Take tickets out of batches that have not begun; the writer's thread may be claiming them meanwhile."""
        with self._claims:
            found = [
                ticket for batch in self._active for ticket in batch.tickets if not ticket.claimed and unwanted(ticket)
            ]
            for ticket in found:
                ticket.claimed = True
        return found

    def _sweep(self) -> None:
        """Answer the tickets whose deadline passed before they were taken; forget those whose caller is gone."""
        now = time.monotonic()
        late = self._room.leave(lambda ticket: ticket.future.done() or ticket.is_late(now))
        late += self._take_back(lambda ticket: ticket.is_late(now))
        for ticket in late:
            self._settle(ticket, NotWritten(DeadlineExceededError()))
        self._sweeping = None
        self._ended_batches.tell()
        # Here and not at every change, which would cost each operation more than it tells.
        self._observer.queue_depth(self.depth, self.size_bytes, self.oldest_age_seconds())
        # What goes round runs again.
        if self.depth or self._active or self._tasks:
            self._sweep_later()
        self._pump()
        self._note_idle()

    def _sweep_later(self) -> None:
        self._sweeping = asyncio.get_running_loop().call_later(_SWEEP_SECONDS, self._sweep)

    def _ended(self, batch: QueuedBatch, outcomes: Sequence[Outcome] | None, error: BaseException | None) -> None:
        self._free_lanes += 1
        self._active.discard(batch)
        going_round: set[int] = set()
        if outcomes is None:
            # Writers turn errors into outcomes; this is the end of the loop or of the process in the middle of one.
            _log.debug("a writer ended without outcomes", exc_info=error)
            outcomes = [Unknown()] * len(batch.taken)
        try:
            going_round = self._settle_batch(batch, outcomes)
        finally:
            landing = batch.tickets
            if going_round:
                landing = [ticket for ticket in landing if id(ticket) not in going_round]
            for ticket in landing:
                if not ticket.future.done():
                    # What was taken and has no outcome by now met a defect of ours: nothing is known of it.
                    was_taken = any(taken is ticket for taken in batch.taken)
                    self._settle(ticket, Unknown() if was_taken else NotWritten(DeadlineExceededError()))
            self._room.land(landing)
            if len(batch.tickets) > 1:
                self._gather()
            elif self._room.depth:
                self._pump()
            self._note_idle()

    def _gather(self) -> None:
        """Start the next batch one turn of the loop later, when the callers just answered have asked again.

        Without it their next calls always miss the batch that starts now, and two halves alternate for ever.
        """
        if not self._gathering:
            self._gathering = True
            asyncio.get_running_loop().call_soon(self._gathered)

    def _gathered(self) -> None:
        self._gathering = False
        self._pump()
        self._note_idle()

    def _settle_batch(self, batch: QueuedBatch, outcomes: Sequence[Outcome]) -> set[int]:
        """Settle what is final; return the ids of the tickets that go round again (their keys stay in flight)."""
        busy: list[Ticket] = []
        reparse: list[tuple[Ticket, NeedsParse | Later]] = []
        written: list[Ticket] = []
        for ticket, outcome in zip(batch.taken, outcomes, strict=True):
            if isinstance(outcome, Written):
                value = outcome.value
                if isinstance(value, (NeedsParse, Later)):
                    reparse.append((ticket, value))
                    continue
                written.append(ticket)
                if isinstance(value, Reply):
                    if value.after_commit is not None:
                        safely(value.after_commit)
                    outcome = Written(value.value)
                if not ticket.future.done():
                    ticket.future.set_result(outcome)
            elif isinstance(outcome, NotWritten) and outcome.error.code == "backend_busy" and self._may_wait(ticket):
                busy.append(ticket)
            else:
                self._settle(ticket, outcome)
        self._ended_batches.note(batch, written)
        if self._drained:
            self._ended_batches.tell()
        if written:
            for listener in self.on_commit:
                safely(listener, written)
        if not busy and not reparse:
            return set()
        if busy:
            self._spawn(busy, self._split(busy))
        if reparse:
            self._spawn([ticket for ticket, _ in reparse], self._parse(reparse))
        return {id(ticket) for ticket in (*busy, *(ticket for ticket, _ in reparse))}

    def _settle(self, ticket: Ticket, outcome: NotWritten | Unknown) -> None:
        self._observer.operation(ticket.name, refusal(outcome.error) if isinstance(outcome, NotWritten) else "unknown")
        if not ticket.future.done():
            ticket.future.set_result(outcome)

    def _note_idle(self) -> None:
        if self._closed and not self.depth and not self._active and not self._tasks and not self._gathering:
            self._idle.set()

    def _spawn(self, tickets: Sequence[Ticket], work: Coroutine[Any, Any, None]) -> None:
        """Run what prepares tickets for their next round; when it fails they are answered, not lost."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)

        def done(task: asyncio.Task[None]) -> None:
            self._tasks.discard(task)
            error = None if task.cancelled() else task.exception()
            if error is not None or task.cancelled():
                failure = BackendError(f"the write could not be prepared: {type(error).__name__}")
                failure.__cause__ = error
                self._give_up(tickets, failure)
            self._note_idle()

        task.add_done_callback(done)

    def _give_up(self, tickets: Sequence[Ticket], error: StateError) -> None:
        for ticket in tickets:
            self._settle(ticket, NotWritten(error))
        self._room.land(tickets)
        self._pump()

    def _go_round(self, tickets: Sequence[Ticket]) -> None:
        """Put tickets back in front, in their order."""
        if self._drained:
            self._give_up(tickets, ClosedError("the store closed before the write was started"))
            return
        for ticket in tickets:
            ticket.claimed = False
        self._room.land(tickets)
        self._room.enter_in_front(tickets)
        self._pump()

    async def _parse(self, wanted: Sequence[tuple[Ticket, NeedsParse | Later]]) -> None:
        """Parse outside the transaction; the tickets of those keys come first in the next batch."""
        for need in {need.progression_id: need for _, need in wanted if isinstance(need, NeedsParse)}.values():
            await self._parsed.learn(need, run_pure)
        again: list[Ticket] = []
        never: list[Ticket] = []
        for ticket, reason in wanted:
            if isinstance(reason, NeedsParse):
                ticket.parses += 1
                if ticket.parses >= _PARSES_OUTSIDE:
                    # Other processes append faster than we parse; under the lock nobody can.
                    self._parsed.insist(reason.progression_id)
            (never if ticket.parses > _MAX_PARSES else again).append(ticket)
        message = "the stored collection changed each time it was parsed; nothing was written"
        self._give_up(never, BackendBusyError(message))
        self._go_round(again)

    def _may_wait(self, ticket: Ticket) -> bool:
        """On PostgreSQL a lane gives way early; the ticket may wait for its rows until its deadline."""
        if not self.writer.dialect.capabilities.concurrent_writers or self._closed or ticket.future.done():
            return False
        now = time.monotonic()
        if ticket.busy_until is None:
            ticket.busy_until = now + self.limits.busy_wait_seconds
        return now < ticket.busy_until and not ticket.is_late(now)

    async def _split(self, tickets: Sequence[Ticket]) -> None:
        """Of a batch that gave way, let the free tickets run together and the locked ones alone."""
        locked: set[str] = set()
        if len(tickets) > 1:
            probe = Probe(self.writer.dialect, sorted({found for ticket in tickets for found in ticket.progressions}))
            await self.writer.run(probe)
            locked = probe.locked
        else:
            await asyncio.sleep(_ALONE_PAUSE)
        for ticket in tickets:
            ticket.rounds += 1
            # When no progression is locked a second time it is some other row: then each is tried on its own.
            ticket.alone = not locked.isdisjoint(ticket.progressions) or (not locked and ticket.rounds > 1)
        self._go_round(tickets)

    def shut(self) -> None:
        """Refuse new tickets from now on."""
        self._closed = True

    async def drain(self, budget_seconds: float) -> int:
        """Refuse new tickets, run the waiting ones within the budget; return how many were refused."""
        self.shut()
        self._note_idle()
        try:
            async with asyncio.timeout(budget_seconds):
                await self._idle.wait()
        except TimeoutError:
            pass
        self._drained = True
        self._ended_batches.tell()
        left = [ticket for ticket in self._room.leave(lambda _: True) if not ticket.future.done()]
        # A batch that still waits for its lock has not begun; without its tickets the writer gives it up.
        left += self._take_back(lambda ticket: not ticket.future.done())
        for ticket in left:
            self._settle(ticket, NotWritten(ClosedError("the store closed before the write was started")))
        for timer in (self._sweeping, self._joining):
            if timer is not None:
                timer.cancel()
        self._sweeping = self._joining = None
        return len(left)
