"""Brings the library's rooms together: the operations table, the store, and what lives on it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from lionstate.engine import EngineSettings, StoreURL
from lionstate.migration import ProgressionMigrationService
from lionstate.operations import OPERATIONS
from lionstate.queue import QueueLimits
from lionstate.store import Store

from .api import OperationLike, Verb
from .maintenance import MaintenanceTimer
from .metrics import Metrics
from .notify import watchdog_interval_seconds
from .process import Parts, StoreFactory
from .settings import Settings

__all__ = ["Assembly", "assemble", "engine_settings", "open_store", "queue_limits"]

_WEDGED_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Assembly:
    """The rooms below the daemon: the operations table and what opens a store."""

    operations: Mapping[str, OperationLike]
    store_factory: StoreFactory


def engine_settings(settings: Settings) -> EngineSettings:
    """The engine's part of the settings."""
    database = settings.database
    return EngineSettings(
        synchronous=database.synchronous,
        busy_timeout_ms=database.busy_timeout_ms,
        pooler=database.pooler,
        sqlite_module=database.sqlite_module,
        affected_sqlite=database.affected_sqlite,
        exclusive=database.exclusive,
    )


def queue_limits(settings: Settings) -> QueueLimits:
    """The write queue's part of the settings."""
    queue = settings.queue
    return QueueLimits(
        max_operations=queue.max_operations,
        max_bytes=queue.max_bytes,
        max_batch_operations=queue.max_batch_operations,
        max_hold_seconds=queue.max_hold_ms / 1000,
    )


async def open_store(settings: Settings, metrics: Metrics) -> Parts:
    """Open the store that the settings name."""
    url = StoreURL.of(settings.store_url())
    store = await Store.open(
        url,
        engine_settings(settings),
        observer=metrics,
        limits=queue_limits(settings),
        lionagi_compatible=settings.storage.lionagi_compatible,
        own=url.path is not None,
    )
    metrics.watch_connections(store.connections)
    if store.sqlite_version is not None:
        metrics.set_sqlite(".".join(map(str, store.sqlite_version)), affected=store.sqlite_affected)

    service = ProgressionMigrationService(store, accept_foreign_writers=settings.maintenance.accept_foreign_writers)
    timer = MaintenanceTimer(service, settings.maintenance, metrics)

    async def drain(seconds: float) -> None:
        await store.queue.drain(seconds)

    async def close() -> None:
        await store.close(0.0)

    interval = watchdog_interval_seconds()
    wedged_after = _WEDGED_SECONDS if interval is None else 2 * interval

    def alive() -> bool:
        writer = store.writer
        return writer is not None and writer.seconds_since_sign_of_life() < wedged_after

    return Parts(
        store=store,
        close=close,
        drain=drain,
        verbs=_verbs(service, timer),
        maintenance=timer.run,
        alive=alive,
        reload=lambda fresh: timer.reload(fresh.maintenance),
    )


def _verbs(service: ProgressionMigrationService, timer: MaintenanceTimer) -> dict[str, Verb]:
    """The migration API: names as the CLI has them."""
    reads: dict[str, Callable[..., Awaitable[Any]]] = {
        "status": service.status,
        "verify": service.verify,
        "blocked": service.blocked,
        "preflight": service.preflight,
        "explain": service.explain,
    }
    changes: dict[str, Callable[..., Awaitable[Any]]] = {
        "pause": service.pause,
        "resume": service.resume,
        "maintenance-enabled": service.set_maintenance_enabled,
        "rollback": service.rollback,
        "release": service.release,
        "retry": service.retry,
        "unblock": service.unblock,
        "compat-read": service.set_compat_read,
        "compat-read-everywhere": service.set_compat_read_everywhere,
        "accept-foreign-writers": service.set_accept_foreign_writers,
    }
    return {
        "step": Verb("POST", timer.step),
        **{name: Verb("GET", call) for name, call in reads.items()},
        **{name: Verb("POST", timer.told(call)) for name, call in changes.items()},
    }


def assemble() -> Assembly:
    """The real rooms."""
    return Assembly(OPERATIONS, open_store)
