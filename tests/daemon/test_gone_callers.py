"""Work for a caller that goes away is cancelled, whatever it waits for just then."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any

import pytest

from lionstate.queue.news import CommitNews
from lionstated.api import handlers


async def _while_connected(
    monkeypatch: pytest.MonkeyPatch, work: Awaitable[Any], leave: Callable[[Callable[[], None]], Awaitable[None]]
) -> tuple[Any, int]:
    """What comes of the work when the connection is lost as ``leave`` says, and the cancellations that are left."""
    connection = SimpleNamespace(on_lost=None)
    monkeypatch.setattr(handlers, "connection_of", lambda _scope: connection)

    async def task() -> tuple[Any, int]:
        current = asyncio.current_task()
        assert current is not None
        try:
            found: Any = await handlers.while_connected({}, work)
        except Exception as error:
            found = error
        return found, current.cancelling()

    running = asyncio.create_task(task())
    await asyncio.sleep(0)
    await leave(lambda: connection.on_lost() if connection.on_lost is not None else None)
    result = await asyncio.wait_for(running, 5)
    assert connection.on_lost is None
    return result


async def _at_once(lost: Callable[[], None]) -> None:
    lost()


async def test_a_caller_that_leaves_as_news_come_waits_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen: the wait lost its cancellation, and the follower stayed until its time was over."""
    news, reads = CommitNews(), []

    async def follows() -> str:
        with news.listen("p:x") as listener:
            while await listener.wait(3600):
                reads.append(await asyncio.sleep(0))
        return "its time is over"

    async def hears_and_leaves(lost: Callable[[], None]) -> None:
        await asyncio.sleep(0.01)
        news.announce(None)
        await asyncio.sleep(0)
        lost()

    assert (None, 0) == await _while_connected(monkeypatch, follows(), hears_and_leaves)
    assert 0 == news.keys


async def test_work_that_swallows_its_cancellation_leaves_none_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    async def swallows() -> str:
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            return "done"
        return "slept"

    async def fails() -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            raise ValueError("while it ended")

    assert (None, 0) == await _while_connected(monkeypatch, swallows(), _at_once)
    error, left = await _while_connected(monkeypatch, fails(), _at_once)
    assert isinstance(error, ValueError) and 0 == left


async def test_a_cancellation_of_another_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    connection = SimpleNamespace(on_lost=None)
    monkeypatch.setattr(handlers, "connection_of", lambda _scope: connection)
    running = asyncio.create_task(handlers.while_connected({}, asyncio.sleep(3600)))
    await asyncio.sleep(0)
    connection.on_lost()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
