"""Ends of transactions that a cancelled caller must not cut short."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

__all__ = ["to_the_end"]

R = TypeVar("R")


async def to_the_end(work: Coroutine[Any, Any, R]) -> R:
    """Run ``work`` in a task of its own and wait for its end, however often the caller is cancelled.

    A cancellation is raised after the end, in place of the result; an exception of the work is then dropped, because
    the caller that would have looked at it is gone.
    """
    task = asyncio.ensure_future(work)
    cancelled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError as error:
            cancelled = error
        except Exception:
            break
    if cancelled is not None:
        if not task.cancelled():
            task.exception()
        raise cancelled
    return task.result()
