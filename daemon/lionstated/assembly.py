"""Brings the library's rooms together: the operations table, the store, and what lives on it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from lionstate.engine import EngineSettings, StoreURL
from lionstate.engine.mounts import shared_file_system
from lionstate.errors import ConflictError
from lionstate.migration import ProgressionMigrationService, Rehearsal, RehearsalStage
from lionstate.operations import OPERATIONS
from lionstate.queue import CommitNews, QueueLimits, ReceiptLimits, Ticket, probe_reads, probe_writes
from lionstate.rehearse import rehearse
from lionstate.store import Store

from . import logs
from .api import OperationLike, Verb
from .board import Sources, Waiting
from .delivery import DeliveryRunner
from .maintenance import MaintenanceTimer
from .metrics import Metrics
from .notify import watchdog_interval_seconds
from .parts import Parts, StoreFactory
from .settings import Settings

__all__ = ["Assembly", "assemble", "engine_settings", "open_store", "queue_limits"]

_WEDGED_SECONDS = 30.0
# Beside a SQLite store: what a few batches may add to the log.
_FULL_BYTES = 1024 * 1024
# Tickets that may leave something due; an atomic batch does not say what it holds.
_DUE_AT_ONCE = frozenset(("batch", "enqueue_dispatch", "enqueue_revival_heartbeat", "retry_dispatch"))


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
        replicas=tuple(url.get_secret_value() for url in database.replica_url),
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
        receipts=ReceiptLimits(settings.receipts.keep_seconds, settings.receipts.max_count),
        lionagi_compatible=settings.storage.lionagi_compatible,
        own=url.path is not None,
    )
    metrics.watch_connections(store.connections)
    if store.sqlite_version is not None:
        metrics.set_sqlite(".".join(map(str, store.sqlite_version)), affected=store.sqlite_affected)
    if url.path is not None and (kind := shared_file_system(url.path)) is not None:
        logs.get_logger().warning("store_on_shared_file_system", file_system=kind)

    service = ProgressionMigrationService(
        store,
        accept_foreign_writers=settings.maintenance.accept_foreign_writers,
        defaults=settings.maintenance.knobs,
        sole_owner=url.path is not None,
    )
    timer = MaintenanceTimer(service, settings.maintenance, metrics)
    metrics.on_dual_read.append(service.shadow.offer)
    metrics.on_doubt.append(service.ask_scrub)
    delivery = _delivery(store, settings, metrics)
    news = _news(store, metrics)

    async def drain(seconds: float) -> None:
        news.close()
        # Attempts under way are settled while the queue still takes that.
        end, queue = time.monotonic() + seconds, store.queue
        await delivery.end(seconds / 2)
        await timer.end((end - time.monotonic()) / 2)
        # Not asked of the store: one that is closed over the budget has none any more.
        await queue.drain(max(end - time.monotonic(), 0.0))

    async def close() -> None:
        await store.close(0.0)

    rehearsals = _Rehearsals(url, engine_settings(settings))
    interval = watchdog_interval_seconds()
    wedged_after = _WEDGED_SECONDS if interval is None else 2 * interval

    def reload(fresh: Settings) -> None:
        timer.reload(fresh.maintenance)
        delivery.reload(fresh.delivery)

    def watch_readiness(why: Callable[[], str | None]) -> None:
        service.not_ready = why

    def alive() -> bool:
        writer = store.writer
        return writer is not None and writer.seconds_since_sign_of_life() < wedged_after

    return Parts(
        store=store,
        close=close,
        drain=drain,
        verbs={
            **_verbs(service, timer),
            "rehearse": Verb("POST", rehearsals.rehearse, ends_with_caller=True),
            "rehearsal": Verb("GET", rehearsals.rehearsal),
        },
        maintenance=timer.run,
        alive=alive,
        delivery=delivery.run,
        news=news,
        reload=reload,
        watch_readiness=watch_readiness,
        probe=lambda: store.write("probe_writes", probe_writes),
        look=lambda: _is_doubtful(store),
        summary=lambda: timer.summary,
        sources=_sources(store, settings, timer),
    )


async def _is_doubtful(store: Store) -> bool:
    """Read something from the file that is meant; whether only a write tells, on a full disk, if one can be made."""
    await store.require_in_place()
    await store.read(probe_reads)
    free = store.load.free_bytes()
    return free is not None and free < _FULL_BYTES


def _sources(store: Store, settings: Settings, timer: MaintenanceTimer) -> Sources:
    version = store.sqlite_version

    def queue() -> Waiting:
        waiting = store.queue
        limit = settings.queue.max_operations
        return Waiting(waiting.depth, waiting.size_bytes, round(waiting.oldest_age_seconds(), 3), limit)

    return Sources(
        database="PostgreSQL" if version is None else f"SQLite {'.'.join(map(str, version))}",
        queue=queue,
        migration=lambda: timer.standing,
    )


def _news(store: Store, metrics: Metrics) -> CommitNews:
    news, loop = CommitNews(), asyncio.get_running_loop()
    store.queue.on_commit.append(news.committed)

    def foreign() -> None:
        # The loop may have ended before the engine's last look.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(news.announce, None)

    metrics.on_foreign_commit.append(foreign)
    return news


def _delivery(store: Store, settings: Settings, metrics: Metrics) -> DeliveryRunner:
    async def call(name: str, **params: Any) -> Any:
        return await store.run(OPERATIONS[name], params)

    runner = DeliveryRunner(call, settings.delivery, metrics)

    def committed(tickets: Sequence[Ticket]) -> None:
        if any(ticket.name in _DUE_AT_ONCE for ticket in tickets):
            runner.wake()

    store.queue.on_commit.append(committed)
    return runner


def _verbs(service: ProgressionMigrationService, timer: MaintenanceTimer) -> dict[str, Verb]:
    """The migration API: names as the CLI has them."""
    reads: dict[str, Callable[..., Awaitable[Any]]] = {
        "status": service.status,
        "verify": service.verify,
        "blocked": service.blocked,
        "plan": service.plan,
        "preflight": service.preflight,
        "explain": service.explain,
        "audit": service.audit,
        "fence/status": service.fence_status,
        "knobs": service.knobs,
    }
    changes: dict[str, Callable[..., Awaitable[Any]]] = {
        "pause": service.pause,
        "resume": service.resume,
        "set-knob": service.set_knob,
        "stop": service.stop,
        "maintenance-enabled": service.set_maintenance_enabled,
        "rollback": service.rollback,
        "fence/install": service.install_fence,
        "fence/remove": service.remove_fence,
        "hold": service.hold,
        "hold-all": service.hold_all,
        "release": service.release,
        "release-all": service.release_all,
        "prioritize": service.prioritize,
        "exclude": service.exclude,
        "retry": service.retry,
        "scrub": timer.scrub,
        "unblock": service.unblock,
        "compat-read": service.set_compat_read,
        "compat-read-everywhere": service.set_compat_read_everywhere,
        "accept-foreign-writers": service.set_accept_foreign_writers,
    }
    return {
        "step": Verb("POST", timer.step),
        "cutover": Verb("POST", timer.counted(service.cutover)),
        "cutover-all-ready": Verb("POST", timer.counted(service.cutover_all_ready)),
        **{name: Verb("GET", call) for name, call in reads.items()},
        **{name: Verb("POST", timer.told(call)) for name, call in changes.items()},
    }


class _Rehearsals:
    """The verbs that migrate a copy of the store in this process, one at a time, and say how far that is."""

    def __init__(self, url: StoreURL, settings: EngineSettings) -> None:
        self._url = url
        self._settings = settings
        self._running = asyncio.Lock()
        self._stage: RehearsalStage | None = None

    async def rehearse(self, *, target: str | None = None) -> Rehearsal:
        """Migrate a copy of the store whole and say what it took; the store is only read.

        Args:
            target: PostgreSQL: the URL of an empty database; SQLite makes a file beside the store and removes it.
        """
        if self._running.locked():
            raise ConflictError("a rehearsal is running already; wait for its end")
        async with self._running:
            try:
                return await rehearse(self._url, target=target, settings=self._settings, on_progress=self._tell)
            finally:
                self._stage = None

    def _tell(self, stage: str, done: int, total: int) -> None:
        # Whole or not at all: some stages are told from a thread.
        self._stage = RehearsalStage(stage, done, total)

    async def rehearsal(self) -> RehearsalStage | None:
        """How far the rehearsal under way is; None when none is, or it has just begun."""
        return self._stage


def assemble() -> Assembly:
    """The real rooms."""
    return Assembly(OPERATIONS, open_store)
