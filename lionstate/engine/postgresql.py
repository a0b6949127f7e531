"""The writers of a PostgreSQL store: N lanes, one connection each, one transaction per batch."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import TypeVar

from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import AsyncConnection

from lionstate.dialects import dialect_named
from lionstate.dialects.server import TransactionEnd, TransactionMark
from lionstate.engine.connections import Connections
from lionstate.engine.finish import to_the_end
from lionstate.engine.observer import Observer
from lionstate.engine.pool import LANE_SETTINGS, Lender, create_engine
from lionstate.engine.script import Batch, Look, NotWritten, Outcome, Script, Written, answer
from lionstate.engine.settings import EngineSettings
from lionstate.engine.surface import SqlWrites
from lionstate.engine.transaction import CommitFailed, execute_batch, translate
from lionstate.engine.url import StoreURL
from lionstate.engine.writer import Ended
from lionstate.errors import (
    ClosedError,
    DeadlineExceededError,
    OutcomeUnknownError,
    StateError,
)

__all__ = ["LaneTransaction", "PostgresqlWriter"]

R = TypeVar("R")
_STATUS_WAIT = 10.0
# What a COMMIT in doubt holds back waits too, and nobody hears that writes fail.
_GONE_SECONDS = 2.0
_SET_LOCAL = text("SELECT " + ", ".join(f"set_config('{name}', :{name}, true)" for name in LANE_SETTINGS))
_STATUS_PAUSE = 0.1


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
        self.dialect.begin(self.conn)
        self._since = time.monotonic()
        if self._set_local:
            self.conn.execute(_SET_LOCAL, LANE_SETTINGS)

    def is_open(self) -> bool:
        return self.dialect.in_transaction(self.conn)

    def before_commit(self, is_there: Look | None = None) -> None:
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
        return OutcomeUnknownError.after_commit(translate(self.dialect, error).cause)


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
        self._lender = Lender(self.engine, self.dialect)
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
            conn = await self._lender.take()
        except StateError as error:
            return self._refused(batch, error)
        session: _LaneSession | None = None
        clean = False

        def work(sync: Connection) -> list[Outcome]:
            nonlocal session
            session = _LaneSession(sync, self._observer, batch.lane, self._settings.pooler == "transaction")
            self._observer.lock_wait(batch.lane, time.monotonic() - waiting)
            return execute_batch(session, batch)

        try:
            outcomes = await conn.run_sync(work)
            clean = not conn.in_transaction()
            return outcomes
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
            await self._lender.give_back(conn, clean=clean)

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
            conn = await self._lender.take()
            try:
                return await conn.run_sync(self.dialect.transaction_end, mark)
            finally:
                await self._lender.give_back(conn, clean=False)
        except Exception:
            # The server is away or starts: ask again.
            return None

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[LaneTransaction]:
        """One explicit transaction on a connection of its own, within a time limit; its end is shielded."""
        self.require_open()
        limit = self._settings.transaction_limit_seconds
        conn = await self._lender.take()
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
            await self._lender.give_back(conn, clean=False)

    def _begin_explicitly(self, conn: Connection) -> None:
        """A caller's own transaction waits for locks as long as SQLite's would."""
        self.dialect.begin(conn)
        conn.execute(text(f"SET LOCAL lock_timeout = {int(self._settings.busy_timeout_ms)}"))

    async def _roll_back(self, conn: AsyncConnection) -> None:
        try:
            await conn.rollback()
        except Exception:
            with suppress(Exception):
                await conn.invalidate()

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
        return self._lender.connections()

    def seconds_since_sign_of_life(self) -> float:
        """Age of the oldest running batch; 0 while idle."""
        return time.monotonic() - min(self._started.values()) if self._started else 0.0

    async def close(self) -> None:
        """Wait for the running batches and dispose the pool; may be repeated."""
        self._closed = True
        if self._running:
            await asyncio.wait(self._running)
        await self._lender.close()

    def require_open(self) -> None:
        """ClosedError after ``close``."""
        if self._closed:
            raise ClosedError()
