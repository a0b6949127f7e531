"""The two databases under actors whose statements are interleaved.

On PostgreSQL an actor waits when `pg_blocking_pids` names another actor; on SQLite when its BEGIN IMMEDIATE is refused.
"""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from sqlalchemy import Connection, event, text
from sqlalchemy.util import await_only, greenlet_spawn

from lionstate import StateDB
from lionstate.dialects import dialect_named
from lionstate.engine.pool import create_engine
from lionstate.engine.pragmas import connect, open_connection
from lionstate.engine.settings import EngineSettings
from lionstate.engine.url import StoreURL
from lionstate.migration.cutover import prepare_fence
from lionstate.migration.port import bound
from tests.support.backends import database_of
from tests.support.interleaving import GIVE_UP_SECONDS, Actor, Side, Status, current

__all__ = ["open_side"]

_POLL_SECONDS = 0.003

Script = Callable[[Connection], Any]


def _stop() -> None:
    """Before a statement, on the synchronous side."""
    actor = current.get()
    if actor is not None:
        await_only(actor.gate())


class _Cursor(sqlite3.Cursor):
    def execute(self, *args: Any) -> Any:
        _stop()
        return super().execute(*args)

    def executemany(self, *args: Any) -> Any:
        _stop()
        return super().executemany(*args)


class _Driver(sqlite3.Connection):
    def cursor(self, *_: Any) -> Any:
        return super().cursor(_Cursor)

    # The driver's own short cuts do not ask for a cursor.
    def execute(self, *args: Any) -> Any:
        return self.cursor().execute(*args)

    def executemany(self, *args: Any) -> Any:
        return self.cursor().executemany(*args)


class _Module:
    """The driver's module, with connections that stop before each statement."""

    def __getattr__(self, name: str) -> Any:
        return getattr(sqlite3, name)

    @staticmethod
    def connect(*args: Any, **options: Any) -> Any:
        return sqlite3.connect(*args, **options, factory=_Driver)


class SqliteSide:
    """Connections on one file; whoever finds the lock taken waits."""

    def __init__(self, path: Path) -> None:
        self.dialect = dialect_named("sqlite")
        self._path = path
        self._pool: list[Connection] = []
        self._free: list[Connection] = []
        self._direct = self._connect()

    def _connect(self) -> Connection:
        module: Any = _Module()
        driver = open_connection(module, self._path, EngineSettings(synchronous="NORMAL"), writer=True)
        driver.execute("PRAGMA synchronous = OFF")
        driver.execute("PRAGMA busy_timeout = 0")
        conn = connect(driver, module)
        self._pool.append(conn)
        return conn

    async def open(self, actor: Actor) -> None:
        actor.connection = self._free.pop() if self._free else self._connect()

    def give_back(self, actor: Actor) -> None:
        driver = actor.connection.connection.dbapi_connection
        if driver.in_transaction:
            driver.rollback()
        self._free.append(actor.connection)

    async def _transaction(self, actor: Actor, script: Script, begin: Callable[[Any], Awaitable[None]]) -> Any:
        driver = actor.connection.connection.dbapi_connection
        token = current.set(None)
        try:
            await begin(driver)
            current.reset(token)
            found = await greenlet_spawn(script, actor.connection)
        except BaseException:
            token = current.set(None)
            driver.execute("ROLLBACK")
            actor.released = True
            raise
        return found

    async def read(self, actor: Actor, script: Script) -> Any:
        async def begin(driver: Any) -> None:
            driver.execute("BEGIN")

        found = await self._transaction(actor, script, begin)
        self._plainly(actor, "COMMIT")
        return found

    async def write(self, actor: Actor, script: Script) -> Any:
        async def begin(driver: Any) -> None:
            await actor.gate()
            while True:
                try:
                    driver.execute("BEGIN IMMEDIATE")
                except sqlite3.OperationalError as error:
                    if "locked" not in str(error):
                        raise
                    await actor.gate(Status.WAITING)
                else:
                    return

        found = await self._transaction(actor, script, begin)
        await actor.gate()
        self._plainly(actor, "COMMIT")
        actor.released = True
        return found

    @staticmethod
    def _plainly(actor: Actor, sql: str) -> None:
        token = current.set(None)
        actor.connection.connection.dbapi_connection.execute(sql)
        current.reset(token)

    async def settle(self, actor: Actor, actors: Sequence[Actor]) -> None:
        await actor.arrived()

    async def released(self, waiting: Sequence[Actor], actors: Sequence[Actor]) -> None:
        for actor in waiting:
            # It stands before its next attempt.
            actor.status = Status.READY

    async def direct(self, script: Script) -> Any:
        driver: Any = self._direct.connection.dbapi_connection
        driver.execute("BEGIN IMMEDIATE")
        try:
            return script(self._direct)
        finally:
            driver.execute("COMMIT")

    async def close(self) -> None:
        for conn in self._pool:
            driver: Any = conn.connection.dbapi_connection
            conn.close()
            driver.close()


def _session_class(base: Any) -> Any:
    async def fetch(self: Any, *args: Any, **options: Any) -> Any:
        await _stop_async()
        return await base.fetch(self, *args, **options)

    async def execute(self: Any, sql: str, *args: Any, **options: Any) -> Any:
        if args:
            await _stop_async()
        return await base.execute(self, sql, *args, **options)

    return type("Session", (base,), {"__slots__": (), "fetch": fetch, "execute": execute})


async def _stop_async() -> None:
    actor = current.get()
    if actor is not None:
        await actor.gate()


class PostgresqlSide:
    """Connections of one database, which wait for row locks as long as they must."""

    def __init__(self, dsn: str) -> None:
        self.dialect = dialect_named("postgresql")
        self._stack = AsyncExitStack()
        self._engine = create_engine(StoreURL.of(dsn), EngineSettings(), pool_size=8, for_writes=True)
        event.listen(self._engine.sync_engine, "do_connect", self._as_session)
        event.listen(self._engine.sync_engine, "before_cursor_execute", self._before)
        self._dsn = dsn.replace("+asyncpg", "")
        self._watcher: Any = None
        self._direct: Any = None
        self._pids: dict[Any, int] = {}
        self._free: list[Any] = []

    @staticmethod
    def _as_session(_dialect: Any, _record: Any, _args: Any, parameters: dict[str, Any]) -> None:
        parameters["connection_class"] = _session_class(parameters["connection_class"])

    @staticmethod
    def _before(*_: Any) -> None:
        _stop()

    async def _connect(self) -> Any:
        conn = await self._stack.enter_async_context(self._engine.connect())
        async with conn.begin():
            await conn.execute(text("SET lock_timeout = 0"))
            await conn.execute(text("SET synchronous_commit = off"))
            self._pids[conn] = (await conn.execute(text("SELECT pg_backend_pid()"))).scalar_one()
        return conn

    async def open(self, actor: Actor) -> None:
        if self._watcher is None:
            self._watcher = await asyncpg.connect(self._dsn)
            self._stack.push_async_callback(self._watcher.close)
        actor.connection = self._free.pop() if self._free else await self._connect()

    def give_back(self, actor: Actor) -> None:
        self._free.append(actor.connection)

    async def read(self, actor: Actor, script: Script) -> Any:
        conn = actor.connection
        # Its BEGIN goes out with the first statement.
        await conn.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)
        async with conn.begin():
            return await conn.run_sync(script)

    async def write(self, actor: Actor, script: Script) -> Any:
        conn = actor.connection
        await conn.execution_options(isolation_level="READ COMMITTED", postgresql_readonly=False)
        transaction = await conn.begin()
        try:
            found = await conn.run_sync(script)
            await actor.gate()
        except BaseException:
            await transaction.rollback()
            actor.released = True
            raise
        await transaction.commit()
        actor.released = True
        return found

    async def settle(self, actor: Actor, actors: Sequence[Actor]) -> None:
        pids = [self._pids[other.connection] for other in actors if other is not actor]
        async with asyncio.timeout(GIVE_UP_SECONDS):
            while not await actor.arrived(_POLL_SECONDS):
                blocking = await self._watcher.fetchval("SELECT pg_blocking_pids($1)", self._pids[actor.connection])
                if set(blocking) & set(pids):
                    actor.status = Status.WAITING
                    return

    async def released(self, waiting: Sequence[Actor], actors: Sequence[Actor]) -> None:
        for actor in waiting:
            if actor.status is Status.WAITING:
                actor.status = Status.RUNNING
                await self.settle(actor, actors)

    async def direct(self, script: Script) -> Any:
        if self._direct is None:
            self._direct = await self._connect()
        async with self._direct.begin():
            return await self._direct.run_sync(script)

    async def close(self) -> None:
        await self._stack.aclose()
        await self._engine.dispose()


@asynccontextmanager
async def open_side(request: pytest.FixtureRequest, empty_store: Path, folder: Path) -> AsyncIterator[Side]:
    """The side that a fixture's parameter names, on a store that has its fence."""
    side: SqliteSide | PostgresqlSide
    if "postgresql" in request.param:
        dsn = database_of(request.getfixturevalue(request.param.replace("postgresql-", "postgres_")), "interleaving")
        async with StateDB(url=dsn):
            side = PostgresqlSide(dsn)
    else:
        side = SqliteSide(shutil.copyfile(empty_store, folder / "state.db"))
    try:
        await side.direct(bound(prepare_fence, actor="test", now=time.time()))
        yield side
    finally:
        await side.close()
