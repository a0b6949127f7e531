"""What is read of either store, page by page, one page ahead of what is done with it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Protocol, TypeVar

from sqlalchemy import Connection

from lionstate.copying.tables import CopiedTable, Key, Page, Reading
from lionstate.errors import BackendError, UncopyableError

__all__ = ["Side", "pages"]

R = TypeVar("R")


class Side(Protocol):
    """A store whose tables can be read."""

    readings: dict[str, Reading]

    async def run(self, script: Callable[[Connection], R]) -> R:
        """Run one read script in a snapshot of its own."""
        ...


@asynccontextmanager
async def pages(side: Side, copied: CopiedTable, after: Key | None = None) -> AsyncIterator[AsyncIterator[Page]]:
    """The pages of a table behind a key, to iterate over inside the block; each is a snapshot of its own."""
    reading = side.readings[copied.name]

    async def page_behind(after: Key | None) -> Page:
        try:
            return await side.run(lambda conn: reading.page(conn, after))
        except BackendError as error:
            bad = await side.run(partial(reading.undecodable, after=after))
            if bad is None:
                raise
            name, key = bad
            raise UncopyableError(
                f"the text of {copied.name}.{name} of {', '.join(map(str, key))} is not UTF-8"
            ) from error

    def read(after: Key | None) -> asyncio.Task[Page]:
        return asyncio.ensure_future(page_behind(after))

    ahead = read(after)

    async def found() -> AsyncIterator[Page]:
        nonlocal ahead
        while (page := await _unharmed(ahead)).rows:
            ahead = read(copied.key_of(page.rows[-1]))
            yield page

    try:
        yield found()
    finally:
        # Short, and not cancelled: the connection would not survive it, and is closed after this.
        await asyncio.wait([ahead])
        ahead.exception()


async def _unharmed(task: asyncio.Task[Page]) -> Page:
    """The result of a task that goes on when its waiter is cancelled."""
    await asyncio.wait([task])
    return task.result()
