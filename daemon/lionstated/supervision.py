"""Keeps a child service running: what fails is named `degraded` and tried again, the others go on (design §7)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import anyio

from lionstate.errors import ClosedError

from . import logs
from .metrics import Metrics

__all__ = ["Service", "supervise"]

# Runs until the event is set, then returns after what it is at; calls the function after each good turn.
Service = Callable[[anyio.Event, Callable[[], None]], Awaitable[None]]

_RETRY_SECONDS = (1.0, 30.0)


async def supervise(name: str, service: Service, finish: anyio.Event, finished: anyio.Event, metrics: Metrics) -> None:
    """Run a service until ``finish`` is set; ``finished`` is set when it has ended."""
    log = logs.get_logger()
    degraded = metrics.service_degraded.labels(name)
    shortest, longest = _RETRY_SECONDS
    delay = shortest

    def healthy() -> None:
        nonlocal delay
        delay = shortest
        degraded.set(0)

    try:
        while not finish.is_set():
            try:
                await service(finish, healthy)
                return
            except Exception as exc:
                if finish.is_set() and isinstance(exc, ClosedError):
                    # The queue drains; what was begun is committed.
                    return
                degraded.set(1)
                log.error(f"{name}_failed", retry_seconds=delay, exc_info=True)
            with anyio.move_on_after(delay):
                await finish.wait()
            delay = min(delay * 2, longest)
    finally:
        finished.set()
