"""Commit news: who listens hears of its key, whoever comes too late does not wait, and nothing is remembered."""

from __future__ import annotations

import asyncio

import pytest

from lionstate.errors import ClosedError
from lionstate.queue import CommitNews

SOON = 0.01
LONG = 30.0


async def test_a_listener_hears_of_its_key_only() -> None:
    news = CommitNews()
    with news.listen("p:a") as one, news.listen("p:b") as other:
        news.announce(frozenset(("p:b", "p:c")))
        assert not await one.wait(SOON)
        assert await other.wait(LONG)
        assert not await other.wait(SOON)
        news.announce(None)
        assert [True, True] == [await one.wait(LONG), await other.wait(LONG)]


async def test_what_is_announced_before_the_wait_is_heard() -> None:
    """Between the look at the store and the wait nothing may be lost."""
    news = CommitNews()
    with news.listen("k") as listener:
        news.announce(frozenset(("k",)))
        assert await listener.wait(LONG)


async def test_only_keys_with_listeners_take_memory() -> None:
    news = CommitNews()
    news.announce(frozenset(f"p:{number}" for number in range(1_000)))
    assert 0 == news.keys
    with news.listen("k"), news.listen("k"):
        assert 1 == news.keys
    assert 0 == news.keys


async def test_the_end_wakes_everybody_and_is_told_to_later_ones() -> None:
    news = CommitNews()

    async def wait(number: int) -> None:
        with news.listen(f"p:{number % 10}") as listener:
            await listener.wait(LONG)

    waiting = [asyncio.create_task(wait(number)) for number in range(100)]
    await asyncio.sleep(0)
    news.close()
    ends = await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), 5)
    assert {ClosedError} == set(map(type, ends))
    assert 0 == news.keys
    with news.listen("k") as listener, pytest.raises(ClosedError):
        await listener.wait(LONG)
