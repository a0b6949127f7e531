"""Reads: one hop and one snapshot per script, never in the way of the writer."""

from __future__ import annotations

import asyncio
import queue
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol, TypeVar

from sqlalchemy import Connection, event
from sqlalchemy.ext.asyncio import AsyncConnection

from lionstate.dialects import Dialect, dialect_named
from lionstate.engine.aiosqlite import create_sqlite_engine
from lionstate.engine.connections import Connections, of_pool
from lionstate.engine.finish import to_the_end
from lionstate.engine.pool import Lender, create_engine
from lionstate.engine.pragmas import connect, open_connection
from lionstate.engine.script import Script, done_here
from lionstate.engine.settings import EngineSettings
from lionstate.engine.surface import SqlReads
from lionstate.engine.threads import Mailbox, WorkerThread
from lionstate.engine.transaction import translate
from lionstate.engine.url import StoreURL
from lionstate.errors import BackendUnavailableError, ClosedError

__all__ = ["PostgresqlReader", "Reader", "Snapshot", "SqliteReader"]

R = TypeVar("R")


class Reader(Protocol):
    """Runs read scripts, each in one snapshot."""

    async def run(self, script: Script[R]) -> R:
        """Run one script; driver errors come out translated."""
        ...

    def snapshot(self) -> AbstractAsyncContextManager[SqlReads]:
        """An async context manager over several reads that see one snapshot."""
        ...

    def connections(self) -> Connections:
        """Its connections now, from memory."""
        ...

    async def close(self) -> None:
        """Close the connections after the running reads."""
        ...


class Snapshot(SqlReads):
    """What ``read_snapshot()`` yields: scripts and queries on one repeatable read connection."""

    def __init__(self, conn: AsyncConnection, dialect: Dialect) -> None:
        """Wrap a connection whose transaction is open."""
        self._conn = conn
        self._dialect = dialect

    async def run(self, script: Script[R], /) -> R:
        """Run one read script."""
        try:
            return await self._conn.run_sync(script)
        except Exception as error:
            raise translate(self._dialect, error) from error


class SqliteReader:
    """A few reader threads that share one queue; a script runs in one deferred transaction."""

    def __init__(
        self,
        path: Path,
        module: ModuleType,
        settings: EngineSettings,
        *,
        vfs: str | None = None,
        prepare: Callable[[Any], None] | None = None,
        outdated: str | None = None,
        require_in_place: Callable[[], None] = lambda: None,
    ) -> None:
        """Prepare the threads; connections are made when first needed.

        Args:
            path: The store file.
            module: The DBAPI module.
            settings: Waiting, number of threads.
            vfs: A SQLite VFS by name, for tests.
            prepare: Called with each new driver connection before it becomes read-only.
            outdated: A query that counts reasons, in the snapshot of a read, to replace what was prepared.
            require_in_place: Raises when the path names another file; no connection is made then.
        """
        self.dialect = dialect_named("sqlite")
        self._path = path
        self._module = module
        self._settings = settings
        self._vfs = vfs
        self._prepare = prepare
        self._outdated = outdated
        self._require_in_place = require_in_place
        self._mailbox = Mailbox()
        self._threads = [WorkerThread(f"lionstate-reader-{n}", self._mailbox) for n in range(settings.readers)]
        self._idle: queue.SimpleQueue[tuple[Any, Connection]] = queue.SimpleQueue()
        self._running: set[Any] = set()
        self._engine = create_sqlite_engine(self._open_driver, module, settings.readers)
        self._closed = False
        for thread in self._threads:
            thread.start()

    def _open_driver(self) -> Any:
        self._require_in_place()
        driver = open_connection(self._module, self._path, self._settings, writer=False, vfs=self._vfs)
        try:
            if self._prepare is not None:
                driver.execute("PRAGMA query_only = 0")
                self._prepare(driver)
            driver.execute("PRAGMA query_only = 1")
        except BaseException:
            driver.close()
            raise
        return driver

    def _checkout(self) -> tuple[Any, Connection]:
        try:
            return self._idle.get_nowait()
        except queue.Empty:
            driver = self._open_driver()
            return driver, connect(driver, self._module)

    async def run(self, script: Script[R]) -> R:
        """Run one script on a reader thread; after an error that the connection does not survive it is replaced."""

        def work() -> R:
            try:
                while True:
                    driver, conn = self._checkout()
                    with self._lent(driver, conn) as current:
                        if current:
                            found = script(conn)
                    if current:
                        # Here and not where the caller waits: that would be one hop more, or the loop's own time.
                        return done_here(found)
            except Exception as error:
                raise translate(self.dialect, error) from error

        # A caller that goes away takes its future along; the thread ends the work and nobody hears of it.
        return await self._threads[0].submit(work)

    @contextmanager
    def _lent(self, driver: Any, conn: Connection) -> Iterator[bool]:
        """One transaction; yields whether the connection fits the store as it is now."""
        self._running.add(driver)
        reusable = False
        try:
            driver.execute("BEGIN")
            try:
                current = self._outdated is None or driver.execute(self._outdated).fetchone()[0] == 0
                yield current
            finally:
                # SQLAlchemy's own begin does nothing here but cost; a script that uses it begins by doing so.
                if conn.in_transaction():
                    conn.rollback()
                if driver.in_transaction:
                    driver.execute("ROLLBACK")
            reusable = current
        except Exception as error:
            reusable = not driver.in_transaction and not self.dialect.is_store_failure(error)
            raise
        finally:
            self._running.discard(driver)
            if reusable:
                self._idle.put((driver, conn))
            else:
                _discard(driver, conn)

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[Snapshot]:
        """One deferred transaction on a connection of the aiosqlite pool."""
        if self._closed:
            raise ClosedError()
        conn = await self._begin_snapshot()
        try:
            yield Snapshot(conn, self.dialect)
        finally:
            await to_the_end(_give_back(conn))

    async def _begin_snapshot(self) -> AsyncConnection:
        while True:
            try:
                conn = await self._engine.connect()
            except Exception as error:
                raise translate(self.dialect, error) from error
            try:
                await conn.exec_driver_sql("BEGIN")
                if self._outdated is None or (await conn.exec_driver_sql(self._outdated)).scalar_one() == 0:
                    return conn
                await conn.invalidate()
            except BaseException:
                await to_the_end(_give_back(conn))
                raise
            await conn.close()

    def connections(self) -> Connections:
        """Those of the reader threads and those of the snapshots."""
        return of_pool(self._engine).and_(Connections(self._idle.qsize(), len(self._running)))

    async def close(self) -> None:
        """Let the running reads end, interrupt those that do not within 5 s, close the connections.

        A cancelled caller does not stop it half-way, which would leave connections open.
        """
        if not self._closed:
            self._closed = True
            await to_the_end(self._close())

    async def _close(self) -> None:
        for thread in self._threads:
            thread.end()
        for thread in self._threads:
            if not await asyncio.to_thread(thread.join):
                for driver in tuple(self._running):
                    driver.interrupt()
                await asyncio.to_thread(thread.join)
        self._mailbox.close_after(self._threads)
        with suppress(queue.Empty):
            while True:
                _discard(*self._idle.get_nowait())
        await self._engine.dispose()


def _discard(driver: Any, conn: Connection) -> None:
    with suppress(Exception):
        conn.close()
    with suppress(Exception):
        driver.close()


async def _give_back(conn: AsyncConnection) -> None:
    try:
        await conn.rollback()
    except Exception:
        await conn.invalidate()
    await conn.close()


class PostgresqlReader:
    """A pool of connections; a script runs in one REPEATABLE READ READ ONLY transaction.

    A script whose first statement asks for nothing else (``Dialect.seek_rows``) takes that one round trip: the
    transaction begins with the statement after it.
    """

    def __init__(
        self, url: StoreURL, settings: EngineSettings, *, prepare: Callable[[Any], None] | None = None
    ) -> None:
        """Prepare the pool; ``prepare`` is called with each new driver connection."""
        self.dialect = dialect_named("postgresql")
        self.engine = create_engine(url, settings, pool_size=settings.readers, for_writes=False)
        if prepare is not None:
            made = prepare
            event.listen(self.engine.sync_engine, "connect", lambda driver, _record: made(driver))
        snapshots = self.engine.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
        self._lender = Lender(snapshots, self.dialect)
        self._closed = False

    async def run(self, script: Script[R]) -> R:
        """Run one script; a lost connection or a stale cached statement is tried again.

        Twice: a connection may be found lost outside of SQLAlchemy, which then knows nothing of the others.
        """
        for attempts_left in (2, 1, 0):
            try:
                return await self._once(script)
            except BackendUnavailableError:
                if not attempts_left:
                    raise
            except Exception as error:
                if not attempts_left or not self.dialect.is_transient(error.__cause__ or error):
                    raise
        raise BackendUnavailableError()

    async def _once(self, script: Script[R]) -> R:
        self._require_open()
        conn = await self._lender.take()
        clean = False
        try:
            found = await conn.run_sync(_in_one_snapshot, script)
            clean = True
            return found
        except Exception as error:
            raise translate(self.dialect, error) from error
        finally:
            await self._lender.give_back(conn, clean=clean)

    def _require_open(self) -> None:
        if self._closed:
            raise ClosedError()

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[Snapshot]:
        """One REPEATABLE READ READ ONLY transaction on a connection of the pool."""
        self._require_open()
        conn = await self._lender.take()
        try:
            await conn.begin()
            yield Snapshot(conn, self.dialect)
        finally:
            await self._lender.give_back(conn, clean=False)

    def connections(self) -> Connections:
        """Those of the pool."""
        return self._lender.connections()

    async def close(self) -> None:
        """Dispose the pool; connections still in use close when they come back."""
        self._closed = True
        await self._lender.close()


def _in_one_snapshot(conn: Connection, script: Script[R]) -> R:
    found = script(conn)
    if conn.in_transaction():
        conn.rollback()
    return found
