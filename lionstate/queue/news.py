"""Wakes who waits for a commit: no polling, no memory for keys that nobody waits for."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from lionstate.errors import ClosedError
from lionstate.queue.ticket import Ticket

__all__ = ["CommitNews", "Listener"]


class Listener:
    """Hears of commits that may have touched one key, from when it was made on."""

    def __init__(self, news: CommitNews) -> None:
        """Listen; ``CommitNews.listen`` makes it."""
        self._news = news
        self._heard = asyncio.Event()

    def hear(self) -> None:
        """There is news."""
        self._heard.set()

    async def wait(self, seconds: float) -> bool:
        """Wait for news since the last call; False when the time is over.

        Raises:
            ClosedError: No more news will come.
        """
        if not self._news.is_closed:
            # Not `wait_for`, which before Python 3.12 loses a cancellation that comes together with the news.
            with suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._heard.wait()
        if self._news.is_closed:
            raise ClosedError("the store is closing")
        heard = self._heard.is_set()
        self._heard.clear()
        return heard


class CommitNews:
    """Tells listeners of commits by the keys of their tickets; for one event loop.

    Commits of other processes have no tickets: who learns of one calls ``announce(None)``.
    """

    def __init__(self) -> None:
        """Begin with nobody listening."""
        self._listeners: dict[str, set[Listener]] = {}
        self.is_closed = False

    @property
    def keys(self) -> int:
        """Keys that somebody listens for."""
        return len(self._listeners)

    @contextmanager
    def listen(self, key: str) -> Iterator[Listener]:
        """Listen for a key, such as ``p:`` and a progression's id. Look at the store inside, then wait."""
        listener = Listener(self)
        self._listeners.setdefault(key, set()).add(listener)
        try:
            yield listener
        finally:
            left = self._listeners[key]
            left.discard(listener)
            if not left:
                del self._listeners[key]

    def committed(self, tickets: Sequence[Ticket]) -> None:
        """The listener for ``WriteQueue.on_commit``. Cost: the keys of the batch."""
        if self._listeners:
            for ticket in tickets:
                self.announce(ticket.keys)

    def announce(self, keys: frozenset[str] | None) -> None:
        """Something may have changed under these keys; None is under any."""
        for key in self._listeners if keys is None else self._listeners.keys() & keys:
            for listener in self._listeners[key]:
                listener.hear()

    def close(self) -> None:
        """End every wait, and those that begin later."""
        self.is_closed = True
        self.announce(None)
