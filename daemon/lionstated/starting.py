"""Opens the store at the start: tells the service manager that it lasts, and waits for a database that is down."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import anyio

from lionstate.errors import BackendBusyError, BackendUnavailableError

from . import logs
from .notify import Notifier

__all__ = ["open_store_until"]

R = TypeVar("R")
_EXTEND_SECONDS = 30.0
_RETRY_SECONDS = (1.0, 30.0)


async def open_store_until(
    stop: anyio.Event,
    opening: Callable[[], Coroutine[Any, Any, R]],
    notifier: Notifier,
    *,
    waits: bool,
    say: Callable[[str | None], None],
) -> R | None:
    """What `opening` returns; None when it was stopped before.

    Args:
        stop: Ends the waiting and what is being opened.
        opening: Begins to open; called again after a failure.
        notifier: Is told every ten seconds that it goes on.
        waits: Whether a database that cannot be reached is tried again, at growing distances of 1 to 30 s.
        say: Is told what it waits for, and None when that is over.
    """
    delay, longest = _RETRY_SECONDS
    while not stop.is_set():
        try:
            found = await _open_once(stop, opening, notifier)
            say(None)
            return found
        except (BackendUnavailableError, BackendBusyError) as exc:
            if not waits:
                raise
            say(str(exc))
            logs.get_logger().warning("store_unavailable", reason=str(exc), retry_seconds=delay)
            notifier.starting("waiting for the database", _EXTEND_SECONDS + delay)
        with anyio.move_on_after(delay):
            await stop.wait()
        delay = min(2 * delay, longest)
    return None


async def _open_once(stop: anyio.Event, begin: Callable[[], Coroutine[Any, Any, R]], notifier: Notifier) -> R | None:
    # A task of asyncio: its cancellation comes once, so that closing a half-open store may wait. Within a cancel
    # scope every wait of that is cut off as well, and connections stay open.
    opening = asyncio.ensure_future(begin())
    stopping = asyncio.ensure_future(stop.wait())
    try:
        while not opening.done() and not stopping.done():
            notifier.starting("opening the store", _EXTEND_SECONDS)
            await asyncio.wait({opening, stopping}, timeout=_EXTEND_SECONDS / 3, return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopping.cancel()
        opening.cancel()
        with anyio.CancelScope(shield=True):
            await asyncio.wait({opening, stopping})
    return None if opening.cancelled() else opening.result()
