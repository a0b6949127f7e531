"""The writers of a PostgreSQL store: N lanes, one connection each, one transaction per batch."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.pool import AsyncAdaptedQueuePool

from lionstate.dialects import dialect_named
from lionstate.engine.observer import Observer
from lionstate.engine.script import Batch, NotWritten, Outcome, Script, Written
from lionstate.engine.settings import EngineSettings
from lionstate.engine.transaction import CommitFailed, execute_batch, translate
from lionstate.engine.turn import rows_of
from lionstate.engine.url import StoreURL
from lionstate.errors import BackendUnavailableError, ClosedError, OutcomeUnknownError, StateError

__all__ = ["LaneTransaction", "PostgresqlWriter", "create_engine"]

R = TypeVar("R")
LOCK_TIMEOUT_MS = 500
_STATUS_WAIT = 10.0
# What a lane runs seeks by key. Without statistics, and for some numbers of keys with them, the planner takes a scan of
# the whole table for cheaper (design decision 10).
_LANE_SETTINGS = {"lock_timeout": str(LOCK_TIMEOUT_MS), "enable_seqscan": "off"}
_SET_LOCAL = text("SELECT " + ", ".join(f"set_config('{name}', :{name}, true)" for name in _LANE_SETTINGS))
_APPLICATION = "lionstate"


def create_engine(url: StoreURL, settings: EngineSettings, *, pool_size: int, for_writes: bool) -> AsyncEngine:
    """An asyncpg engine; ``sslmode`` in the URL is mapped, startup settings fall away behind a pooler."""
    target = url.sqlalchemy
    query = dict(target.query)
    mode = query.pop("sslmode", None)
    arguments: dict[str, Any] = {}
    if mode in ("require", "prefer", "allow"):
        context = ssl.create_default_context()
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        arguments["ssl"] = context if mode == "require" else mode
    elif mode in ("verify-ca", "verify-full"):
        arguments["ssl"] = ssl.create_default_context()
        arguments["ssl"].check_hostname = mode == "verify-full"
    elif mode == "disable":
        arguments["ssl"] = False
    if settings.pooler == "transaction":
        arguments["statement_cache_size"] = 0
        query["prepared_statement_cache_size"] = "0"
    else:
        arguments["server_settings"] = {"application_name": _APPLICATION, "jit": "off"}
        if for_writes:
            arguments["server_settings"] |= _LANE_SETTINGS
    return create_async_engine(
        target.set(query=query),
        poolclass=AsyncAdaptedQueuePool,
        pool_size=pool_size,
        max_overflow=0,
        pool_timeout=30,
        connect_args=arguments,
        isolation_level="READ COMMITTED",
    )


class _LaneSession:
    """One transaction of one lane, on the synchronous side of ``run_sync``."""

    def __init__(self, conn: Connection, observer: Observer, lane: str, set_local: bool) -> None:
        self.conn = conn
        self.dialect = dialect_named("postgresql")
        self._observer = observer
        self._lane = lane
        self._set_local = set_local
        self.transaction: int | None = None
        self._since = 0.0

    def begin(self) -> None:
        self.conn.begin()
        self._since = time.monotonic()
        if self._set_local:
            self.conn.execute(_SET_LOCAL, _LANE_SETTINGS)

    def commit(self) -> None:
        self.transaction = self.dialect.transaction_id(self.conn)
        started = time.monotonic()
        self.conn.commit()
        self._observer.commit(time.monotonic() - started)
        self._observer.lock_hold(self._lane, time.monotonic() - self._since)

    def rollback(self) -> None:
        try:
            self.conn.rollback()
        except Exception:
            self.conn.invalidate()

    def after_failed_commit(self, error: BaseException) -> StateError | None:
        return OutcomeUnknownError()


class LaneTransaction:
    """What ``transaction()`` yields on PostgreSQL; the same surface as the SQLite writer's turn."""

    def __init__(self, conn: AsyncConnection) -> None:
        """Wrap a connection whose transaction is open."""
        self._conn = conn
        self._dialect = dialect_named("postgresql")

    async def run(self, script: Script[R]) -> R:
        """Run one script inside the transaction."""
        try:
            return await self._conn.run_sync(script)
        except Exception as error:
            raise translate(self._dialect, error) from error

    async def execute(self, sql: str, params: dict[str, Any] | None = None) -> None:
        """Run one SQL statement with named parameters."""
        await self.run(lambda conn: rows_of(conn, sql, params))

    async def fetch_all(self, sql: str, params: dict[str, Any] | None = None) -> list[dict[str, Any]]:
        """Run one query; its rows as mappings, not decoded."""
        return await self.run(lambda conn: rows_of(conn, sql, params))

    async def fetch_one(self, sql: str, params: dict[str, Any] | None = None) -> dict[str, Any] | None:
        """The first row of a query, or None."""
        rows = await self.fetch_all(sql, params)
        return rows[0] if rows else None


class PostgresqlWriter:
    """Runs each batch in one transaction on a pooled connection.

    A COMMIT that raised is decided by ``pg_xact_status`` of the transaction id that the batch brought back before it.
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

    def start(self, batch: Batch) -> asyncio.Future[list[Outcome]]:
        """Begin a batch in a task of its own, which nobody's cancellation reaches."""
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
        return await asyncio.shield(self.start(batch))

    async def _run(self, batch: Batch) -> list[Outcome]:
        waiting = time.monotonic()
        try:
            conn = await self.engine.connect()
        except Exception as error:
            refusal = translate(self.dialect, error)
            if not isinstance(refusal, StateError) or refusal.code == "backend":
                refusal = BackendUnavailableError(f"the database cannot be reached: {type(error).__name__}")
            return [NotWritten(refusal) for unit in batch.take() for _ in unit.calls]
        session: _LaneSession | None = None

        def work(sync: Connection) -> list[Outcome]:
            nonlocal session
            session = _LaneSession(sync, self._observer, "lane", self._settings.pooler == "transaction")
            self._observer.lock_wait(time.monotonic() - waiting)
            return execute_batch(session, batch)

        try:
            return await conn.run_sync(work)
        except CommitFailed as failed:
            await conn.invalidate()
            cause = translate(self.dialect, failed.__cause__ or failed)
            committed = await self._status(session.transaction if session is not None else None)
            return failed.resolve(committed, cause)
        finally:
            await conn.close()

    async def _status(self, transaction: int | None) -> bool | None:
        """Ask until the transaction is final; None if the server does not say in time."""
        if transaction is None:
            return None
        give_up = time.monotonic() + _STATUS_WAIT
        while time.monotonic() < give_up:
            try:
                async with self.engine.connect() as conn:
                    row = await conn.execute(
                        text("SELECT pg_xact_status(CAST(CAST(:xid AS text) AS xid8))"),
                        {"xid": str(transaction)},
                    )
                    found = row.scalar_one()
            except Exception as error:
                translate(self.dialect, error)
                found = "in progress"
            if found in ("committed", "aborted"):
                return bool(found == "committed")
            await asyncio.sleep(0.1)
        return None

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[LaneTransaction]:
        """One explicit transaction on a lane of its own; its end is shielded from cancellation."""
        self.require_open()
        conn = await self.engine.connect()
        try:
            async with asyncio.timeout(self._settings.transaction_limit_seconds):
                await conn.begin()
                try:
                    yield LaneTransaction(conn)
                except BaseException:
                    await asyncio.shield(asyncio.ensure_future(conn.rollback()))
                    raise
                await asyncio.shield(asyncio.ensure_future(self._commit(conn)))
        finally:
            await asyncio.shield(asyncio.ensure_future(conn.close()))

    async def _commit(self, conn: AsyncConnection) -> None:
        transaction = await conn.run_sync(self.dialect.transaction_id)
        try:
            await conn.commit()
        except Exception as error:
            await conn.invalidate()
            failed = CommitFailed([], [Written(None)], 0)
            (outcome,) = failed.resolve(await self._status(transaction), translate(self.dialect, error))
            if not isinstance(outcome, Written):
                raise outcome.error from error

    async def tick(self) -> None:
        """Nothing to do: the server checkpoints."""

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
