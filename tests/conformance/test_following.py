"""Following a progression through the daemon: every item once, in order, woken by commits."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest

from lionstate import StateClient, StateDB
from lionstate.errors import ClosedError, InvalidInputError, StaleCursorError
from tests.support.backends import Backend
from tests.support.phases import put

LONG = 60.0


@pytest.fixture
def client(state: Any) -> StateClient | None:
    """The client; None in process, where nothing can be followed."""
    if isinstance(state, StateClient):
        return state
    assert not hasattr(StateDB, "follow_progression")
    return None


async def _take(following: AsyncIterator[Any], count: int) -> list[Any]:
    async with asyncio.timeout(50):
        return [await anext(following) for _ in range(count)]


@pytest.mark.parametrize("shape", ["absent", "dual", "items"])
async def test_what_is_there_comes_first_and_then_what_is_appended(
    backend: Backend, client: StateClient | None, shape: str
) -> None:
    if client is None:
        return
    ids = [f"m{number:04d}" for number in range(1_203)]
    await put(backend, "p", shape, ids)
    following = client.follow_progression("p", wait_seconds=LONG)
    assert list(enumerate(ids)) == await _take(following, len(ids))
    for number in range(5):
        coming = asyncio.create_task(anext(following))  # type: ignore[arg-type]
        await asyncio.sleep(0.05)
        began = time.monotonic()
        await client.append_to_progression("p", f"n{number}")
        assert (1_203 + number, f"n{number}") == await asyncio.wait_for(coming, 20)
        assert time.monotonic() - began < 10
    await following.aclose()  # type: ignore[attr-defined]


async def test_every_follower_gets_each_item_once_under_load(backend: Backend, client: StateClient | None) -> None:
    if client is None:
        return
    await client.create_progression("p", ["first"])
    followers = [client.follow_progression("p", wait_seconds=LONG) for _ in range(5)]
    takes = [asyncio.create_task(_take(following, 121)) for following in followers]
    for first in range(0, 120, 20):
        await asyncio.gather(*(client.append_to_progression("p", f"m{first + number}") for number in range(20)))
    expected = list(enumerate(await client.get_progression("p")))
    assert [expected] * 5 == await asyncio.gather(*takes)
    for following in followers:
        await following.aclose()  # type: ignore[attr-defined]


async def test_a_message_recorded_in_a_batch_wakes_the_followers_of_its_progressions(
    backend: Backend, client: StateClient | None
) -> None:
    if client is None:
        return
    followings = [client.follow_progression(name, wait_seconds=LONG) for name in "bs"]
    coming = [asyncio.create_task(_take(following, 1)) for following in followings]
    await asyncio.sleep(0.05)
    # A missing progression is an empty one.
    async with client.batch() as batch:
        for name in "bs":
            batch.create_progression(name)
        batch.create_session({"id": "x", "progression_id": "s"})
        batch.record_message(
            {"id": "m", "created_at": 1.0, "role": "user", "content": {}},
            session_id="x",
            branch_progression_id="b",
            session_progression_id="s",
        )
    assert [[(0, "m")]] * 2 == await asyncio.gather(*coming)
    for following in followings:
        await following.aclose()  # type: ignore[attr-defined]


async def test_a_replaced_progression_ends_its_following(backend: Backend, client: StateClient | None) -> None:
    if client is None:
        return
    for name in "ab":
        await put(backend, name, "items", ["x", "y"])
    generation = await client.get_progression_generation("a")
    following = client.follow_progression("a", after_ordinal=0, generation=generation, wait_seconds=LONG)
    assert [(1, "y")] == await _take(following, 1)
    coming = asyncio.create_task(_take(following, 1))
    await asyncio.sleep(0.05)
    await client.set_progression("a", ["z"])
    with pytest.raises(StaleCursorError):
        await coming
    gone = client.follow_progression("b", wait_seconds=LONG)
    assert [(0, "x"), (1, "y")] == await _take(gone, 2)
    coming = asyncio.create_task(_take(gone, 1))
    await asyncio.sleep(0.05)
    assert await client.delete_progression("b")
    with pytest.raises(StaleCursorError):
        await coming


async def test_what_another_process_appends_is_seen_too(backend: Backend, client: StateClient | None) -> None:
    if client is None:
        return
    await put(backend, "p", "items", [])
    following = client.follow_progression("p", wait_seconds=2.0)
    coming = asyncio.create_task(_take(following, 2))
    await asyncio.sleep(0.05)
    await backend.direct.append_to_progression("p", "m1")
    await backend.direct.append_to_progression("p", "m2")
    assert [(0, "m1"), (1, "m2")] == await coming
    await following.aclose()  # type: ignore[attr-defined]


async def test_a_closed_client_ends_its_followings(backend: Backend, client: StateClient | None) -> None:
    if client is None:
        return
    coming = asyncio.create_task(_take(client.follow_progression("p", wait_seconds=LONG), 1))
    await asyncio.sleep(0.05)
    await client.close()
    with pytest.raises(ClosedError):
        await asyncio.wait_for(coming, 10)


async def test_bad_arguments_are_refused(backend: Backend, client: StateClient | None) -> None:
    if client is None:
        return
    for wait_seconds in (0, -1, 61, float("nan")):
        with pytest.raises(InvalidInputError):
            await anext(client.follow_progression("p", wait_seconds=wait_seconds))
