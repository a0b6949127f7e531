"""A TCP proxy in front of a PostgreSQL server that cuts connections at a chosen point of the conversation."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Literal

from sqlalchemy.engine import make_url

__all__ = ["CuttingProxy", "cutting_proxy"]


class CuttingProxy:
    """Forwards bytes until told otherwise.

    Attributes:
        dsn: The URL of the database through the proxy.
        cuts: How many connections were cut.
        heard: How many messages clients sent: as many as round trips, where each waits for its answer.
    """

    def __init__(self, dsn: str) -> None:
        """Forward to the server of ``dsn``, which is reached over loopback TCP."""
        self._url = make_url(dsn)
        self.dsn = ""
        self.cuts = 0
        self.heard = 0
        self._needle: bytes | None = None
        self._when: Literal["before", "after"] = "before"
        self._then_refuse = False
        self.refusing = False
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def cut(self, needle: bytes, when: Literal["before", "after"], *, then_refuse: bool = False) -> None:
        """Cut the next connection whose client sends ``needle``: before the server sees it, or after it was sent on.

        Args:
            needle: Bytes of one message of the client.
            when: ``after`` waits for the server's answer and drops it.
            then_refuse: Let nobody connect afterwards.
        """
        self._needle, self._when, self._then_refuse = needle, when, then_refuse

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one client."""
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        if self.refusing:
            writer.close()
            return
        up_reader, up_writer = await asyncio.open_connection(self._url.host, self._url.port)
        self._writers |= {writer, up_writer}
        answered = asyncio.Event()
        muted = asyncio.Event()

        async def down() -> None:
            while data := await up_reader.read(65536):
                answered.set()
                if not muted.is_set():
                    writer.write(data)
                    await writer.drain()

        async def up() -> None:
            while data := await reader.read(65536):
                self.heard += 1
                if self._needle is not None and self._needle in data:
                    self._needle = None
                    self.refusing = self._then_refuse
                    if self._when == "after":
                        muted.set()
                        answered.clear()
                        up_writer.write(data)
                        await answered.wait()
                    self.cuts += 1
                    return
                up_writer.write(data)
                await up_writer.drain()

        tasks = [asyncio.create_task(down()), asyncio.create_task(up())]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for running in tasks:
                running.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            for closing in (writer, up_writer):
                closing.transport.abort()
                with suppress(Exception):
                    await closing.wait_closed()
                self._writers.discard(closing)

    async def close(self) -> None:
        """Cut what is left."""
        for writer in tuple(self._writers):
            writer.transport.abort()
        if self._tasks:
            await asyncio.wait(self._tasks)


@asynccontextmanager
async def cutting_proxy(dsn: str) -> AsyncIterator[CuttingProxy]:
    """A proxy on a free loopback port."""
    proxy = CuttingProxy(dsn)
    server = await asyncio.start_server(proxy.accept, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    proxy.dsn = make_url(dsn).set(host="127.0.0.1", port=port).render_as_string(hide_password=False)
    try:
        yield proxy
    finally:
        server.close()
        await proxy.close()
        await server.wait_closed()
