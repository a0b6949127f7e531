"""Sends a write again whose answer was lost, where that is safe (design decision 39)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from lionstate.errors import (
    ConflictError,
    InvalidInputError,
    NotFoundError,
    OutcomeUnknownError,
    ProgressionError,
    StateError,
)

__all__ = ["until_answered"]

R = TypeVar("R")

# Three seconds in all: a daemon that is started again is back by then.
_PAUSES: Final = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6)
# What a daemon says of the call itself. Under a key it says so only if the first attempt is not there.
_OF_THE_CALL = (InvalidInputError, NotFoundError, ConflictError, ProgressionError)


async def until_answered(attempt: Callable[[], Awaitable[R]], *, keyed: bool, deadline: float) -> R:
    """Make an attempt again while its outcome is unknown: at most six times, and not after the deadline.

    Args:
        attempt: One request; the same call each time, under the same key.
        keyed: Every write of it has an idempotency key; else what it writes is there once however often it is sent.
        deadline: ``time.monotonic()``.
    Raises:
        OutcomeUnknownError: No attempt was answered for certain.
        StateError: What the first attempt raised when nothing of it was in doubt, or the daemon's word on the call.
    """
    doubt: OutcomeUnknownError | None = None
    for pause in (*_PAUSES, None):
        try:
            return await attempt()
        except StateError as error:
            if isinstance(error, OutcomeUnknownError):
                doubt = error
            elif doubt is None or (keyed and isinstance(error, _OF_THE_CALL)):
                raise
            # Else an earlier attempt may be there: an overloaded or closed door says nothing of it.
        if pause is None or time.monotonic() + pause >= deadline:
            break
        await asyncio.sleep(pause)
    assert doubt is not None
    raise doubt
