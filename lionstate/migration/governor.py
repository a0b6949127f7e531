"""What a service remembers about its own pace and about the load of its store; what it may do now."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from sqlalchemy import Connection

from lionstate.audit import record_event
from lionstate.codes import PauseCode, ThrottleSignal
from lionstate.errors import StateError
from lionstate.migration import control
from lionstate.migration.control import AUTOMATIC_ACTOR
from lionstate.migration.knobs import Knobs
from lionstate.migration.pace import CheckpointDues, ChunkSize, rest_seconds
from lionstate.migration.port import MigrationStore, bound
from lionstate.migration.report import MigrationStep, Stage, StageOutcome, StopReason, ThrottleStatus
from lionstate.migration.throttle import Allowance, ErrorBudget, SignalStatus, Starvation, Throttle

__all__ = ["Governor"]

_sleep = asyncio.sleep
# Signals of this process cost microseconds, those of a server a query.
_LOOK_SECONDS = 0.1
_ASK_SECONDS = 1.0
# Of the loop: to wake, to run a task that was made, to enter its ticket.
_TURNS_TO_A_TICKET = 3
_MOVES = frozenset((StageOutcome.COPIED, StageOutcome.REMOVED))


def record_starved(conn: Connection, /, *, details: Mapping[str, object], now: float) -> None:
    """Write the event of a starved lane. Contract: design decision 25."""
    record_event(conn, "progression_migrate.starved", details=details, actor=AUTOMATIC_ACTOR, now=now)


class Governor:
    """Decides how much of the lock maintenance takes, and whether any; all of it can be lost without harm.

    Attributes:
        chunks: The size of chunks that copy.
        removals: The size of chunks that remove rows.
        errors: Those of this service.
        starvation: Whether it has been throttled for too long.
    """

    def __init__(self, store: MigrationStore, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Know nothing."""
        self._store = store
        self.clock = clock
        concurrent_writers = store.dialect.capabilities.concurrent_writers
        self.chunks = ChunkSize(concurrent_writers=concurrent_writers)
        self.removals = ChunkSize(concurrent_writers=concurrent_writers)
        self.errors = ErrorBudget()
        self.starvation = Starvation()
        self._throttle = Throttle()
        self._allowance = Allowance()
        self._hold: float | None = None
        self._dues = CheckpointDues()
        self._free_at = 0.0
        self._look_at = self._ask_at = float("-inf")
        self._server: dict[ThrottleSignal, float | None] = {}
        self._position: tuple[float, int] | None = None

    async def turn(self) -> None:
        """Wait until maintenance may hold the lock again; callers that wake at the same moment go first.

        Timers of a loop are due by the millisecond, so as many do as a chunk is long.
        """
        wait = self._free_at - self.clock()
        if wait > 0:
            await _sleep(wait)
            for _ in range(_TURNS_TO_A_TICKET):
                await asyncio.sleep(0)
        # What others have held on behalf of maintenance since says nothing about the next transaction.
        self._store.load.take_hold()

    def ended(self, result: object, knobs: Knobs) -> None:
        """A transaction of maintenance has ended: rest for as long as its hold asks for, and the last checkpoint."""
        load = self._store.load
        self._hold = load.take_hold()
        if (checkpoint := load.take_checkpoint()) is not None:
            self._dues.note(checkpoint)
        if self._hold is not None:
            is_alone = not load.others_write
            rest = rest_seconds(self._hold, knobs, is_alone=is_alone)
            self._free_at = self.clock() + (rest if is_alone else rest + self._dues.pay(rest))
        if self._throttle.tripped:
            self._allowance.spend(result.count if isinstance(result, Stage) and result.outcome in _MOVES else 0)

    def items(self, size: ChunkSize, knobs: Knobs) -> int:
        """Elements of the next chunk of this kind."""
        most = size.items(knobs)
        return max(1, min(most, self._allowance.left(self.clock(), knobs))) if self._throttle.tripped else most

    async def bounds(self, knobs: Knobs) -> tuple[int, int]:
        """The fewest and the most elements that a chunk may have now."""
        await self._look(knobs)
        least, most = ChunkSize.bounds(knobs)
        # The operator's minimum is given out by the minute, so a chunk is as small as what is left of it.
        return (1 if self._throttle.tripped else least), most

    def learn(self, size: ChunkSize, taken: int, knobs: Knobs) -> None:
        """Fit a size to the hold of the transaction that has just ended and took so many elements."""
        if self._hold is not None and taken:
            size.learn(taken, self._hold, knobs)

    async def hindered(self, knobs: Knobs) -> bool:
        """Whether migration must wait now: a signal is tripped, or the lane has made too many errors.

        The operator's minimum goes on, except on a disk that is about to be full.

        Contract: design decisions 24, 25.
        """
        await self._look(knobs)
        now = self.clock()
        if self.errors.is_spent(now, knobs):
            return True
        tripped = self._throttle.tripped
        if not tripped:
            self.starvation.progressed()
            return False
        return ThrottleSignal.FREE_DISK in tripped or not self._allowance.left(now, knobs)

    def note_failure(self, error: Exception) -> None:
        """A step failed. What is the store's (locked, full, away) or the caller's is no error of the lane."""
        if not isinstance(error, StateError) or error.code == "backend":
            self.errors.note(self.clock())

    async def settle(self, step: MigrationStep, knobs: Knobs) -> MigrationStep:
        """Write down what a step leads to: the event of a starved lane, the pause of one out of its error budget.

        Contract: design decisions 25, 26.
        """
        now = self.clock()
        if step.did_work:
            self.starvation.progressed()
        elif step.stop_reason is StopReason.THROTTLED:
            self.starvation.refused(now)
        if self.starvation.is_news(now, knobs):
            details = {
                "waited_seconds": self.starvation.waited_seconds(now),
                "signals": sorted(self._throttle.tripped),
            }
            if await self._write("starved", bound(record_starved, details=details, now=time.time())):
                self.starvation.told()
        if self.errors.is_spent(now, knobs):
            count = self.errors.count(now, knobs.error_window_seconds)
            script = bound(
                control.pause,
                actor=AUTOMATIC_ACTOR,
                reason=f"error budget: {count} errors within {knobs.error_window_seconds:g} s",
                now=time.time(),
                code=PauseCode.ERROR_BUDGET,
            )
            if await self._write("pause", script):
                # Whoever resumes has seen them.
                self.errors.clear()
                return replace(step, stop_reason=StopReason.PAUSED)
        return step

    async def _write(self, name: str, script: Callable[[Connection], None]) -> bool:
        """Whether it was written; a store that cannot take it now is asked again after the next step."""
        try:
            await self._store.maintain(f"progression_migrate.{name}", script)
        except StateError:
            return False
        return True

    async def report(self, knobs: Knobs) -> ThrottleStatus:
        """Look, and tell."""
        await self._look(knobs)
        now = self.clock()
        return ThrottleStatus(
            throttled=bool(self._throttle.tripped),
            signals=tuple(map(self._explained, self._throttle.signals())),
            waited_seconds=self.starvation.waited_seconds(now),
            starved=self.starvation.is_starved(now, knobs),
            throttled_seconds={signal.value: seconds for signal, seconds in self._throttle.seconds.items()},
            chunk_items=self.chunks.items(knobs),
            errors=self.errors.count(now, knobs.error_window_seconds),
        )

    def _explained(self, one: SignalStatus) -> SignalStatus:
        """A log that no checkpoint can move is not the readers' fault."""
        fails = one.tripped and one.signal == ThrottleSignal.WAL_PINNED and self._store.load.checkpoint_fails
        return replace(one, reason="checkpoint_fails") if fails else one

    async def _look(self, knobs: Knobs) -> None:
        now = self.clock()
        if now < self._look_at:
            return
        self._look_at = now + _LOOK_SECONDS
        readings = self._store.load.readings()
        readings[ThrottleSignal.PARITY] = self.errors.per_minute(now)
        if self._store.dialect.has_server:
            if now >= self._ask_at:
                self._ask_at = now + _ASK_SECONDS
                self._server = await self._ask()
            readings |= self._server
        self._throttle.observe(readings, knobs, now)

    async def _ask(self) -> dict[ThrottleSignal, float | None]:
        """What the server says; what it does not say is unknown, which trips."""
        try:
            found = await self._store.read(self._store.dialect.server_load)
        except StateError:
            self._position = None
            return {ThrottleSignal.LONG_TRANSACTION: None, ThrottleSignal.WAL_RATE: None}
        now, before = self.clock(), self._position
        self._position = (now, found.wal_position)
        told: dict[ThrottleSignal, float | None] = {ThrottleSignal.LONG_TRANSACTION: found.long_transaction_seconds}
        if before is not None:
            told[ThrottleSignal.WAL_RATE] = max(0, found.wal_position - before[1]) / max(1e-3, now - before[0])
        return told
