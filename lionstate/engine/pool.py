"""Pools of connections to a PostgreSQL server, and what stays at hand of them between two uses."""

from __future__ import annotations

import asyncio
import functools
import ssl
from contextlib import suppress
from typing import Any, Final

from sqlalchemy import event
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.pool import AsyncAdaptedQueuePool

from lionstate.dialects import Dialect
from lionstate.dialects.server import SEEKS
from lionstate.engine.connections import Connections, of_pool
from lionstate.engine.finish import to_the_end
from lionstate.engine.hosts import HOST_SECONDS, Hosts, seconds_of
from lionstate.engine.keepalive import keep_alive
from lionstate.engine.settings import EngineSettings
from lionstate.engine.transaction import translate
from lionstate.engine.url import StoreURL
from lionstate.errors import BackendBusyError, BackendUnavailableError, InvalidInputError, StateError

__all__ = ["LANE_SETTINGS", "Lender", "check_out", "create_engine"]

_APPLICATION = "lionstate"
LANE_SETTINGS: Final = {"lock_timeout": "500", "enable_seqscan": "off"}
"""What a lane runs seeks by key. Without statistics, and for some numbers of keys with them, the planner takes a scan
of the whole table for cheaper (design decision 10)."""
# A page that is read without a transaction is planned under these, once: the limit is a parameter, for which the server
# would plan it anew each time, which takes longer than reading it. BEGIN takes them back in its own round trip, for
# everything else that is read.
_SEEK_SETTINGS: Final = {
    "enable_seqscan": "off",
    "enable_sort": "off",
    "enable_material": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "enable_bitmapscan": "off",
    "plan_cache_mode": "force_generic_plan",
}
_AS_USUAL: Final = "".join(
    f" SET LOCAL {name} = {'on' if value == 'off' else 'auto'};" for name, value in _SEEK_SETTINGS.items()
)


@functools.cache
def _connection_class(after_begin: str) -> Any:
    """asyncpg's connection, whose BEGIN says more and whose COMMIT says so when it committed nothing."""
    # Users of SQLite never load it.
    import asyncpg

    async def execute(self: Any, query: str, *args: Any, **options: Any) -> Any:
        # The ends and the beginnings of transactions are all that comes without arguments.
        if not args and query.startswith("BEGIN"):
            query += after_begin
        status = await asyncpg.Connection.execute(self, query, *args, **options)
        if status == "ROLLBACK" and not args and query.startswith("COMMIT"):
            raise asyncpg.InFailedSQLTransactionError("an error had ended the transaction before its COMMIT")
        return status

    return type("Connection", (asyncpg.Connection,), {"__slots__": (), "execute": execute})


def _ssl_of(mode: str) -> Any:
    """asyncpg's ``ssl`` argument for libpq's ``sslmode``; an unknown mode is refused, never read as "off"."""
    if mode in ("prefer", "allow"):
        return mode
    if mode == "disable":
        return False
    if mode not in ("require", "verify-ca", "verify-full"):
        raise InvalidInputError("sslmode is disable, allow, prefer, require, verify-ca or verify-full")
    context = ssl.create_default_context()
    context.check_hostname = mode == "verify-full"
    if mode == "require":
        context.verify_mode = ssl.CERT_NONE
    return context


def create_engine(url: StoreURL, settings: EngineSettings, *, pool_size: int, for_writes: bool) -> AsyncEngine:
    """An asyncpg engine; libpq's words in the URL are mapped, startup settings fall away behind a pooler."""
    target = url.sqlalchemy
    query = dict(target.query)
    mode = query.pop("sslmode", None)
    arguments: dict[str, Any] = {}
    if mode is not None:
        arguments["ssl"] = _ssl_of(str(mode))
    limit = query.pop("connect_timeout", None)
    if limit is not None:
        arguments["timeout"] = seconds_of(str(limit))
    if isinstance(query.get("host"), tuple):
        # A standby answers too, and takes no writes.
        query.setdefault("target_session_attrs", "read-write")
        arguments.setdefault("timeout", HOST_SECONDS)
        arguments["async_creator_fn"] = Hosts().connect
    if settings.pooler == "transaction":
        arguments["statement_cache_size"] = 0
        query["prepared_statement_cache_size"] = "0"
    else:
        arguments["server_settings"] = {"application_name": _APPLICATION, "jit": "off"}
        arguments["server_settings"] |= LANE_SETTINGS if for_writes else _SEEK_SETTINGS
    seeks = not for_writes and settings.pooler != "transaction"
    arguments["connection_class"] = _connection_class(_AS_USUAL if seeks else "")
    engine = create_async_engine(
        target.set(query=query),
        poolclass=AsyncAdaptedQueuePool,
        pool_size=pool_size,
        max_overflow=0,
        pool_timeout=30,
        connect_args=arguments,
        isolation_level="READ COMMITTED",
        hide_parameters=True,
    )
    event.listen(engine.sync_engine, "connect", keep_alive)
    if seeks:
        event.listen(engine.sync_engine, "connect", lambda _driver, record: record.info.update({SEEKS: True}))
    return engine


def _connect_failure(dialect: Dialect, error: BaseException) -> StateError:
    """The public exception for a connection that could not be had: nothing was written, trying later may help."""
    if isinstance(error, PoolTimeout):
        found: StateError = BackendBusyError("every connection to the database was in use for 30 s")
    else:
        found = translate(dialect, error)
        if found.code == "backend":
            found = BackendUnavailableError(f"the database cannot be reached: {type(error).__name__}")
    found.__cause__ = error
    return found


_connecting: set[asyncio.Task[Any]] = set()


async def check_out(engine: AsyncEngine, dialect: Dialect) -> AsyncConnection:
    """A connection of the pool.

    asyncpg does not survive a cancellation while it connects: the attempt then goes on by itself, and what comes of
    it goes back to the pool.

    Raises:
        StateError: No connection; unreachable, or all in use.
    """

    async def connect() -> AsyncConnection:
        return await engine.connect()

    async def give_back(attempt: asyncio.Task[AsyncConnection]) -> None:
        with suppress(Exception):
            await (await attempt).close()

    task = asyncio.ensure_future(connect())
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        going_back = asyncio.ensure_future(give_back(task))
        _connecting.add(going_back)
        going_back.add_done_callback(_connecting.discard)
        raise
    except Exception as error:
        raise _connect_failure(dialect, error) from error


class Lender:
    """Lends the connections of one engine.

    One that comes back as it was lent stays checked out for the next use, because SQLAlchemy's way into the pool and
    out of it takes longer than a short statement; while somebody waits for the pool it goes there.
    """

    def __init__(self, engine: AsyncEngine, dialect: Dialect) -> None:
        """Lend what ``engine`` has; it is disposed by ``close``."""
        self.engine = engine
        self._dialect = dialect
        self._idle: list[AsyncConnection] = []
        self._waiting = 0
        self._closed = False

    async def take(self) -> AsyncConnection:
        """A connection without a transaction.

        Raises:
            StateError: No connection; unreachable, or all in use.
        """
        while not _is_alive(conn := self._idle.pop() if self._idle else await self._check_out()):
            await to_the_end(_put_back(conn))
        return conn

    async def _check_out(self) -> AsyncConnection:
        self._waiting += 1
        try:
            return await check_out(self.engine, self._dialect)
        finally:
            self._waiting -= 1

    async def give_back(self, conn: AsyncConnection, *, clean: bool) -> None:
        """End the use of a connection; ``clean`` says that nothing failed and that no transaction is open.

        Any other is rolled back first, and is not used again if that leaves a doubt.
        """
        if clean and not self._closed and not self._waiting and _is_alive(conn) and not _raw(conn).is_in_transaction():
            self._idle.append(conn)
        else:
            await to_the_end(_put_back(conn))

    def connections(self) -> Connections:
        """Those of the engine, from memory."""
        idle, in_use = of_pool(self.engine)
        return Connections(idle + len(self._idle), in_use - len(self._idle))

    async def close(self) -> None:
        """Dispose the pool; connections still in use close when they come back."""
        self._closed = True
        while self._idle:
            await to_the_end(_put_back(self._idle.pop()))
        await self.engine.dispose()


def _raw(conn: AsyncConnection) -> Any:
    """asyncpg's connection under one that is checked out; None when it is gone."""
    sync = conn.sync_connection
    if sync is None or sync.closed or sync.invalidated:
        return None
    driver: Any = sync.connection.dbapi_connection
    return None if driver is None else driver.driver_connection


def _is_alive(conn: AsyncConnection) -> bool:
    raw = _raw(conn)
    return raw is not None and not raw.is_closed()


async def _put_back(conn: AsyncConnection) -> None:
    try:
        await conn.rollback()
        # A ROLLBACK that was cancelled half-way is one that SQLAlchemy takes for done.
        if not _is_alive(conn) or _raw(conn).is_in_transaction():
            await conn.invalidate()
    except Exception:
        with suppress(Exception):
            await conn.invalidate()
    with suppress(Exception):
        await conn.close()
