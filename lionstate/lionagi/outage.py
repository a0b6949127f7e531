"""Waits out a daemon that is away for a moment, as LionAGI waits for a lock: a restart must not cost messages."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from lionstate.errors import ClosedError, DaemonUnreachableError, OutcomeUnknownError

__all__ = ["WAIT_SECONDS", "through_outages"]

R = TypeVar("R")

WAIT_SECONDS: Final = 15.0
"""How long a call goes on asking: three times what LionAGI waits for SQLite's lock."""

_FIRST_PAUSE = 0.05
_LONGEST_PAUSE = 0.5


async def through_outages(call: Callable[[], Awaitable[R]], *, repeatable: bool, wait: float = WAIT_SECONDS) -> R:
    """Make a call again while the daemon cannot be reached, or drains.

    Args:
        call: One attempt.
        repeatable: Also when an attempt was sent and not answered: only for what is there once however often it is
            written, such as a message by its id.
        wait: Seconds from the first failure on.
    Raises:
        OutcomeUnknownError: An attempt was sent and not answered, and no later one was.
        DaemonUnreachableError: None was sent.
        ClosedError: The daemon was draining all the time; nothing was written.
    """
    doubt: OutcomeUnknownError | None = None
    pause = _FIRST_PAUSE
    end: float | None = None
    while True:
        try:
            return await call()
        except (DaemonUnreachableError, OutcomeUnknownError, ClosedError) as error:
            now = time.monotonic()
            end = now + wait if end is None else end
            if isinstance(error, OutcomeUnknownError):
                doubt = error
            if now + pause > end or (isinstance(error, OutcomeUnknownError) and not repeatable):
                raise (doubt or error) from None
        await asyncio.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)
