"""The writers of a PostgreSQL store: N lanes, one connection each, one transaction per batch."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

from sqlalchemy import Connection, event, text
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.pool import AsyncAdaptedQueuePool

from lionstate.dialects import Dialect, dialect_named
from lionstate.dialects.server import TransactionEnd, TransactionMark
from lionstate.engine.connections import Connections, of_pool
from lionstate.engine.finish import to_the_end
from lionstate.engine.hosts import HOST_SECONDS, Hosts, seconds_of
from lionstate.engine.keepalive import keep_alive
from lionstate.engine.observer import Observer
from lionstate.engine.script import Batch, NotWritten, Outcome, Script, Written, answer
from lionstate.engine.settings import EngineSettings
from lionstate.engine.surface import SqlWrites
from lionstate.engine.transaction import CommitFailed, execute_batch, translate
from lionstate.engine.url import StoreURL
from lionstate.engine.writer import Ended
from lionstate.errors import (
    BackendBusyError,
    BackendUnavailableError,
    ClosedError,
    DeadlineExceededError,
    InvalidInputError,
    OutcomeUnknownError,
    StateError,
)

__all__ = ["LaneTransaction", "PostgresqlWriter", "check_out", "create_engine"]

R = TypeVar("R")
LOCK_TIMEOUT_MS = 500
_STATUS_WAIT = 10.0
# What a COMMIT in doubt holds back waits too, and nobody hears that writes fail.
_GONE_SECONDS = 2.0
# What a lane runs seeks by key. Without statistics, and for some numbers of keys with them, the planner takes a scan of
# the whole table for cheaper (design decision 10).
_LANE_SETTINGS = {"lock_timeout": str(LOCK_TIMEOUT_MS), "enable_seqscan": "off"}
_SET_LOCAL = text("SELECT " + ", ".join(f"set_config('{name}', :{name}, true)" for name in _LANE_SETTINGS))
_STATUS_PAUSE = 0.1
_APPLICATION = "lionstate"


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
        if for_writes:
            arguments["server_settings"] |= _LANE_SETTINGS
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


class _LaneSession:
    """One transaction of one lane, on the synchronous side of ``run_sync``."""

    def __init__(self, conn: Connection, observer: Observer, lane: str, set_local: bool) -> None:
        self.conn = conn
        self.dialect = dialect_named("postgresql")
        self._observer = observer
        self._lane = lane
        self._set_local = set_local
        self.mark: TransactionMark | None = None
        self._since = 0.0

    def begin(self) -> None:
        self.mark = None
        self.conn.begin()
        self._since = time.monotonic()
        if self._set_local:
            self.conn.execute(_SET_LOCAL, _LANE_SETTINGS)

    def before_commit(self) -> None:
        """Bring the transaction's mark back; in one that an error has ended this raises, where COMMIT lies."""
        self.mark = self.dialect.transaction_mark(self.conn)

    def commit(self) -> None:
        started = time.monotonic()
        self.conn.commit()
        self._observer.commit(self._lane, time.monotonic() - started)
        self._released()

    def _released(self) -> None:
        if self._since:
            self._observer.lock_hold(self._lane, time.monotonic() - self._since)
            self._since = 0.0

    def rollback(self) -> None:
        self._released()
        try:
            self.conn.rollback()
        except Exception:
            with suppress(Exception):
                self.conn.invalidate()
                self.conn.rollback()

    def after_failed_commit(self, error: BaseException) -> StateError | None:
        return OutcomeUnknownError()


class LaneTransaction(SqlWrites):
    """What ``transaction()`` yields on PostgreSQL; the same surface as the SQLite writer's turn."""

    def __init__(self, conn: AsyncConnection) -> None:
        """Wrap a connection whose transaction is open."""
        self._conn = conn
        self._dialect = dialect_named("postgresql")

    async def run(self, script: Script[R], /) -> R:
        """Run one script inside the transaction; a refusal is raised, and what the script wrote before it stays."""
        try:
            value = await self._conn.run_sync(script)
        except Exception as error:
            raise translate(self._dialect, error) from error
        return answer(value)


class PostgresqlWriter:
    """Runs each batch in one transaction on a pooled connection.

    A COMMIT that raised is decided by ``pg_xact_status`` of the transaction id that the batch brought back before it,
    asked of the same run of the server: after a crash or a failover the id may be another transaction's.
    """

    def __init__(self, url: StoreURL, settings: EngineSettings, observer: Observer) -> None:
        """Prepare the lanes; they connect when first used."""
        self.dialect = dialect_named("postgresql")
        self._settings = settings
        self._observer = observer
        self.engine = create_engine(url, settings, pool_size=settings.lanes + 1, for_writes=True)
        self.lanes = settings.lanes
        self._running: set[asyncio.Task[list[Outcome]]] = set()
        self._started: dict[int, float] = {}
        self._closed = False

    def start(self, batch: Batch, ended: Ended) -> None:
        """Begin a batch in a task of its own, which nobody's cancellation reaches."""

        def tell(task: asyncio.Task[list[Outcome]]) -> None:
            error = asyncio.CancelledError() if task.cancelled() else task.exception()
            ended(None if error else task.result(), error)

        self._task_of(batch).add_done_callback(tell)

    def _task_of(self, batch: Batch) -> asyncio.Task[list[Outcome]]:
        self.require_open()
        task = asyncio.get_running_loop().create_task(self._run(batch))
        self._running.add(task)
        self._started[id(task)] = time.monotonic()
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[list[Outcome]]) -> None:
        self._running.discard(task)
        self._started.pop(id(task), None)

    async def run(self, batch: Batch) -> list[Outcome]:
        """Run a batch; a cancelled caller does not stop it."""
        return await asyncio.shield(self._task_of(batch))

    async def _run(self, batch: Batch) -> list[Outcome]:
        waiting = time.monotonic()
        try:
            conn = await check_out(self.engine, self.dialect)
        except StateError as error:
            return self._refused(batch, error)
        session: _LaneSession | None = None

        def work(sync: Connection) -> list[Outcome]:
            nonlocal session
            session = _LaneSession(sync, self._observer, batch.lane, self._settings.pooler == "transaction")
            self._observer.lock_wait(batch.lane, time.monotonic() - waiting)
            return execute_batch(session, batch)

        try:
            return await conn.run_sync(work)
        except CommitFailed as failed:
            with suppress(Exception):
                await conn.invalidate()
            cause = translate(self.dialect, failed.__cause__ or failed)
            committed = await self._status(session.mark if session is not None else None)
            return failed.resolve(committed, cause)
        except Exception as error:
            with suppress(Exception):
                await conn.invalidate()
            return self._refused(batch, translate(self.dialect, error))
        finally:
            with suppress(Exception):
                await conn.close()

    @staticmethod
    def _refused(batch: Batch, error: StateError) -> list[Outcome]:
        return [NotWritten(error) for unit in batch.take() for _ in unit.calls]

    async def _status(self, mark: TransactionMark | None) -> bool | None:
        """Ask until the transaction is final; None when the server is gone, does not say in time or is another one."""
        if mark is None:
            return None
        heard = time.monotonic()
        try:
            async with asyncio.timeout(_STATUS_WAIT):
                while True:
                    found = await self._ask_status(mark)
                    if found in ("committed", "aborted"):
                        return found == "committed"
                    now = time.monotonic()
                    if found is not None:
                        heard = now
                    if found == "out of sight" or now - heard > _GONE_SECONDS:
                        return None
                    await asyncio.sleep(_STATUS_PAUSE)
        except TimeoutError:
            return None

    async def _ask_status(self, mark: TransactionMark) -> TransactionEnd | None:
        try:
            async with self.engine.connect() as conn:
                return await conn.run_sync(self.dialect.transaction_end, mark)
        except Exception:
            # The server is away or starts: ask again.
            return None

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[LaneTransaction]:
        """One explicit transaction on a connection of its own, within a time limit; its end is shielded."""
        self.require_open()
        limit = self._settings.transaction_limit_seconds
        conn = await check_out(self.engine, self.dialect)
        try:
            timer = asyncio.timeout(limit)
            try:
                async with timer:
                    lane = LaneTransaction(conn)
                    await lane.run(self._begin_explicitly)
                    yield lane
            except BaseException as error:
                await to_the_end(self._roll_back(conn))
                if timer.expired() and isinstance(error, TimeoutError):
                    raise DeadlineExceededError(
                        f"the transaction was open for more than {limit:g} s and was rolled back"
                    ) from error
                raise
            await to_the_end(self._commit(conn))
        finally:
            await to_the_end(self._give_back(conn))

    def _begin_explicitly(self, conn: Connection) -> None:
        """A caller's own transaction waits for locks as long as SQLite's would."""
        conn.begin()
        conn.execute(text(f"SET LOCAL lock_timeout = {int(self._settings.busy_timeout_ms)}"))

    async def _roll_back(self, conn: AsyncConnection) -> None:
        try:
            await conn.rollback()
        except Exception:
            with suppress(Exception):
                await conn.invalidate()

    async def _give_back(self, conn: AsyncConnection) -> None:
        with suppress(Exception):
            await conn.close()

    async def _commit(self, conn: AsyncConnection) -> None:
        try:
            mark = await conn.run_sync(self.dialect.transaction_mark)
        except Exception as error:
            await self._roll_back(conn)
            raise translate(self.dialect, error) from error
        try:
            await conn.commit()
        except Exception as error:
            with suppress(Exception):
                await conn.invalidate()
            failed = CommitFailed([], [Written(None)], 0)
            (outcome,) = failed.resolve(await self._status(mark), translate(self.dialect, error))
            if not isinstance(outcome, Written):
                raise outcome.error from error

    async def tick(self) -> None:
        """Nothing to do: the server checkpoints."""

    def connections(self) -> Connections:
        """Those of the lanes."""
        return of_pool(self.engine)

    def seconds_since_sign_of_life(self) -> float:
        """Age of the oldest running batch; 0 while idle."""
        return time.monotonic() - min(self._started.values()) if self._started else 0.0

    async def close(self) -> None:
        """Wait for the running batches and dispose the pool; may be repeated."""
        self._closed = True
        if self._running:
            await asyncio.wait(self._running)
        await self.engine.dispose()

    def require_open(self) -> None:
        """ClosedError after ``close``."""
        if self._closed:
            raise ClosedError()
