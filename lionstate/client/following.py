"""Following a progression: pages while there are some, then a request that waits; over reconnects and restarts."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import quote, urlencode

import msgspec

from lionstate import wire
from lionstate.client.transport import Transport
from lionstate.errors import (
    BackendBusyError,
    BackendUnavailableError,
    ClosedError,
    DaemonUnreachableError,
    DeadlineExceededError,
    InvalidInputError,
    OverloadedError,
    WireError,
)

__all__ = ["follow"]

_PAGE = 500
_MAX_WAIT_SECONDS = 60.0
_PAUSE_SECONDS = (0.05, 5.0)
# Nothing is wrong with the cursor: the same question may be asked again.
_PASSING = (
    BackendBusyError,
    BackendUnavailableError,
    ClosedError,
    DaemonUnreachableError,
    DeadlineExceededError,
    OverloadedError,
)
_items = msgspec.json.Decoder(list[tuple[int, Any]])
_generation = msgspec.json.Decoder(int | None)


async def follow(
    transport: Transport, progression_id: str, after_ordinal: int | None, generation: int | None, wait_seconds: float
) -> AsyncIterator[tuple[int, Any]]:
    """What ``StateClient.follow_progression`` gives."""
    if not 0 < wait_seconds <= _MAX_WAIT_SECONDS:
        raise InvalidInputError(f"wait_seconds must be more than 0 and at most {_MAX_WAIT_SECONDS:g}")
    path = f"/v1/progressions/{quote(progression_id, safe='')}/items?"
    shortest, longest = _PAUSE_SECONDS
    pause = shortest
    while True:
        given = {"after": after_ordinal, "generation": generation, "limit": _PAGE, "wait_seconds": wait_seconds}
        asked = path + urlencode({name: value for name, value in given.items() if value is not None})
        try:
            answer, headers = await transport.get(asked, deadline=time.monotonic() + wait_seconds + transport.timeout)
        except _PASSING:
            if not transport.is_open:
                raise ClosedError("the client was closed") from None
            await asyncio.sleep(pause)
            pause = min(2 * pause, longest)
            continue
        pause = shortest
        try:
            page = wire.decode_answer(answer, _items)
            current = _generation.decode(headers.get("lionstate-generation", "null"))
        except (ValueError, RecursionError) as error:
            raise WireError("the daemon's page of items could not be understood") from error
        # The first one it has ever had is taken on: from then on a replacement ends the following.
        generation = current if generation is None else generation
        for item in page:
            yield item
            after_ordinal = item[0]
