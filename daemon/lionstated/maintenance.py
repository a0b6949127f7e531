"""When migration ticks: enabled, not paused, one bounded step a tick; says why it waits and feeds the gauges."""

from __future__ import annotations

import functools
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import ParamSpec, TypeVar

import anyio

from lionstate.errors import StateError
from lionstate.migration import (
    MigrationStatus,
    MigrationStep,
    Ownership,
    ProgressionMigrationService,
    ScrubSlice,
    ThrottleStatus,
)
from lionstate.migration.budget import CHUNK_BYTES, CHUNK_ITEMS

from . import logs
from .board import Standing
from .metrics import Metrics
from .scrubbing import ScrubPace
from .settings import Maintenance

__all__ = ["MaintenanceTimer"]

P = ParamSpec("P")
R = TypeVar("R")

_GAUGE_SECONDS = 2.0
_VALID_LOOKS = 5
_MAX_STEP_SECONDS = 1.0
_PROOF_SECONDS = 0.25


class MaintenanceTimer:
    """Steps every interval while maintenance is enabled, and keeps the gauges fresh in any case.

    What the operator has persisted (``enable``, ``disable``) goes before the settings; a pause goes before both.
    """

    def __init__(self, service: ProgressionMigrationService, settings: Maintenance, metrics: Metrics) -> None:
        """Take the service; nothing runs before ``run``."""
        self._service = service
        self._settings = settings
        self._metrics = metrics
        self._gauges_due = 0.0
        self.summary = "serving"
        self.standing: Standing | None = None
        self._throttled_by: list[str] = []
        self._starved = False
        self._owner: str | None = None
        self._elsewhere = False
        self._ticking = anyio.Lock()
        self._ended = False
        self._pace = ScrubPace()
        service.shadow.ratio, service.automatic = settings.shadow_read_ratio, settings.enabled
        metrics.is_stale = lambda: self.standing is None or self.standing.is_stale(time.time())
        self._log = logs.get_logger()

    def reload(self, settings: Maintenance) -> None:
        """Take new settings; they hold from the next tick on."""
        self._settings = settings
        self._service.defaults = settings.knobs
        self._service.shadow.ratio, self._service.automatic = settings.shadow_read_ratio, settings.enabled

    async def run(self, finish: anyio.Event, healthy: Callable[[], None]) -> None:
        """Tick until ``finish`` is set; a tick that fails is raised to be retried by the caller."""
        while not finish.is_set():
            async with self._ticking:
                if not self._ended:
                    await self._tick()
            healthy()
            with anyio.move_on_after(self._settings.interval_seconds):
                await finish.wait()

    async def end(self, seconds: float) -> None:
        """Tick no more, and give the lease back while the queue still takes that; a step under way ends first."""
        self._ended = True
        with anyio.move_on_after(seconds), suppress(StateError):
            async with self._ticking:
                await self._service.disown()

    async def step(
        self,
        *,
        progression_id: str | None = None,
        max_items: int = CHUNK_ITEMS,
        max_bytes: int = CHUNK_BYTES,
        max_seconds: float = _MAX_STEP_SECONDS,
    ) -> MigrationStep:
        """Run one step, whoever asks for it, and count what it did."""
        return await self.counted(self._service.step)(
            progression_id=progression_id, max_items=max_items, max_bytes=max_bytes, max_seconds=max_seconds
        )

    def counted(self, verb: Callable[P, Awaitable[MigrationStep]]) -> Callable[P, Awaitable[MigrationStep]]:
        """A verb whose step the metrics and the log show."""

        @functools.wraps(verb)
        async def call(*args: P.args, **kwargs: P.kwargs) -> MigrationStep:
            step = await verb(*args, **kwargs)
            self._metrics.migration_step(step)
            if step.did_work:
                self._tell(step)
                self._gauges_due = min(self._gauges_due, time.monotonic() + _GAUGE_SECONDS)
            return step

        return call

    async def scrub(
        self,
        *,
        progression_id: str | None = None,
        max_items: int = 100_000,
        max_seconds: float = _MAX_STEP_SECONDS,
        may_begin: bool = True,
        restart: bool = False,
    ) -> ScrubSlice:
        """Scrub one slice, whoever asks for it, and count what it compared."""
        found = await self._service.scrub(
            progression_id=progression_id,
            max_items=max_items,
            max_seconds=max_seconds,
            may_begin=may_begin,
            restart=restart,
        )
        self._tell_scrub(found)
        return found

    def _tell_scrub(self, found: ScrubSlice) -> None:
        self._metrics.scrub_slice(found)
        if found.findings or found.pass_ended:
            self._log.info(
                "scrub",
                checked=found.checked,
                findings=dict(found.findings),
                not_blocked=found.not_blocked,
                pass_ended=found.pass_ended,
                seconds=round(found.seconds, 3),
            )
            self._gauges_due = 0.0

    async def _prove(self) -> None:
        """Compare what reads have shown, and scrub as much as the pace allows; the pass is the migrating process's."""
        self._metrics.shadow_reads(await self._service.shadow.compare(max_seconds=_PROOF_SECONDS))
        rows = self._pace.allowed(self._settings)
        if rows:
            may_begin = self._pace.may_begin(self._settings)
            if self._elsewhere:
                found = await self._service.scrub_asked(max_items=rows, max_seconds=_PROOF_SECONDS)
                self._tell_scrub(found)
            else:
                found = await self.scrub(max_items=rows, max_seconds=_PROOF_SECONDS, may_begin=may_begin)
            self._pace.spend(sum(found.items.values()))

    def told(self, verb: Callable[P, Awaitable[R]]) -> Callable[P, Awaitable[R]]:
        """A verb whose effect the gauges show when it is answered."""

        @functools.wraps(verb)
        async def call(*args: P.args, **kwargs: P.kwargs) -> R:
            found = await verb(*args, **kwargs)
            await self._refresh_gauges()
            return found

        return call

    async def _tick(self) -> None:
        settings = self._settings
        # Before the work too: it may take long, or fail for as long as another program holds the lock.
        await self._refresh_due_gauges()
        if await self._owns():
            await self.step(
                max_items=settings.max_items * settings.chunks_per_tick,
                max_bytes=CHUNK_BYTES * settings.chunks_per_tick,
            )
        await self._prove()
        await self._refresh_due_gauges()

    async def _owns(self) -> bool:
        """Whether this process is the one that migrates; a pause keeps the lease, `stop` gives it back."""
        enabled = self._is_enabled(await self._service.maintenance_enabled())
        pause = await self._service.paused()
        if not enabled or (pause is not None and pause.stopped):
            await self._service.disown()
            return False
        settings = self._settings
        # A longer interval must not let it lapse between two ticks.
        found = await self._service.own(max(settings.lease_seconds, 2 * settings.interval_seconds + _MAX_STEP_SECONDS))
        self._elsewhere = _is_elsewhere(found)
        if found.owner != self._owner:
            self._owner = found.owner
            self._gauges_due = 0.0
            self._log.info("migration_owner", owner=found.owner, is_self=found.is_self, epoch=found.epoch)
        return found.is_self

    def _valid_seconds(self) -> float:
        """How old the gauges may be: several of the intervals at which they are read."""
        return _VALID_LOOKS * max(_GAUGE_SECONDS, self._settings.interval_seconds) + _MAX_STEP_SECONDS

    def _is_enabled(self, persisted: bool | None) -> bool:
        return self._settings.enabled if persisted is None else persisted

    def _tell(self, step: MigrationStep) -> None:
        self._log.info(
            "migration_step",
            stop_reason=step.stop_reason.value,
            admitted=step.admitted,
            items=step.items,
            chunks=step.chunks,
            cut_over=step.cut_over,
            blocked=dict(step.blocked),
            seconds=round(step.seconds, 3),
            cutover_lock_seconds=round(step.cutover_lock_seconds, 6),
        )

    def _tell_throttle(self, throttle: ThrottleStatus) -> None:
        """Log what changed: the signals that migration waits for, and whether it starves."""
        signals = sorted(one.signal for one in throttle.tripped)
        if signals != self._throttled_by:
            self._log.info("migration_throttled" if signals else "migration_goes_on", signals=signals)
            self._throttled_by = signals
        if throttle.starved and not self._starved:
            self._log.warning("migration_starved", signals=signals, waited_seconds=throttle.waited_seconds)
        self._starved = throttle.starved

    async def _refresh_due_gauges(self) -> None:
        if time.monotonic() >= self._gauges_due:
            await self._refresh_gauges()

    async def _refresh_gauges(self) -> None:
        status = await self._service.status(limit=0)
        self._metrics.migration_status(status)
        self._pace.learn(status)
        enabled = self._is_enabled(status.maintenance_enabled)
        reasons = [] if enabled else ["disabled"]
        if status.pause is not None:
            reasons.append("stopped" if status.pause.stopped else status.pause.code)
        if status.throttle.throttled:
            reasons.append("pressure")
        self._tell_throttle(status.throttle)
        self._elsewhere = _is_elsewhere(status.owner)
        if enabled and self._elsewhere:
            reasons.append("owner")
        self._metrics.set_paused(reasons)
        self.summary = _summary(status, reasons)
        self.standing = Standing(status, enabled, tuple(reasons), self._valid_seconds())
        self._metrics.owner.set(status.owner.is_self)
        self._gauges_due = time.monotonic() + _GAUGE_SECONDS


def _is_elsewhere(found: Ownership) -> bool:
    """Whether another process migrates the store."""
    return found.owner is not None and not found.is_self


def _summary(status: MigrationStatus, reasons: Sequence[str]) -> str:
    """One line: progressions by phase, and what migration waits for."""
    phases = ", ".join(f"{phase} {status.phases.get(phase, 0)}" for phase in ("json", "dual", "items", "blocked"))
    signals = ", ".join(sorted(one.signal for one in status.throttle.tripped))
    waits = [f"pressure ({signals})" if reason == "pressure" else reason for reason in reasons]
    waits += [*(f"{reason} ({count})" for reason, count in sorted(status.held.items()) if count)]
    waits += [f"{fails.part} fails ({fails.code})" for fails in status.failing]
    return f"serving; progressions: {phases}; migration waits for: {', '.join(waits) or 'nothing'}"
