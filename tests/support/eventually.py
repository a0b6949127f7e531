"""Waits for what another process or a task of the daemon does and tells nobody about."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

__all__ = ["eventually"]

R = TypeVar("R")


async def eventually(look: Callable[[], Awaitable[R] | R], *, seconds: float = 20.0) -> R:
    """What ``look`` finds as soon as it finds something."""
    async with asyncio.timeout(seconds):
        while True:
            found = look()
            seen: R = await found if isinstance(found, Awaitable) else found
            if seen:
                return seen
            await asyncio.sleep(0.01)
