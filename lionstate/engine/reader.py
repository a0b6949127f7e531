"""Reads: one hop and one snapshot per script, never in the way of the writer."""

from __future__ import annotations

import asyncio
import queue
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol, TypeVar

from sqlalchemy import Connection
from sqlalchemy.ext.asyncio import AsyncConnection

from lionstate.dialects import dialect_named
from lionstate.engine.aiosqlite import create_sqlite_engine
from lionstate.engine.postgresql import create_engine
from lionstate.engine.pragmas import connect, open_connection
from lionstate.engine.script import Script
from lionstate.engine.settings import EngineSettings
from lionstate.engine.sqlite import SqliteWriter
from lionstate.engine.threads import WorkerThread
from lionstate.engine.transaction import translate
from lionstate.engine.url import StoreURL
from lionstate.errors import BackendUnavailableError

__all__ = ["MemoryReader", "PostgresqlReader", "Reader", "SqliteReader"]

R = TypeVar("R")


class Reader(Protocol):
    """Runs read scripts, each in one snapshot."""

    async def run(self, script: Script[R]) -> R:
        """Run one script; driver errors come out translated."""
        ...

    def snapshot(self) -> Any:
        """An async context manager over an AsyncConnection that sees one snapshot."""
        ...

    async def close(self) -> None:
        """Close the connections after the running reads."""
        ...


class SqliteReader:
    """A few reader threads that share one queue; a script runs in one deferred transaction."""

    def __init__(self, path: Path, module: ModuleType, settings: EngineSettings, *, vfs: str | None = None) -> None:
        """Prepare the threads; each connects at its first read."""
        self.dialect = dialect_named("sqlite")
        self._path = path
        self._module = module
        self._settings = settings
        self._vfs = vfs
        self._jobs: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._threads = [WorkerThread(f"lionstate-reader-{n}", self._jobs) for n in range(settings.readers)]
        self._idle: queue.SimpleQueue[tuple[Any, Connection]] = queue.SimpleQueue()
        self._engine = create_sqlite_engine(path, module, settings)
        for thread in self._threads:
            thread.start()

    def _checkout(self) -> tuple[Any, Connection]:
        try:
            return self._idle.get_nowait()
        except queue.Empty:
            driver = open_connection(self._module, self._path, self._settings, writer=False, vfs=self._vfs)
            driver.execute("PRAGMA query_only = 1")
            return driver, connect(driver, self._module)

    async def run(self, script: Script[R]) -> R:
        """Run one script on a reader thread."""

        def work() -> R:
            try:
                driver, conn = self._checkout()
                driver.execute("BEGIN")
                conn.begin()
                try:
                    return script(conn)
                finally:
                    driver.execute("ROLLBACK")
                    conn.rollback()
                    self._idle.put((driver, conn))
            except Exception as error:
                raise translate(self.dialect, error) from error

        return await self._threads[0].submit(work)

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[AsyncConnection]:
        """A connection of the aiosqlite pool inside a deferred transaction."""
        async with self._engine.connect() as conn:
            await conn.exec_driver_sql("BEGIN")
            try:
                yield conn
            finally:
                await conn.rollback()

    async def close(self) -> None:
        """End the threads and close their connections."""
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            await asyncio.to_thread(thread.join)
        with suppress(queue.Empty):
            while True:
                driver, conn = self._idle.get_nowait()
                conn.close()
                driver.close()
        await self._engine.dispose()


class MemoryReader:
    """A memory store has one connection, the writer's; reads take their turn on it."""

    def __init__(self, writer: SqliteWriter) -> None:
        """Read through ``writer``."""
        self._writer = writer

    async def run(self, script: Script[R]) -> R:
        """Run one script on the writer's connection."""
        return await self._writer.read(script)

    def snapshot(self) -> Any:
        """The writer's own transaction: the only snapshot that a memory store has."""
        return self._writer.transaction()

    async def close(self) -> None:
        """Nothing of its own to close."""


class PostgresqlReader:
    """A pool of connections; a script runs in one REPEATABLE READ READ ONLY transaction."""

    def __init__(self, url: StoreURL, settings: EngineSettings) -> None:
        """Prepare the pool."""
        self.dialect = dialect_named("postgresql")
        self.engine = create_engine(url, settings, pool_size=settings.readers, for_writes=False)
        self._snapshots = self.engine.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)

    async def run(self, script: Script[R]) -> R:
        """Run one script; a lost connection is tried once more on a new one."""
        for attempt in (1, 2):
            try:
                async with self._snapshots.connect() as conn, conn.begin():
                    return await conn.run_sync(script)
            except Exception as error:
                failure = translate(self.dialect, error)
                if attempt == 2 or not isinstance(failure, BackendUnavailableError):
                    raise failure from error
        raise BackendUnavailableError()

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[AsyncConnection]:
        """A connection inside one REPEATABLE READ READ ONLY transaction."""
        async with self._snapshots.connect() as conn, conn.begin():
            yield conn

    async def close(self) -> None:
        """Dispose the pool."""
        await self.engine.dispose()
