"""A large body is decoded elsewhere: the loop goes on meanwhile, and what is wrong with it is told as ever."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from typing import Any

import anyio.to_process
import pytest

from lionstate import wire
from lionstate.engine.offload import run_pure
from lionstate.errors import InvalidInputError
from lionstate.operations import OPERATIONS
from lionstated.api.handlers import _decoded

pytestmark = pytest.mark.anyio
OPERATION = OPERATIONS["set_progression"]
CODEC = wire.Codec.of(OPERATION.script)


def body_of(count: int, tail: list[Any]) -> bytes:
    ids = [f"message-{number:030d}" for number in range(count)]
    return json.dumps({"progression_id": "p", "collection": ids + tail}).encode()


async def longest_gap(work: Callable[[], Awaitable[object]]) -> float:
    """Seconds in which nothing else of the loop got a turn while the work was done."""
    gaps, done = [0.0], False

    async def tick() -> None:
        last = time.perf_counter()
        while not done:
            await asyncio.sleep(0)
            now = time.perf_counter()
            gaps.append(now - last)
            last = now

    ticking = asyncio.ensure_future(tick())
    await asyncio.sleep(0)
    await work()
    done = True
    await ticking
    return max(gaps)


async def test_the_loop_goes_on_while_a_large_body_is_worked_on() -> None:
    """In turns with a control, and the best of each: decoded elsewhere, and its list sent to a child in pieces."""
    body = body_of(1_200_000, [])
    assert len(body) > 50_000_000
    ids = CODEC.decode_params(body)["collection"]

    async def decoded_here() -> object:
        return CODEC.decode_params(body)

    async def decoded_elsewhere() -> object:
        return await _decoded(OPERATION, CODEC, body)

    async def sent_whole() -> object:
        return await anyio.to_process.run_sync(len, ids)

    async def sent_in_pieces() -> object:
        return await run_pure(len, ids, len(body))

    works = (decoded_here, decoded_elsewhere, sent_whole, sent_in_pieces)
    assert await decoded_here() == await decoded_elsewhere()
    rounds = [[await longest_gap(work) for work in works] for _ in range(3)]
    here, elsewhere, whole, pieces = (min(times) for times in zip(*rounds, strict=True))
    assert elsewhere < here, rounds
    assert pieces < whole / 2, rounds


@pytest.mark.parametrize("count", [10, 10_000, 500_000])
async def test_what_is_wrong_is_told_wherever_it_was_decoded(count: int) -> None:
    """Inline, in a thread and in a child: the name of the parameter, never a value."""
    with pytest.raises(InvalidInputError, match="collection") as caught:
        await _decoded(OPERATION, CODEC, body_of(count, [5]))
    assert "message-" not in str(caught.value)
