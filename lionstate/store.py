"""Opens a store and closes it in reverse: URL, SQLite library, schema, writer, readers, queue."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from sqlalchemy import Connection

from lionstate.dialects import dialect_named
from lionstate.engine import (
    Deferred,
    EngineSettings,
    Observer,
    Outcome,
    SilentObserver,
    StoreURL,
    Written,
)
from lionstate.engine.finish import to_the_end
from lionstate.engine.offload import finished
from lionstate.engine.postgresql import PostgresqlWriter
from lionstate.engine.reader import Reader
from lionstate.engine.sqlite import SqliteWriter
from lionstate.engine.surface import SqlReads
from lionstate.errors import (
    BackendError,
    ClosedError,
    InvalidInputError,
    NestedWriteError,
    StateError,
)
from lionstate.opening import Parts, require_asyncio
from lionstate.operations import Operation
from lionstate.progression.parsed import ParsedValues
from lionstate.progression.reads import note_failure
from lionstate.queue import QueueLimits, ReceiptLimits, RequestKey, TicketClass, WriteQueue
from lionstate.queue.batch_row import BatchRow
from lionstate.queue.calls import OperationCalls
from lionstate.queue.making import TicketMaker, value_of
from lionstate.queue.receipts import Receipts
from lionstate.schema import OpenReport

__all__ = ["BatchRow", "Store"]

_log = logging.getLogger(__name__)
_TICK_SECONDS = 1.0
_DRAIN_SECONDS = 10.0
_RECEIPT_KEYS = frozenset(("r:",))
_MAINTENANCE_KEYS = frozenset(("m:migration",))


class Store:
    """An open store: one writer, readers, a write queue.

    Use ``await Store.open(…)``; everything else runs on the loop that opened it.
    """

    def __init__(
        self, url: StoreURL, settings: EngineSettings, observer: Observer, receipts: ReceiptLimits | None = None
    ) -> None:
        """Prepare; ``open`` does the work."""
        self.url = url
        self.settings = settings
        self.observer = observer
        self.dialect = dialect_named(url.dialect)
        self.parsed = ParsedValues(observer=observer)
        self._parts = Parts(url, settings, observer)
        self.connections = self._parts.connections
        self.load = self._parts.load
        self.require_in_place = self._parts.require_in_place
        self._receipts = Receipts(self.dialect, receipts or ReceiptLimits())
        self._tickets = TicketMaker(self.parsed, self._receipts)
        self._calls = OperationCalls(self._open_queue, self._tickets, observer)
        self._queue: WriteQueue | None = None
        self._timers: list[asyncio.Task[None]] = []
        self._closing: asyncio.Task[int] | None = None
        self._turn_holders: set[asyncio.Task[Any]] = set()
        self.explicit_transactions = 0

    @classmethod
    async def open(
        cls,
        target: str | Path | StoreURL,
        settings: EngineSettings | None = None,
        *,
        observer: Observer | None = None,
        limits: QueueLimits | None = None,
        receipts: ReceiptLimits | None = None,
        lionagi_compatible: bool = False,
        normalized: bool | None = None,
        own: bool = False,
        vfs: str | None = None,
    ) -> Store:
        """Open a store, creating it when it is new.

        Args:
            target: Path or URL.
            settings: How connections behave.
            observer: Receives measurements.
            limits: Bounds of the write queue.
            receipts: How long and how many receipts of idempotency keys are kept.
            lionagi_compatible: A new store is one that LionAGI 0.36.0 can open (design decision 32).
            normalized: Whether new progressions are born in ``items``; recorded in the store when it differs from
                what is recorded. None keeps that.
            own: Take the owner's lock of a SQLite store, as the daemon does (design decision 27).
            vfs: A SQLite VFS by name, for tests.
        Raises:
            SchemaError: The store is newer, foreign or unrecognized; nothing was changed.
            BackendUnavailableError: The path or server cannot be used.
            OwnershipConflictError: Another process owns the store.
            InvalidInputError: The URL, or an event loop that is not asyncio's.

        Contract: ADR-0055 D1; design §2.4, §7, decisions 8, 27, 32.
        """
        require_asyncio()
        store = cls(StoreURL.of(target), settings or EngineSettings(), observer or SilentObserver(), receipts)
        try:
            await store._parts.open(lionagi_compatible=lionagi_compatible, normalized=normalized, own=own, vfs=vfs)
            if store._parts.writer is not None:
                store._start_writing(store._parts.writer, limits or QueueLimits())
        except BaseException:
            with suppress(Exception):
                await store.close(0.0)
            raise
        return store

    def _start_writing(self, writer: SqliteWriter | PostgresqlWriter, limits: QueueLimits) -> None:
        if isinstance(writer, SqliteWriter):
            writer.use_batch_log(BatchRow(self.dialect))
        limits = dataclasses.replace(limits, busy_wait_seconds=self.settings.busy_timeout_ms / 1000)
        self._queue = self.load.queue = WriteQueue(writer, limits, self.observer, self.parsed)
        loop = asyncio.get_running_loop()
        purging = self._receipts.keep_purging(self.purge_receipts)
        self._timers = [loop.create_task(self._tick(writer)), loop.create_task(purging)]

    async def _tick(self, writer: SqliteWriter | PostgresqlWriter) -> None:
        while True:
            await asyncio.sleep(_TICK_SECONDS)
            try:
                await writer.tick()
            except StateError as error:
                _log.debug("the writer's timer failed: %s", error.code)
            except Exception:
                _log.exception("the writer's timer failed")

    async def close(self, drain_seconds: float = _DRAIN_SECONDS) -> int:
        """Drain the queue, stop the writer, close the readers; may be repeated, also at the same time.

        A cancelled caller does not stop it half-way.

        Returns:
            Operations that were refused because the budget ended.
        """
        if self._closing is None:
            if self._queue is not None:
                self._queue.shut()
            self._closing = asyncio.ensure_future(self._close(drain_seconds))
        await to_the_end(_ended(closing := self._closing))
        return closing.result()

    async def _close(self, drain_seconds: float) -> int:
        refused = 0
        try:
            if self._queue is not None:
                refused = await self._queue.drain(drain_seconds)
        finally:
            self._queue = self.load.queue = None
            for timer in self._timers:
                timer.cancel()
            await self._parts.close()
        return refused

    @property
    def writer(self) -> SqliteWriter | PostgresqlWriter | None:
        """The writer; None when the store is closed or read-only."""
        return self._parts.writer

    @property
    def report(self) -> OpenReport | None:
        """What the open found and did; None for a read-only one."""
        return self._parts.report

    def _require_writer(self) -> SqliteWriter | PostgresqlWriter:
        if self._parts.writer is None:
            raise BackendError("the store is open read-only") if self._parts.reader else ClosedError()
        return self._parts.writer

    def _require_reader(self) -> Reader:
        if self._parts.reader is None:
            raise ClosedError()
        return self._parts.reader

    @property
    def reader(self) -> Reader:
        """The reader; ClosedError when the store is closed."""
        return self._require_reader()

    @property
    def queue(self) -> WriteQueue:
        """The write queue; an error says when the store is closed or read-only."""
        return self._open_queue()

    def _open_queue(self) -> WriteQueue:
        if self._queue is None or self._parts.writer is None:
            self._require_writer()
            raise ClosedError()
        return self._queue

    @property
    def sqlite_writer(self) -> SqliteWriter | None:
        """The writer of a SQLite store; None on PostgreSQL, an error when closed or read-only."""
        writer = self._require_writer()
        return writer if isinstance(writer, SqliteWriter) else None

    @property
    def sqlite_info(self) -> tuple[str, bool] | None:
        """The SQLite library's version and whether it has the WAL-reset race (decision 33); None on PostgreSQL."""
        return (file.version_text, file.affected) if (file := self._parts.file) is not None else None

    @property
    def sqlite_version(self) -> tuple[int, int, int] | None:
        """The SQLite library's version; None on PostgreSQL."""
        return file.version if (file := self._parts.file) is not None else None

    @property
    def sqlite_affected(self) -> bool:
        """Whether the SQLite library has the WAL-reset race; False on PostgreSQL."""
        return bool(self.sqlite_info and self.sqlite_info[1])

    async def run(
        self,
        operation: Operation,
        params: Mapping[str, Any],
        *,
        deadline: float | None = None,
        key: RequestKey | None = None,
        max_lag_seconds: float | None = None,
    ) -> Any:
        """Run one operation and return its result.

        Args:
            operation: From ``OPERATIONS``.
            params: By name, as the script takes them.
            deadline: ``time.monotonic()`` after which a write is not started.
            key: A write runs once under it; its repeats get the first answer (design decision 39).
            max_lag_seconds: How old a read's answer may be; one of the replicas may then give it.
        Raises:
            IdempotencyConflictError: The key was used for another call.
            ResultNotKeptError: The call was written before and its result not kept.
            StateError: Whatever the operation or the store says; see ``errors``.
        """
        if not operation.writes:
            if key is not None:
                raise InvalidInputError(f"{operation.name} is a read and takes no idempotency key")
            if max_lag_seconds is not None and self._parts.replicas is not None:
                script = functools.partial(operation.script, **params)
                found = await self._parts.replicas.run(functools.partial(self._whole_read, script), max_lag_seconds)
                self.observer.operation(operation.name, "read")
                return found
            return await self._observed_read(operation, params)
        if max_lag_seconds is not None:
            raise InvalidInputError(f"{operation.name} writes, which no replica can")
        if self._turn_holders:
            self._refuse_nested()
        found = await self._calls.one(operation, params, deadline, key)
        return await self._finished(found) if isinstance(found, Deferred) else found

    async def purge_receipts(self) -> int:
        """Remove receipts that are too old or too many; the store does so by itself once a minute."""

        def write(script: Callable[[Connection], Any]) -> Awaitable[Any]:
            return self.write("purge_receipts", script, keys=_RECEIPT_KEYS)

        return await self._receipts.purge(self.read, write)

    async def _observed_read(self, operation: Operation, params: Mapping[str, Any]) -> Any:
        try:
            found = await self.read(functools.partial(operation.script, **params))
        except Exception as error:
            note_failure(self.observer, operation.name, params, error)
            raise
        self.observer.operation(operation.name, "read")
        return found

    async def read(self, script: Callable[[Connection], Any]) -> Any:
        """Run a read script in one snapshot; what it deferred is finished outside, and may go on to another."""
        if self.url.is_memory:
            # There is one connection, and this task may hold it.
            self._refuse_nested()
        return await self._finished(await self._require_reader().run(script))

    async def _whole_read(self, script: Callable[[Connection], Any], reader: Reader, replica: bool) -> Any:
        # What a replica shows is no evidence about the store: nothing compares it or asks for a scrub because of it.
        observer = SilentObserver() if replica else self.observer
        return await finished(await reader.run(script), observer, reader.run)

    async def _finished(self, found: Any) -> Any:
        return await finished(found, self.observer, lambda script: self._require_reader().run(script))

    async def write(
        self,
        name: str,
        script: Callable[[Connection], Any],
        *,
        progressions: Sequence[str] = (),
        keys: frozenset[str] | None = None,
        kind: TicketClass = TicketClass.REQUEST,
        deadline: float | None = None,
    ) -> Any:
        """Run a write script that is no operation, through the queue; no progressions and no keys means all."""
        self._refuse_nested()
        keys = frozenset(f"p:{progression}" for progression in progressions) or keys
        ticket = self._tickets.of_script(name, script, keys, deadline, kind)
        self.queue.submit(ticket)
        return await self._finished(value_of(await ticket.future))

    async def write_raw(self, name: str, script: Callable[[Connection], Any]) -> Any:
        """Run SQL that may change anything, behind the writes that wait already."""

        def counted(conn: Connection) -> Any:
            # Here and not at submission: a stage of the migration that runs before must not see it yet.
            self.explicit_transactions += 1
            return script(conn)

        return await self.write(name, counted)

    async def maintain(
        self, name: str, script: Callable[[Connection], Any], *, progressions: Sequence[str] = ()
    ) -> Any:
        """Run a write script of the migration as a maintenance ticket."""
        return await self.write(
            name, script, progressions=progressions, keys=_MAINTENANCE_KEYS, kind=TicketClass.MAINTENANCE
        )

    async def run_batch(
        self,
        calls: Sequence[tuple[Operation, Mapping[str, Any]]],
        *,
        atomic: bool,
        deadline: float | None = None,
        keys: Sequence[RequestKey | None] = (),
    ) -> list[Outcome]:
        """Run several writes: each on its own in order, or all in one transaction.

        Args:
            calls: Operations with their parameters.
            atomic: All or none.
            deadline: As for ``run``.
            keys: One for each call, or none at all; as for ``run``.
        Returns:
            One outcome per call; with ``atomic`` they are all written or none.
        """
        self._refuse_nested()
        outcomes = await self._calls.several(calls, keys, atomic=atomic, deadline=deadline)
        return [await self._finished_outcome(outcome) for outcome in outcomes]

    async def _finished_outcome(self, outcome: Outcome) -> Outcome:
        if isinstance(outcome, Written) and isinstance(outcome.value, Deferred):
            return Written(await self._finished(outcome.value))
        return outcome

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Any]:
        """Hold one explicit write transaction; facade calls of this task are refused meanwhile."""
        self._refuse_nested()
        async with self._require_writer().transaction() as turn, self._held():
            self.explicit_transactions += 1
            yield turn

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[SqlReads]:
        """Several reads that see one snapshot."""
        if self.url.is_memory:
            self._refuse_nested()
            async with self._require_reader().snapshot() as snapshot, self._held():
                yield snapshot
        else:
            async with self._require_reader().snapshot() as snapshot:
                yield snapshot

    @asynccontextmanager
    async def _held(self) -> AsyncIterator[None]:
        holders = {holder for holder in (asyncio.current_task(),) if holder is not None}
        self._turn_holders |= holders
        try:
            yield
        finally:
            self._turn_holders -= holders

    def _refuse_nested(self) -> None:
        if asyncio.current_task() in self._turn_holders:
            raise NestedWriteError("this task holds the write transaction: use its methods, or end it first")


async def _ended(task: asyncio.Task[Any]) -> None:
    await asyncio.wait([task])
