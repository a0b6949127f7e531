"""Delivers due dispatches by a command of the operator's: claims, runs, settles (at least once).

An attempt that nobody settles, because the process died in the middle, is due again when its lease is over.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import anyio

from lionstate.errors import ClosedError, StateError

from . import logs
from .child_process import run_command
from .metrics import Metrics
from .settings import DELIVER_TO, PAYLOAD, Delivery

__all__ = ["DeliveryRunner"]

_ACTOR = "lionstated"
# Of a lease: what is left to settle the attempt when the command has used all of its time.
_MARGIN_SECONDS = 5.0
_SETTLE_TRIES = 5
_SETTLE_PAUSE_SECONDS = 0.2
_END_SECONDS = 1.0
_WITHHELD = ("LIONSTATE_", "LISTEN_", "NOTIFY_", "WATCHDOG_")

Call = Callable[..., Awaitable[Any]]


class DeliveryRunner:
    """Runs the command for each due dispatch while delivery is enabled, several at a time."""

    def __init__(self, call: Call, settings: Delivery, metrics: Metrics) -> None:
        """Take what runs an operation by name; nothing is delivered before ``run``."""
        self._call = call
        self._settings = settings
        self._metrics = metrics
        self._log = logs.get_logger()
        self._running: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()
        self._cut = asyncio.Event()
        self._is_ending = False
        self._fault: OSError | None = None
        self._told: OSError | None = None

    def reload(self, settings: Delivery) -> None:
        """Take new settings; attempts under way keep theirs."""
        self._settings = settings
        self._fault = None
        self.wake()

    def wake(self) -> None:
        """Look for due dispatches now."""
        self._changed.set()

    async def run(self, finish: anyio.Event, healthy: Callable[[], None]) -> None:
        """Deliver until ``finish`` is set or ``end`` called.

        A command that cannot start leaves it unhealthy, whether anything is due or not, until one does or `reload`.

        Raises:
            OSError: The command could not be started. Its dispatch is tried again later, like after any failure.
            StateError: The store did not answer.
        """
        watching = asyncio.ensure_future(self._watch(finish))
        try:
            while not (finish.is_set() or self._is_ending):
                self._changed.clear()
                wait_seconds = await self._start_due()
                if self._fault is None:
                    healthy()
                elif self._fault is not self._told:
                    self._told = self._fault
                    raise self._fault
                with anyio.move_on_after(wait_seconds):
                    await self._changed.wait()
            if self._running:
                # `end` sees to it that they do.
                await asyncio.wait(self._running)
        finally:
            watching.cancel()

    async def end(self, seconds: float) -> None:
        """Claim nothing more; what runs has half of the time to end by itself, then it is ended. All is settled."""
        self._is_ending = True
        self.wake()
        if self._running:
            await asyncio.wait(self._running, timeout=seconds / 2)
        self._cut.set()
        if self._running:
            await asyncio.wait(self._running, timeout=self._settings.kill_seconds + _END_SECONDS)

    async def _watch(self, finish: anyio.Event) -> None:
        await finish.wait()
        self.wake()

    async def _start_due(self) -> float:
        """Claim what is due and there is room for; seconds until it is worth looking again."""
        settings = self._settings
        free = settings.concurrency - len(self._running)
        if not settings.enabled or free <= 0:
            return settings.interval_seconds
        due_at = await self._call("next_dispatch_at")
        if due_at is None or (wait_seconds := due_at - time.time()) > 0:
            return settings.interval_seconds if due_at is None else min(wait_seconds, settings.interval_seconds)
        lease_seconds = settings.timeout_seconds + settings.kill_seconds + _MARGIN_SECONDS
        limit = min(free, settings.batch)
        rows = await self._call("claim_due_dispatches", limit=limit, lease_seconds=lease_seconds, actor=_ACTOR)
        for row in rows:
            task = asyncio.ensure_future(self._deliver(row, settings))
            self._running.add(task)
            task.add_done_callback(self._ended)
        self._metrics.deliveries_running.set(len(self._running))
        # What is due and not claimed is held by somebody else for the moment.
        return 0.0 if len(rows) == limit else settings.interval_seconds

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._metrics.deliveries_running.set(len(self._running))
        self.wake()
        if not task.cancelled() and (error := task.exception()) is not None:
            self._log.error("delivery_failed", exc_info=error)

    async def _deliver(self, row: Mapping[str, Any], settings: Delivery) -> None:
        began_at = time.monotonic()
        payload = json.dumps(row["payload"])
        replaced = {DELIVER_TO: row["deliver_to"], PAYLOAD: payload}
        permanent = False
        error: str | None
        try:
            ended = await run_command(
                [replaced.get(part, part) for part in settings.command],
                payload.encode(),
                env=_environment(row),
                timeout_seconds=settings.timeout_seconds,
                kill_seconds=settings.kill_seconds,
                cut=self._cut,
            )
        except OSError as fault:
            self._fault = fault
            error = f"the command could not be started: {fault.strerror}"
        else:
            self._fault = None
            error = ended.error
            permanent = ended.cut is None and ended.code in settings.permanent_exit_codes
        status = await self._settle(row, error, permanent)
        self._metrics.delivery(status, failed=error is not None, seconds=time.monotonic() - began_at)
        self._log.info(
            "dispatch_attempt", dispatch=row["id"], attempt=row["attempt"], failed=error is not None, status=status
        )

    async def _settle(self, row: Mapping[str, Any], error: str | None, permanent: bool) -> str | None:
        """Note what came of the attempt; the attempt's number makes it safe to ask again."""
        for tries in range(1, _SETTLE_TRIES + 1):
            try:
                status: str | None = await self._call(
                    "finish_dispatch_attempt",
                    dispatch_id=row["id"],
                    attempt=row["attempt"],
                    error=error,
                    permanent=permanent,
                    actor=_ACTOR,
                )
            except StateError as failure:
                if tries == _SETTLE_TRIES or isinstance(failure, ClosedError):
                    raise
                await asyncio.sleep(_SETTLE_PAUSE_SECONDS * tries)
            else:
                return status
        raise AssertionError("unreachable")


def _environment(row: Mapping[str, Any]) -> dict[str, str]:
    """The daemon's environment without what concerns the daemon, its store's password first of all."""
    kept = {name: value for name, value in os.environ.items() if not name.upper().startswith(_WITHHELD)}
    return {
        **kept,
        "LIONSTATE_DISPATCH_ID": row["id"],
        "LIONSTATE_DISPATCH_KIND": row["kind"],
        "LIONSTATE_DISPATCH_ATTEMPT": str(row["attempt"]),
    }
