"""The one writer of a SQLite store: a thread, a connection, whole batches."""

from __future__ import annotations

import asyncio
import functools
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar

from sqlalchemy import Connection

from lionstate.dialects import dialect_named
from lionstate.engine.connections import Connections
from lionstate.engine.lock_debt import LockDebt
from lionstate.engine.observer import Observer
from lionstate.engine.pragmas import connect, open_connection
from lionstate.engine.script import Batch, Look, NotWritten, Outcome, Written
from lionstate.engine.settings import EngineSettings
from lionstate.engine.threads import WorkerThread
from lionstate.engine.transaction import CommitFailed, Session, execute_batch, translate
from lionstate.engine.turn import Turn
from lionstate.engine.wal import Checkpoint, WalKeeper
from lionstate.engine.writer import BatchLog, Ended
from lionstate.errors import BackendBusyError, ClosedError, DeadlineExceededError, StateError

__all__ = ["SqliteWriter"]

R = TypeVar("R")

_log = logging.getLogger(__name__)
_REQUEST = "request"
_PROGRESS_OPERATIONS = 100_000


class SqliteWriter:
    """Runs batches on its own thread and connection, one transaction each.

    It waits for SQLite's lock in slices of at most 100 ms (``interrupt()`` does not end a busy wait), leaves the lock
    free for 110 ms after it held it for 0.5 s more than it left it free, unless the store is exclusive, and is the
    only connection that checkpoints (design §2.1, §2.2, decision 23).
    """

    conn: Connection

    def __init__(
        self,
        path: Path | None,
        module: ModuleType,
        settings: EngineSettings,
        observer: Observer,
        *,
        vfs: str | None = None,
        require_in_place: Callable[[], None] = lambda: None,
    ) -> None:
        """Prepare the writer; ``open`` starts its thread and connects; ``require_in_place`` may refuse a batch."""
        self.dialect = dialect_named("sqlite")
        self.module = module
        self._path = path
        self._settings = settings
        self._observer = observer
        self._vfs = vfs
        self._require_in_place = require_in_place
        self._thread = WorkerThread("lionstate-writer")
        self._driver: Any = None
        self._stopping = threading.Event()
        self._log: BatchLog | None = None
        self._is_there: Look | None = None
        self._in_doubt: Look | None = None
        self._wanted: Callable[[], bool] | None = None
        self._debt = LockDebt()
        self._alive_at = time.monotonic()
        self._busy = self._has_committed = False
        self._lane = _REQUEST
        self._turns: set[Turn] = set()
        self.lanes = 1

    async def open(self) -> None:
        """Start the thread and connect; the schema may not be there yet."""
        self._thread.start()
        await asyncio.shield(self._thread.submit(self._connect))

    def _connect(self) -> None:
        self._require_in_place()
        driver = open_connection(self.module, self._path, self._settings, writer=True, vfs=self._vfs)
        try:
            driver.set_progress_handler(self._tick, _PROGRESS_OPERATIONS)
            self.wal = WalKeeper(driver, self.module.sqlite_version_info, self._path, self._observer)
            self.conn = connect(driver, self.module)
        except BaseException:
            driver.close()
            raise
        self._driver = driver

    def _tick(self) -> int:
        self._alive_at = time.monotonic()
        return 0

    def use_batch_log(self, log: BatchLog) -> None:
        """From now on every batch writes its number, which decides after a COMMIT that raised."""
        self._log = log

    def start(self, batch: Batch, ended: Ended) -> None:
        """Queue a batch on the writer thread; outcomes leave after COMMIT."""
        # Busy before the thread takes it: one that hangs in a checkpoint takes nothing. Answers go before the log.
        self._busy, self._alive_at = True, time.monotonic()
        self._thread.post(functools.partial(self._run, batch), ended, self._look_after_log)

    async def run(self, batch: Batch) -> list[Outcome]:
        """Run a batch; a cancelled caller does not stop it."""
        self._busy, self._alive_at = True, time.monotonic()
        ended: asyncio.Future[list[Outcome]] = self._thread.submit(lambda: self._run(batch), self._look_after_log)
        return await asyncio.shield(ended)

    def _run(self, batch: Batch) -> list[Outcome]:
        self._busy, self._alive_at, self._wanted, self._lane = True, time.monotonic(), batch.wanted, batch.lane
        try:
            return execute_batch(self, batch)
        except CommitFailed as failed:
            return self._resolve(failed)
        except Exception as error:
            self.rollback()
            refusal = NotWritten(translate(self.dialect, error))
            return [refusal for unit in batch.take() for _ in unit.calls]
        finally:
            self._busy, self._alive_at, self._wanted, self._lane = False, time.monotonic(), None, _REQUEST

    def begin(self) -> None:
        """BEGIN IMMEDIATE, waiting in slices; BackendBusyError after the whole wait.

        Nothing begins while an earlier COMMIT is in doubt: a later batch would destroy the evidence.
        """
        self._require_in_place()
        if self._driver is None:
            self._reconnect()
        if self._in_doubt is not None:
            self._look_after_doubt()
        self._pause_for_others()
        self._wait_for_lock()
        # SQLAlchemy's own begin and commit do nothing here but cost; a script that uses it begins by doing so.

    def _wait_for_lock(self) -> None:
        started = self._alive_at = time.monotonic()
        give_up = started + self._settings.busy_timeout_ms / 1000
        try:
            while True:
                try:
                    self._driver.execute("BEGIN IMMEDIATE")
                except self.module.OperationalError as error:
                    if not isinstance(translate(self.dialect, error), BackendBusyError):
                        raise
                else:
                    self._debt.take()
                    return
                self._alive_at = time.monotonic()
                waited = self._alive_at - started
                if self._stopping.is_set():
                    raise ClosedError("the store is closing and another process holds its lock; nothing was written")
                if self._wanted is not None and not self._wanted():
                    raise DeadlineExceededError()
                if started + waited >= give_up:
                    raise BackendBusyError(
                        f"another process held the store's write lock for {waited:.1f} s; nothing was written"
                    )
        finally:
            self._observer.lock_wait(self._lane, time.monotonic() - started)

    def is_open(self) -> bool:
        """Whether a transaction is open: a full disk and RAISE(ROLLBACK) end one without a word."""
        return self._driver is not None and bool(self._driver.in_transaction)

    def before_commit(self, is_there: Look | None = None) -> None:
        """Write the number of the batch, unless its own rows tell as much: the row costs a page of the log."""
        self._is_there = self._log.record(self.conn) if is_there is None and self._log is not None else is_there

    def commit(self) -> None:
        """COMMIT on the driver, so that one without an open transaction raises."""
        started = time.monotonic()
        self._driver.execute("COMMIT")
        self._observer.commit(self._lane, time.monotonic() - started)
        self._release()
        if self.conn.in_transaction():
            self.conn.commit()
        self._has_committed = True

    def _look_after_log(self) -> None:
        if self._has_committed:
            self._has_committed = False
            try:
                self.wal.after_commit()
            except self.module.Error:
                # The transaction is committed whatever a checkpoint says.
                return

    def rollback(self) -> None:
        """End the transaction in whatever state it is; a connection that cannot is replaced at the next BEGIN."""
        self._release()
        if self._driver is None:
            return
        try:
            self.conn.rollback()
            if self._driver.in_transaction:
                self._driver.execute("ROLLBACK")
        except Exception:
            self._drop_connection()

    def _release(self) -> None:
        hold = self._debt.release()
        if hold is not None:
            self._observer.lock_hold(self._lane, hold)

    def _pause_for_others(self) -> None:
        """Leave the lock free longer than SQLite's longest busy pause, so that other processes get their turn."""
        if self._path is None or self._settings.exclusive:
            return
        wait = self._debt.pause()
        if wait and not self._stopping.wait(wait):
            self._observer.pause(wait)

    def _resolve(self, failed: CommitFailed) -> list[Outcome]:
        error = translate(self.dialect, failed.__cause__ or failed)
        self._release()
        committed: bool | None = None
        try:
            if self._log is not None:
                self._in_doubt = self._is_there
                committed = self._look_after_doubt()
            else:
                self._drop_connection()
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
        """Reopen, look for the batch and commit a row of our own, which settles the log for good.

        Nothing was begun here since. Only this writer writes its number: a batch that wrote one is there exactly if
        the number is; one that did not is told by its rows, or not at all. The answer counts only if the row is
        committed; until then the doubt stays.
        """
        log, is_there = self._log, self._in_doubt
        assert log is not None and is_there is not None
        if self._path is None:
            # A memory store has no log on disk, and reopening it would empty it.
            self.rollback()
        else:
            self._reconnect()
        self._wait_plainly()
        try:
            try:
                committed = is_there(self.conn)
            except Exception:
                # What cannot be read tells nothing; nothing may be begun before the log is settled all the same.
                _log.debug("what a commit in doubt wrote cannot be looked at", exc_info=True)
                committed = None
            log.settle(self.conn)
            self._commit_plainly()
        except Exception:
            self.rollback()
            raise
        self._in_doubt = None
        return committed

    def _wait_plainly(self) -> None:
        held, self._wanted = self._wanted, None
        try:
            self._wait_for_lock()
        finally:
            self._wanted = held
        self.conn.begin()

    def _commit_plainly(self) -> None:
        self._driver.execute("COMMIT")
        self._release()
        self.conn.commit()

    def _drop_connection(self) -> None:
        """Close what can be closed; a memory store keeps its connection, which is the store."""
        if self._path is None or self._driver is None:
            return
        driver, self._driver = self._driver, None
        with suppress(Exception):
            self.conn.invalidate()
            self.conn.close()
        with suppress(Exception):
            driver.close()

    def _reconnect(self) -> None:
        self._drop_connection()
        self._connect()

    async def on_thread(self, work: Callable[[], R]) -> R:
        """Run work on the writer thread between batches; a cancelled caller does not stop it."""
        return await asyncio.shield(self._thread.submit(work))

    def begin_reading(self) -> None:
        """BEGIN DEFERRED on the writer's own connection (memory stores)."""
        self._driver.execute("BEGIN")
        self.conn.begin()

    async def call(self, work: Callable[[WalKeeper], R]) -> R:
        """Run work on the writer thread between batches, outside a transaction."""

        def safely() -> R:
            try:
                if self._driver is None:
                    self._reconnect()
                return work(self.wal)
            except Exception as error:
                raise translate(self.dialect, error) from error

        return await self.on_thread(safely)

    async def tick(self) -> None:
        """The 1 s timer of the write-ahead log."""
        await self.call(lambda wal: wal.tick())

    async def checkpoint(self, mode: str) -> Checkpoint:
        """Run one checkpoint on the writer's connection."""
        return await self.call(lambda wal: wal.checkpoint(mode))

    async def vacuum(self) -> None:
        """Rebuild the file; a long statement on the writer's connection."""
        await self.call(lambda wal: wal.vacuum())

    def transaction(self) -> AbstractAsyncContextManager[Turn]:
        """Hold the writer for one explicit transaction, one hop a statement, within a time limit."""
        return self.turn_on(self)

    @asynccontextmanager
    async def turn_on(self, session: Session) -> AsyncIterator[Turn]:
        """Hold the writer's connection for a turn that ``session`` begins and ends."""
        self.require_open()
        turn = Turn(session, self._settings.transaction_limit_seconds)

        def serve() -> None:
            self._wanted = turn.wanted
            try:
                turn.serve()
            finally:
                self._wanted = None
                self._look_after_log()

        self._turns.add(turn)
        try:
            async with turn.held(self._thread.submit(serve)):
                yield turn
        finally:
            self._turns.discard(turn)

    def connections(self) -> Connections:
        """One while it is open, in use by whatever runs on its thread."""
        works, is_open = self._thread.works, self._driver is not None
        return Connections(in_use=int(is_open and works), idle=int(is_open and not works))

    def seconds_since_sign_of_life(self) -> float:
        """0 while idle; else the age of the last bounded wait or progress tick of the running or waiting batch."""
        return time.monotonic() - self._alive_at if self._busy else 0.0

    async def close(self) -> None:
        """Stop waiting for locks, checkpoint without waiting for anyone, close; may be repeated."""
        if self._stopping.is_set():
            return
        self._stopping.set()
        for turn in tuple(self._turns):
            turn.abort()
        try:
            await asyncio.shield(self._thread.submit(self._close_down))
        finally:
            self._thread.end()
        await asyncio.to_thread(self._thread.join)
        self._thread.mailbox.close_after([self._thread])

    def _close_down(self) -> None:
        if self._driver is None:
            return
        # Frames that cannot be moved stay in the log; the next open recovers them.
        with suppress(Exception):
            if self._log is not None and self._in_doubt is None:
                self._forget(self._log)
            self.wal.close_down()
        with suppress(Exception):
            self.conn.close()
        self._driver.close()
        self._driver = None

    def _forget(self, log: BatchLog) -> None:
        try:
            self._wait_plainly()
            log.forget(self.conn)
            self._commit_plainly()
        except Exception:
            # Others remove the row later.
            self.rollback()
            if self._driver is None:
                raise

    def require_open(self) -> None:
        """ClosedError after ``close``."""
        if self._stopping.is_set():
            raise ClosedError()
