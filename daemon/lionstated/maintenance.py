"""When migration ticks: enabled, not paused, one bounded step a tick; says why it waits and feeds the gauges."""

from __future__ import annotations

import time
from collections.abc import Callable

import anyio

from lionstate.migration import MigrationStep, ProgressionMigrationService

from . import logs
from .metrics import Metrics
from .settings import Maintenance

__all__ = ["MaintenanceTimer"]

_GAUGE_SECONDS = 2.0
_MAX_STEP_SECONDS = 1.0
_CHUNK_BYTES = 4 * 1024 * 1024


class MaintenanceTimer:
    """Runs ``service.step()`` every interval while maintenance is enabled; refreshes the gauges in any case."""

    def __init__(self, service: ProgressionMigrationService, settings: Maintenance, metrics: Metrics) -> None:
        """Take the service; nothing runs before ``run``."""
        self._service = service
        self._settings = settings
        self._metrics = metrics
        self._gauges_at = 0.0
        self._log = logs.get_logger()

    def reload(self, settings: Maintenance) -> None:
        """Take new settings; they hold from the next tick on."""
        self._settings = settings

    async def run(self, finish: anyio.Event, healthy: Callable[[], None]) -> None:
        """Tick until ``finish`` is set; a tick that fails is raised to be retried by the caller."""
        while not finish.is_set():
            await self._tick()
            healthy()
            with anyio.move_on_after(self._settings.interval_seconds):
                await finish.wait()

    async def _tick(self) -> None:
        settings = self._settings
        if settings.enabled:
            step = await self._service.step(
                max_items=settings.max_items * settings.chunks_per_tick,
                max_bytes=_CHUNK_BYTES * settings.chunks_per_tick,
                max_seconds=_MAX_STEP_SECONDS,
            )
            self._metrics.migration_step(step)
            if step.did_work:
                self._tell(step)
        if time.monotonic() - self._gauges_at >= _GAUGE_SECONDS:
            await self._refresh_gauges()

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

    async def _refresh_gauges(self) -> None:
        status = await self._service.status(limit=1)
        self._metrics.migration_status(status)
        reasons = [] if self._settings.enabled else ["disabled"]
        if status.pause is not None:
            reasons.append("operator")
        self._metrics.set_paused(reasons)
        self._gauges_at = time.monotonic()
