"""The composition root: builds the parts, starts them in order, and drains them in order (design §7)."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import anyio
from anyio.abc import TaskGroup, TaskStatus
from starlette.types import ASGIApp

from . import logs
from .api import ApiServer, Door, Health, Listeners, OperationLike, operations_app, service_app
from .board import Board
from .metrics import Metrics
from .notify import Notifier, tell_status, watchdog, watchdog_interval_seconds
from .parts import Parts, StoreFactory
from .reloading import settle
from .settings import Settings
from .starting import open_store_until
from .supervision import supervise

__all__ = ["Daemon", "serve"]

_STATUS_SECONDS = 2.0
_CLOSE_SECONDS = 5.0
_FORCED_SECONDS = 0.5
# Of the shutdown's budget: what still waits then is answered as not written while its callers can be reached.
_QUEUE_SHARE = 0.8


class Daemon:
    """One daemon: `run` it, `stop` it, `force` it, `reload` it."""

    def __init__(
        self,
        settings: Settings,
        *,
        operations: Mapping[str, OperationLike],
        store_factory: StoreFactory,
        read_settings: Callable[[], Settings] | None = None,
        notifier: Notifier | None = None,
        overdue: Callable[[bool], None] | None = None,
    ) -> None:
        """Take the parts; nothing is bound or opened yet.

        Args:
            settings: As read at start.
            operations: The operations table.
            store_factory: Opens the store; feeds the metrics it is given.
            read_settings: Reads the settings again, for SIGHUP.
            notifier: The service manager's socket; the one of the environment by default.
            overdue: Ends the process when the shutdown is over its budget, told whether it was forced; called on a
                thread of its own, because a wedged writer cannot be waited for. None when embedded.
        """
        self.settings = settings
        self.metrics = Metrics(operations)
        self.health = Health()
        self.metrics.up.set_function(lambda: float(self.health.ready))
        self.board = Board(self.metrics.history)
        self.forced = False
        self.addresses: dict[str, str] = {}
        self._operations = operations
        self._store_factory = store_factory
        self._read_settings = read_settings
        self._notifier = notifier or Notifier()
        self._overdue = overdue
        self._stop = anyio.Event()
        self._parts: Parts | None = None
        self._servers: list[ApiServer] = []
        self._listeners = Listeners()
        self._door = Door(self.health)
        self._scope: anyio.CancelScope | None = None
        self._closing: anyio.CancelScope | None = None
        self._reason = "requested"
        self._log = logs.get_logger()

    def stop(self, reason: str = "requested") -> None:
        """Begin the shutdown, which the last line of the log explains; a second call forces it."""
        if self._stop.is_set():
            self.force()
        else:
            self._reason = reason
            self._end_within(self.settings.shutdown.drain_seconds + _CLOSE_SECONDS + _FORCED_SECONDS)
        self._stop.set()

    def force(self) -> None:
        """End at once: requests under way are dropped, the store is not closed in order."""
        self.forced = True
        self._stop.set()
        self._end_within(_FORCED_SECONDS)
        for server in self._servers:
            server.abort()
        for scope in (self._scope, self._closing):
            if scope is not None:
                scope.cancel()

    def _end_within(self, seconds: float) -> None:
        if self._overdue is None:
            return
        end = self._overdue

        def overdue() -> None:
            self._log.error("stopped", reason=self._reason, forced=True, overdue=True)
            end(self.forced)

        timer = threading.Timer(seconds, overdue)
        timer.daemon = True
        timer.start()

    def reload(self) -> None:
        """Read the settings again and apply those that may change; errors leave all as it was."""
        if self._read_settings is None:
            return
        # What ends a reload says that the API answers: a start or a drain goes on without it.
        parts = self._parts if self.health.state == "ready" else None
        if parts is not None:
            self._notifier.reloading()
        try:
            fresh = self._read_settings()
            tokens = self._listeners.renew(self.settings)
        except ValueError as exc:
            self._log.error("reload_refused", reason=str(exc))
        else:
            self.settings = settle(self.settings, fresh)
            logs.set_level(self.settings.log.level)
            self._listeners.log.ratio = self.settings.log.access_ratio
            if self._parts is not None:
                self._parts.reload(self.settings)
            self._log.info("reloaded", tokens=tokens)
        if parts is not None:
            self._notifier.ready(parts.summary())

    async def run(
        self,
        *,
        handle_signals: bool = False,
        task_status: TaskStatus[Daemon] = anyio.TASK_STATUS_IGNORED,
    ) -> None:
        """Serve until stopped; `task_status` is told when the API answers.

        Raises:
            StateError: A socket cannot be bound or the store cannot be opened.
        """
        listeners = self._listeners = Listeners.bind(self.settings)
        self.addresses = {listener.kind: listener.address for listener in listeners.all}
        failure: BaseException | None = None
        try:
            async with anyio.create_task_group() as group:
                self._scope = group.cancel_scope
                if handle_signals:
                    await group.start(self._signals)
                await self._life(group, listeners, task_status)
                group.cancel_scope.cancel()
        except BaseExceptionGroup as exc:
            failure = _first(exc)
            raise failure from None
        finally:
            self._scope = None
            listeners.release()
            self._stopped(failure)

    def _stopped(self, failure: BaseException | None) -> None:
        # A start that failed is told by whoever began it.
        if self.health.state != "starting":
            reason = self._reason if failure is None else getattr(failure, "code", type(failure).__name__)
            self._log.info("stopped", reason=reason, forced=self.forced)
        self.health.state = "stopped"

    async def _life(self, group: TaskGroup, listeners: Listeners, task_status: TaskStatus[Daemon]) -> None:
        monitoring = operations_app(self.metrics, self.health, self.board)
        ops = [item.server(monitoring) for item in listeners.all if item.kind == "ops"]
        ops_done = [await self._start(group, server) for server in ops]
        # Before the store is open: whoever asks is told what it waits for.
        service = [item.server(self._door) for item in listeners.all if item.kind != "ops"]
        done = [await self._start(group, server) for server in service]
        given = self.settings
        parts = await self._open()
        if parts is None:
            return
        self._parts, self.board.sources = parts, parts.sources
        try:
            if self.settings is not given:
                # Read while it was waited for.
                parts.reload(self.settings)
            parts.watch_readiness(lambda: None if self.health.ready else self.health.reason or self.health.said)
            self._door.open(self._service(parts))
            self.health.state, self.health.alive = "ready", parts.alive
            self._notifier.ready(parts.summary())
            self._log.info("ready", **self.addresses)
            task_status.started(self)
            finish = anyio.Event()
            finished = self._supervise(group, parts, finish)
            group.start_soon(self.health.failures.watch, parts.look, parts.probe)
            if (interval := watchdog_interval_seconds()) is not None:
                group.start_soon(watchdog, self._notifier, interval, parts.alive)
            await self._tell_until_stopped(parts)
            # The store is closed when the queue has ended too: the lease is given back through it.
            finished["queue"] = anyio.Event()
            group.start_soon(_drained, parts, self.settings.shutdown.drain_seconds * _QUEUE_SHARE, finished["queue"])
            await self._drain(service, done, finish, finished)
        finally:
            await self._close(parts)
        for server in ops:
            server.stop(1)
        for event in ops_done:
            await event.wait()

    async def _tell_until_stopped(self, parts: Parts) -> None:
        async with anyio.create_task_group() as group:
            group.start_soon(tell_status, self._notifier, _STATUS_SECONDS, parts.summary)
            await self._stop.wait()
            group.cancel_scope.cancel()

    def _service(self, parts: Parts) -> ASGIApp:
        return service_app(
            parts.store,
            self._operations,
            metrics=self.metrics,
            verbs=parts.verbs,
            news=parts.news,
            health=self.health,
            max_request_bytes=self.settings.listen.max_request_bytes,
            max_operations=self.settings.queue.max_operations,
            deadline_ms=self.settings.queue.deadline_ms,
        )

    async def _start(self, group: TaskGroup, server: ApiServer) -> anyio.Event:
        done = anyio.Event()
        self._servers.append(server)

        async def run() -> None:
            try:
                await server.run_until_stopped()
            finally:
                done.set()

        group.start_soon(run)
        await server.listening.wait()
        return done

    async def _open(self) -> Parts | None:
        settings = self.settings

        def say(reason: str | None) -> None:
            self.health.waits_for = reason
            if reason is not None:
                self._door.refuse()

        def begin() -> Coroutine[Any, Any, Parts]:
            return self._store_factory(settings, self.metrics)

        return await open_store_until(self._stop, begin, self._notifier, waits=settings.waits_for_database(), say=say)

    def _supervise(self, group: TaskGroup, parts: Parts, finish: anyio.Event) -> dict[str, anyio.Event]:
        ended = {}
        for name, service in (("maintenance", parts.maintenance), ("delivery", parts.delivery)):
            if service is not None:
                ended[name] = anyio.Event()
                group.start_soon(supervise, name, service, finish, ended[name], self.metrics)
        return ended

    async def _drain(
        self,
        servers: list[ApiServer],
        done: list[anyio.Event],
        finish: anyio.Event,
        finished: Mapping[str, anyio.Event],
    ) -> None:
        budget = self.settings.shutdown.drain_seconds
        end = time.monotonic() + budget
        self._log.info("draining", budget_seconds=budget)
        self.health.state = "draining"
        self._notifier.stopping(budget + _CLOSE_SECONDS + _FORCED_SECONDS)
        finish.set()
        for server in servers:
            server.stop(budget)
        for event in done:
            await event.wait()
        for name, event in finished.items():
            if event.is_set():
                # A scope that is over already would cut short even a wait that has nothing to wait for.
                continue
            with anyio.move_on_after(max(end - time.monotonic(), 0)) as scope:
                await event.wait()
            if scope.cancelled_caught:
                self._log.warning(f"{name}_over_budget")

    async def _close(self, parts: Parts) -> None:
        # Shielded, or a failing sibling would leave the store open; but a forced end does not wait for it.
        with anyio.move_on_after(_CLOSE_SECONDS, shield=not self.forced) as scope:
            self._closing = scope
            await parts.close()
        if scope.cancelled_caught:
            self._log.warning("close_over_budget", seconds=_CLOSE_SECONDS)
        self._parts = None

    async def _signals(self, *, task_status: TaskStatus[None]) -> None:
        with anyio.open_signal_receiver(signal.SIGTERM, signal.SIGINT, signal.SIGHUP) as received:
            task_status.started()
            async for number in received:
                name = signal.Signals(number).name
                self._log.info("signal", name=name)
                if number == signal.SIGHUP:
                    self.reload()
                else:
                    self.stop(name)


async def _drained(parts: Parts, seconds: float, finished: anyio.Event) -> None:
    try:
        await parts.drain(seconds)
    finally:
        finished.set()


def _first(group: BaseExceptionGroup[BaseException]) -> BaseException:
    error: BaseException = group
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


async def serve(
    settings: Settings,
    *,
    operations: Mapping[str, OperationLike],
    store_factory: StoreFactory,
    read_settings: Callable[[], Settings] | None = None,
    handle_signals: bool = True,
    overdue: Callable[[bool], None] | None = None,
    task_status: TaskStatus[Daemon] = anyio.TASK_STATUS_IGNORED,
) -> bool:
    """Run a daemon to its end; False if it was forced.

    Args:
        settings: As read at start.
        operations: The operations table.
        store_factory: Opens the store and what lives on it.
        read_settings: Reads the settings again on SIGHUP.
        handle_signals: Off when it is embedded.
        overdue: Ends the process when the shutdown is over its budget.
        task_status: Gets the `Daemon` when the API answers.
    """
    daemon = Daemon(
        settings, operations=operations, store_factory=store_factory, read_settings=read_settings, overdue=overdue
    )
    await daemon.run(handle_signals=handle_signals, task_status=task_status)
    return not daemon.forced
