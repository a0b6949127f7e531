"""The one writer of a SQLite store: a thread, a connection, whole batches."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import TypeVar

from sqlalchemy import Connection

from lionstate.dialects import dialect_named
from lionstate.engine.observer import Observer
from lionstate.engine.pragmas import LOCK_SLICE_MS, connect, open_connection
from lionstate.engine.script import Batch, Outcome, Script, Written
from lionstate.engine.settings import EngineSettings
from lionstate.engine.threads import WorkerThread
from lionstate.engine.transaction import CommitFailed, execute_batch, translate
from lionstate.engine.turn import Turn
from lionstate.engine.wal import Checkpoint, WalKeeper
from lionstate.engine.writer import BatchLog
from lionstate.errors import BackendBusyError, ClosedError, StateError

__all__ = ["SqliteWriter"]

R = TypeVar("R")

_HOLD_BEFORE_PAUSE = 0.5
_PAUSE = 0.110
_PROGRESS_OPERATIONS = 100_000


class SqliteWriter:
    """Runs batches on its own thread and connection, one transaction each.

    It waits for SQLite's lock in slices of at most 100 ms (``interrupt()`` does not end a busy wait), leaves the lock
    free for 110 ms after 0.5 s of accumulated hold unless the store is exclusive, and is the only connection that
    checkpoints (design §2.1, §2.2, decision 23).
    """

    def __init__(
        self,
        path: Path | None,
        module: ModuleType,
        settings: EngineSettings,
        observer: Observer,
        *,
        vfs: str | None = None,
    ) -> None:
        """Prepare the writer; ``open`` starts its thread and connects."""
        self.dialect = dialect_named("sqlite")
        self.module = module
        self._path = path
        self._settings = settings
        self._observer = observer
        self._vfs = vfs
        self._thread = WorkerThread("lionstate-writer")
        self._stopping = threading.Event()
        self._log: BatchLog | None = None
        self._in_doubt: int | None = None
        self._held_since = 0.0
        self._held_total = 0.0
        self._released_at = 0.0
        self._alive_at = time.monotonic()
        self._busy = False
        self.lanes = 1

    async def open(self) -> None:
        """Start the thread and connect; the schema may not be there yet."""
        self._thread.start()
        await self._thread.submit(self._connect)

    def _connect(self) -> None:
        self._driver = open_connection(self.module, self._path, self._settings, writer=True, vfs=self._vfs)
        self._driver.set_progress_handler(self._tick, _PROGRESS_OPERATIONS)
        self.conn: Connection = connect(self._driver, self.module)
        self.wal = WalKeeper(self._driver, self.module.sqlite_version_info, self._path, self._observer)

    def _tick(self) -> int:
        self._alive_at = time.monotonic()
        return 0

    def use_batch_log(self, log: BatchLog) -> None:
        """From now on every batch writes its number, which decides after a COMMIT that raised."""
        self._log = log

    def start(self, batch: Batch) -> asyncio.Future[list[Outcome]]:
        """Queue a batch on the writer thread; outcomes leave after COMMIT."""
        return self._thread.submit(lambda: self._run(batch))

    async def run(self, batch: Batch) -> list[Outcome]:
        """Run a batch; a cancelled caller does not stop it."""
        return await asyncio.shield(self.start(batch))

    def _run(self, batch: Batch) -> list[Outcome]:
        self._busy, self._alive_at = True, time.monotonic()
        try:
            self._settle_earlier_doubt()
            outcomes = execute_batch(self, batch)
        except CommitFailed as failed:
            outcomes = self._resolve(failed)
        except Exception as error:
            outcomes = execute_batch(_Refusing(self, translate(self.dialect, error)), batch)
        finally:
            self._busy, self._alive_at = False, time.monotonic()
        return outcomes

    def begin(self) -> None:
        """BEGIN IMMEDIATE, waiting in slices; BackendBusyError after the whole wait."""
        self._pause_for_others()
        started = time.monotonic()
        give_up = started + self._settings.busy_timeout_ms / 1000
        while True:
            try:
                self._driver.execute("BEGIN IMMEDIATE")
                break
            except self.module.OperationalError as error:
                if not isinstance(translate(self.dialect, error), BackendBusyError):
                    raise
            self._alive_at = time.monotonic()
            if self._stopping.is_set() or self._alive_at >= give_up:
                self._observer.lock_wait(time.monotonic() - started)
                raise BackendBusyError(
                    f"another process held the store's write lock for {time.monotonic() - started:.1f} s;"
                    " nothing was written"
                )
        self._held_since = time.monotonic()
        self._observer.lock_wait(self._held_since - started)
        self.conn.begin()
        if self._log is not None:
            self._number = self._log.record(self.conn)

    def commit(self) -> None:
        """COMMIT on the driver, so that one without an open transaction raises."""
        started = time.monotonic()
        self._driver.execute("COMMIT")
        self._release(started)
        self.conn.commit()
        self._observer.commit(self._released_at - started)
        # The transaction is committed whatever a checkpoint says.
        with suppress(self.module.Error):
            self.wal.after_commit()

    def rollback(self) -> None:
        """End the transaction in whatever state it is."""
        self._release(time.monotonic())
        try:
            self.conn.rollback()
            if self._driver.in_transaction:
                self._driver.execute("ROLLBACK")
        except Exception:
            self._reconnect()

    def _release(self, at: float) -> None:
        if self._held_since:
            self._released_at = time.monotonic()
            hold = self._released_at - self._held_since
            self._held_total += hold
            self._held_since = 0.0
            self._observer.lock_hold("writer", hold)

    def _pause_for_others(self) -> None:
        """Leave the lock free longer than SQLite's longest busy pause, so that other processes get their turn."""
        free_for = time.monotonic() - self._released_at
        if free_for >= _PAUSE:
            self._held_total = 0.0
        if self._path is None or self._settings.exclusive or self._held_total < _HOLD_BEFORE_PAUSE:
            return
        wait = _PAUSE - free_for
        self._held_total = 0.0
        if wait > 0 and not self._stopping.wait(wait):
            self._observer.pause(wait)

    def _resolve(self, failed: CommitFailed) -> list[Outcome]:
        error = translate(self.dialect, failed.__cause__ or failed)
        self._release(time.monotonic())
        self._in_doubt = self._number if self._log is not None else None
        committed: bool | None = None
        try:
            committed = self._look_after_doubt()
        except Exception as again:
            error = translate(self.dialect, again)
        return failed.resolve(committed, error)

    def after_failed_commit(self, error: BaseException) -> StateError | None:
        """Settle the doubt of an explicit transaction."""
        failed = CommitFailed([], [Written(None)], 0)
        failed.__cause__ = error
        (outcome,) = self._resolve(failed)
        return None if isinstance(outcome, Written) else outcome.error

    def _look_after_doubt(self) -> bool | None:
        """Reopen, read the last batch number and commit a row of our own, which settles the log for good."""
        self._reconnect()
        log, number = self._log, self._in_doubt
        if log is None or number is None:
            return None
        self._begin_plainly()
        committed = log.last(self.conn) >= number
        log.settle(self.conn)
        self._driver.execute("COMMIT")
        self.conn.commit()
        self._in_doubt = None
        return committed

    def _settle_earlier_doubt(self) -> None:
        if self._in_doubt is not None:
            self._look_after_doubt()

    def _begin_plainly(self) -> None:
        self._driver.execute(f"PRAGMA busy_timeout = {self._settings.busy_timeout_ms}")
        self._driver.execute("BEGIN IMMEDIATE")
        self._driver.execute(f"PRAGMA busy_timeout = {LOCK_SLICE_MS}")
        self.conn.begin()

    def _reconnect(self) -> None:
        with suppress(Exception):
            self.conn.invalidate()
            self.conn.close()
        with suppress(Exception):
            self._driver.close()
        self._connect()

    async def read(self, script: Script[R]) -> R:
        """Run a read on the writer's own connection (memory stores) in a deferred transaction."""

        def work() -> R:
            self._driver.execute("BEGIN")
            self.conn.begin()
            try:
                return script(self.conn)
            except Exception as error:
                raise translate(self.dialect, error) from error
            finally:
                self.rollback()

        return await self._thread.submit(work)

    async def call(self, work: Callable[[WalKeeper], R]) -> R:
        """Run work on the writer thread between batches, outside a transaction."""

        def safely() -> R:
            try:
                return work(self.wal)
            except StateError:
                raise
            except Exception as error:
                raise translate(self.dialect, error) from error

        return await self._thread.submit(safely)

    async def tick(self) -> None:
        """The 1 s timer of the write-ahead log."""
        await self.call(lambda wal: wal.tick())

    async def checkpoint(self, mode: str) -> Checkpoint:
        """Run one checkpoint on the writer's connection."""
        return await self.call(lambda wal: wal.checkpoint(mode))

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Turn]:
        """Hold the writer for one explicit transaction, one hop a statement, within a time limit."""
        turn = Turn(self, self._settings.transaction_limit_seconds)
        async with turn.held(self._thread.submit(turn.serve)):
            yield turn

    def seconds_since_sign_of_life(self) -> float:
        """0 while idle; else the age of the last bounded wait or progress tick of the running batch."""
        return time.monotonic() - self._alive_at if self._busy else 0.0

    async def close(self) -> None:
        """Checkpoint without waiting for anyone, close the connection and end the thread; may be repeated."""
        if self._stopping.is_set():
            return
        self._stopping.set()

        def work() -> None:
            # Frames that cannot be moved stay in the log; the next open recovers them.
            with suppress(self.module.Error):
                self.wal.close_down()
            self.conn.close()
            self._driver.close()

        try:
            await asyncio.shield(self._thread.submit(work))
        finally:
            self._thread.jobs.put(None)

    def require_open(self) -> None:
        """ClosedError after ``close``."""
        if self._stopping.is_set():
            raise ClosedError()


class _Refusing:
    """A session whose BEGIN fails: the batch ends not written with this error."""

    def __init__(self, writer: SqliteWriter, error: StateError) -> None:
        self.conn = writer.conn
        self.dialect = writer.dialect
        self._error = error

    def begin(self) -> None:
        raise self._error

    def commit(self) -> None:
        raise self._error

    def rollback(self) -> None:
        """Nothing was begun."""

    def after_failed_commit(self, error: BaseException) -> StateError | None:
        return self._error
