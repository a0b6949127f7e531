"""What is read of either store, page by page, one page ahead of what is done with it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Protocol, TypeVar

from sqlalchemy import Connection

from lionstate.copying.tables import CopiedTable, Key, Page, Reading

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

    def read(after: Key | None) -> asyncio.Task[Page]:
        return asyncio.ensure_future(side.run(lambda conn: reading.page(conn, after)))

    ahead = read(after)

    async def found() -> AsyncIterator[Page]:
        nonlocal ahead
        while (page := await ahead).rows:
            ahead = read(copied.key_of(page.rows[-1]))
            yield page

    try:
        yield found()
    finally:
        # Connections are closed after this: nothing may run on them then.
        ahead.cancel()
        await asyncio.wait([ahead])
