"""Opens a store and closes it in reverse: URL, SQLite library, schema, writer, readers, queue."""

from __future__ import annotations

import asyncio
import functools
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, delete, select

from lionstate.dialects import Dialect, Statement, dialect_named
from lionstate.engine import (
    Continued,
    Deferred,
    EngineSettings,
    NotWritten,
    Observer,
    Outcome,
    SilentObserver,
    StoreURL,
    Unit,
    Written,
)
from lionstate.engine.libraries import claim_file, is_affected, load_module, release_file
from lionstate.engine.offload import run_pure
from lionstate.engine.postgresql import PostgresqlWriter
from lionstate.engine.reader import MemoryReader, PostgresqlReader, Reader, SqliteReader
from lionstate.engine.sqlite import SqliteWriter
from lionstate.errors import (
    BackendError,
    BackendUnavailableError,
    ClosedError,
    InvalidInputError,
    NestedWriteError,
    SchemaError,
    StateError,
)
from lionstate.operations import Operation
from lionstate.progression.parsed import ParsedValues
from lionstate.queue import QueueLimits, Ticket, TicketClass, WriteQueue
from lionstate.queue.ticket import Fold
from lionstate.schema import OpenReport, apply_schema, inspect_store, schema_complete
from lionstate.schema.own import writer_batches

__all__ = ["BatchRow", "Store"]

_TICK_SECONDS = 1.0
_STALE_WRITER_SECONDS = 86_400.0
_DRAIN_SECONDS = 10.0
_MAINTENANCE_KEYS = frozenset(("m:migration",))


class BatchRow:
    """The writer's row in ``writer_batches``: the number of its last committed batch (design §2.1)."""

    def __init__(self, dialect: Dialect) -> None:
        """Start at zero under a name of its own: several processes may write one store."""
        self.name = uuid.uuid4().hex
        self._number = 0
        self._upsert = Statement(dialect.upsert(writer_batches, ["writer"], ["batch", "updated_at"]))
        self._last = Statement(select(writer_batches.c.batch).where(writer_batches.c.writer == self.name))

    def record(self, conn: Connection) -> int:
        """Write the next number."""
        self._number += 1
        self._write(conn)
        return self._number

    def _write(self, conn: Connection) -> None:
        self._upsert.run(conn, {"writer": self.name, "batch": self._number, "updated_at": time.time()})

    def last(self, conn: Connection) -> int:
        """The number in the store."""
        rows = self._last.rows(conn)
        return int(rows[0][0]) if rows else 0

    def settle(self, conn: Connection) -> None:
        """Write the row again, under a number that no batch has."""
        self._number += 1
        self._write(conn)

    def forget(self, conn: Connection) -> None:
        """Remove this row, and those of writers that ended without removing theirs."""
        old = time.time() - _STALE_WRITER_SECONDS
        stale = (writer_batches.c.writer == self.name) | (writer_batches.c.updated_at < old)
        conn.execute(delete(writer_batches).where(stale))


class _Scripts:
    """A batch that the store makes itself: opening, closing."""

    def __init__(self, *scripts: Callable[[Connection], Any]) -> None:
        self._scripts = scripts

    def take(self) -> Sequence[Unit]:
        return [Unit([script]) for script in self._scripts]

    def lock(self, conn: Connection) -> None:
        """The scripts lock what they need."""


def _value(outcome: Outcome) -> Any:
    if isinstance(outcome, Written):
        return outcome.value
    raise outcome.error


class Store:
    """An open store: one writer, readers, a write queue.

    Use ``await Store.open(…)``; everything else runs on the loop that opened it.
    """

    def __init__(self, url: StoreURL, settings: EngineSettings, observer: Observer) -> None:
        """Prepare; ``open`` does the work."""
        self.url = url
        self.settings = settings
        self.observer = observer
        self.dialect = dialect_named(url.dialect)
        self.report: OpenReport | None = None
        self.sqlite_version: tuple[int, int, int] | None = None
        self.sqlite_affected = False
        self.writer: SqliteWriter | PostgresqlWriter | None = None
        self.parsed = ParsedValues(observer=observer)
        self._module_name = ""
        self._claim: tuple[int, int] | None = None
        self._reader: Reader | None = None
        self._queue: WriteQueue | None = None
        self._folds: dict[str, Fold] = {}
        self._batch_row: BatchRow | None = None
        self._ticker: asyncio.Task[None] | None = None
        self._turn_holder: asyncio.Task[Any] | None = None
        self.explicit_transactions = 0

    @classmethod
    async def open(
        cls,
        target: str | Path,
        settings: EngineSettings | None = None,
        *,
        observer: Observer | None = None,
        limits: QueueLimits | None = None,
        lionagi_compatible: bool = False,
        vfs: str | None = None,
    ) -> Store:
        """Open a store, creating it when it is new.

        Args:
            target: Path or URL.
            settings: How connections behave.
            observer: Receives measurements.
            limits: Bounds of the write queue.
            lionagi_compatible: A new store is one that LionAGI 0.36.0 can open (design decision 32).
            vfs: A SQLite VFS by name, for tests.
        Raises:
            SchemaError: The store is newer, foreign or unrecognized; nothing was changed.
            BackendUnavailableError: The path or server cannot be used.
            InvalidInputError: The URL, or an event loop that is not asyncio's.

        Contract: ADR-0055 D1; design §2.4, §7, decision 32.
        """
        try:
            asyncio.get_running_loop()
        except RuntimeError as error:
            raise InvalidInputError("lionstate runs on asyncio; other event loops are not supported") from error
        store = cls(StoreURL.of(target), settings or EngineSettings(), observer or SilentObserver())
        try:
            await store._open(limits or QueueLimits(), lionagi_compatible, vfs)
        except BaseException:
            await store.close()
            raise
        return store

    async def _open(self, limits: QueueLimits, lionagi_compatible: bool, vfs: str | None) -> None:
        if self.url.dialect == "sqlite":
            await self._open_sqlite(vfs)
        else:
            self.writer = None if self.settings.readonly else self._postgresql_writer()
            self._reader = PostgresqlReader(self.url, self.settings)
        if not self.settings.readonly:
            await self._apply_schema(lionagi_compatible)
            await self._start_writing(limits)

    def _postgresql_writer(self) -> PostgresqlWriter:
        return PostgresqlWriter(self.url, self.settings, self.observer)

    async def _open_sqlite(self, vfs: str | None) -> None:
        path = self.url.path
        if self.settings.readonly and (path is None or not path.is_file()):
            raise BackendUnavailableError("a read-only store must be a file that exists")
        module = load_module(self.settings.sqlite_module)
        self._module_name = module.__name__
        self._judge_library(module.sqlite_version_info)
        if path is not None:
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise BackendUnavailableError(f"the store's folder cannot be made: {error.strerror}") from error
            if path.is_dir():
                raise BackendUnavailableError("the store path is a folder")
            self._claim = claim_file(path, self._module_name)
        if not self.settings.readonly:
            if path is not None and self._claim is not None:
                await self._inspect_unopened(path, module)
            writer = SqliteWriter(path, module, self.settings, self.observer, vfs=vfs)
            self.writer = writer
            try:
                await writer.open()
            except module.Error as error:
                raise BackendUnavailableError(f"the store file cannot be opened: {error}") from error
            if path is not None and self._claim is None:
                self._claim = claim_file(path, self._module_name)
            if path is None:
                self._reader = MemoryReader(writer)
        if path is not None:
            self._reader = SqliteReader(path, module, self.settings, vfs=vfs)

    async def _inspect_unopened(self, path: Path, module: Any) -> None:
        """Refuse a newer or foreign store through a read-only connection, before any pragma could change it."""
        looking = SqliteReader(path, module, EngineSettings(readonly=True, readers=1))
        try:
            await looking.run(inspect_store)
        except BackendError as error:
            if await asyncio.to_thread(lambda: path.stat().st_size):
                raise BackendUnavailableError(f"the store file cannot be read: {error}") from error
        finally:
            await looking.close()

    def _judge_library(self, version: tuple[int, int, int]) -> None:
        self.sqlite_version = version
        self.sqlite_affected = is_affected(version)
        if self.sqlite_affected and self.settings.affected_sqlite == "refuse":
            text = ".".join(map(str, version))
            raise SchemaError(
                f"SQLite {text} has the WAL-reset race (fixed in 3.44.6, 3.50.7 and 3.51.3) and"
                " database.affected_sqlite is refuse"
            )

    async def _apply_schema(self, lionagi_compatible: bool) -> None:
        writer, reader = self._require_writer(), self._require_reader()
        kind = await reader.run(inspect_store)
        if await reader.run(lambda conn: schema_complete(conn, kind)):
            self.report = OpenReport(kind, False, ())
            return

        def script(conn: Connection) -> OpenReport:
            return apply_schema(conn, kind, lionagi_compatible=lionagi_compatible, now=time.time())

        (outcome,) = await writer.run(_Scripts(script))
        self.report = _value(outcome)

    async def _start_writing(self, limits: QueueLimits) -> None:
        writer = self._require_writer()
        if isinstance(writer, SqliteWriter):
            self._batch_row = BatchRow(self.dialect)
            writer.use_batch_log(self._batch_row)
        self._queue = WriteQueue(writer, limits, self.observer, self.parsed)
        self._ticker = asyncio.get_running_loop().create_task(self._tick())

    async def _tick(self) -> None:
        while True:
            await asyncio.sleep(_TICK_SECONDS)
            with suppress(StateError):
                await self._require_writer().tick()

    async def close(self, drain_seconds: float = _DRAIN_SECONDS) -> int:
        """Drain the queue, stop the writer, close the readers; may be repeated.

        Returns:
            Operations that were refused because the budget ended.
        """
        refused = 0
        if self._queue is not None:
            refused = await self._queue.drain(drain_seconds)
        if self._ticker is not None:
            self._ticker.cancel()
            self._ticker = None
        if self._batch_row is not None and self.writer is not None:
            await self.writer.run(_Scripts(self._batch_row.forget))
            self._batch_row = None
        if self._reader is not None:
            await self._reader.close()
            self._reader = None
        if self.writer is not None:
            writer, self.writer = self.writer, None
            await writer.close()
        self._queue = None
        if self._claim is not None:
            release_file(self._claim, self._module_name)
            self._claim = None
        return refused

    def _require_writer(self) -> SqliteWriter | PostgresqlWriter:
        if self.writer is None:
            raise BackendError("the store is open read-only") if self._reader else ClosedError()
        return self.writer

    def _require_reader(self) -> Reader:
        if self._reader is None:
            raise ClosedError()
        return self._reader

    @property
    def reader(self) -> Reader:
        """The reader; ClosedError when the store is closed."""
        return self._require_reader()

    @property
    def queue(self) -> WriteQueue:
        """The write queue; an error says when the store is closed or read-only."""
        self._require_writer()
        if self._queue is None:
            raise ClosedError()
        return self._queue

    async def run(self, operation: Operation, params: Mapping[str, Any], *, deadline: float | None = None) -> Any:
        """Run one operation and return its result.

        Args:
            operation: From ``OPERATIONS``.
            params: By name, as the script takes them.
            deadline: ``time.monotonic()`` after which a write is not started.
        Raises:
            StateError: Whatever the operation or the store says; see ``errors``.
        """
        if not operation.writes:
            return await self.read(functools.partial(operation.script, **params))
        self._refuse_nested()
        ticket = self._ticket(operation, await self._prepared(operation, params), deadline)
        self.queue.submit(ticket)
        return _value(await ticket.future)

    async def read(self, script: Callable[[Connection], Any]) -> Any:
        """Run a read script in one snapshot; what it deferred is finished outside, and may go on to another."""
        found = await self._require_reader().run(script)
        while isinstance(found, Deferred):
            if found.observe is not None:
                found.observe(self.observer)
            found = await run_pure(found.finish, found.raw, found.size)
            if isinstance(found, Continued):
                found = await self._require_reader().run(found.script)
        return found

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
        ticket = Ticket(
            name,
            script,
            {},
            None,
            keys,
            frozenset(progressions),
            256,
            deadline,
            kind,
            asyncio.get_running_loop().create_future(),
            time.monotonic(),
        )
        self.queue.submit(ticket)
        return _value(await ticket.future)

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
    ) -> list[Outcome]:
        """Run several writes: each on its own in order, or all in one transaction.

        Returns:
            One outcome per call; with ``atomic`` they are all written or none.
        """
        self._refuse_nested()
        prepared: list[tuple[Operation, Mapping[str, Any] | StateError]] = []
        for operation, params in calls:
            if not operation.writes:
                raise InvalidInputError(f"{operation.name} is a read and cannot be part of a batch")
            try:
                prepared.append((operation, await self._prepared(operation, params)))
            except StateError as error:
                if atomic:
                    return [NotWritten(error)] * len(calls)
                prepared.append((operation, error))
        if atomic:
            return await self._run_atomic(prepared, deadline)
        tickets = [
            params if isinstance(params, StateError) else self._ticket(operation, params, deadline)
            for operation, params in prepared
        ]
        self.queue.submit_all([ticket for ticket in tickets if isinstance(ticket, Ticket)])
        return [NotWritten(ticket) if isinstance(ticket, StateError) else await ticket.future for ticket in tickets]

    async def _run_atomic(self, prepared: Sequence[tuple[Operation, Any]], deadline: float | None) -> list[Outcome]:
        if not prepared:
            return []
        scripts = [functools.partial(operation.script, **params) for operation, params in prepared]
        keys: frozenset[str] | None = frozenset()
        for operation, params in prepared:
            found = operation.keys(params)
            keys = None if keys is None or found is None else keys | found
        ticket = Ticket(
            "batch",
            lambda conn: [script(conn) for script in scripts],
            {},
            None,
            keys,
            _progressions(keys),
            sum(operation.size(params) for operation, params in prepared),
            deadline,
            TicketClass.REQUEST,
            asyncio.get_running_loop().create_future(),
            time.monotonic(),
        )
        self.queue.submit(ticket)
        outcome = await ticket.future
        if isinstance(outcome, Written):
            return [Written(value) for value in outcome.value]
        return [outcome] * len(prepared)

    async def _prepared(self, operation: Operation, params: Mapping[str, Any]) -> Mapping[str, Any]:
        if operation.prepare is None:
            return params
        return await run_pure(operation.prepare, dict(params), operation.size(params))

    def _ticket(self, operation: Operation, params: Mapping[str, Any], deadline: float | None) -> Ticket:
        fold = self._fold(operation)
        if fold is None:
            call: Callable[[Connection], Any] = functools.partial(operation.script, **params)
        else:
            single = fold

            def call(conn: Connection) -> Any:
                return single(conn, [params])[0]

        keys = operation.keys(params)
        return Ticket(
            operation.name,
            call,
            params,
            fold,
            keys,
            _progressions(keys),
            operation.size(params),
            deadline,
            TicketClass.REQUEST,
            asyncio.get_running_loop().create_future(),
            time.monotonic(),
        )

    def _fold(self, operation: Operation) -> Fold | None:
        if operation.fold is None:
            return None
        found = self._folds.get(operation.name)
        if found is None:
            function, parsed = operation.fold, self.parsed

            def found(conn: Connection, calls: Sequence[Mapping[str, Any]], /) -> Sequence[Any]:
                return function(conn, calls, parsed)

            self._folds[operation.name] = found
        return found

    def _refuse_nested(self) -> None:
        if self._turn_holder is not None and asyncio.current_task() is self._turn_holder:
            raise NestedWriteError("this task holds the write transaction: use its methods, or end it first")

    def turn_taken(self, holder: asyncio.Task[Any] | None) -> None:
        """Note which task holds the explicit transaction; None when it has ended."""
        self._turn_holder = holder
        if holder is not None:
            self.explicit_transactions += 1


def _progressions(keys: frozenset[str] | None) -> frozenset[str]:
    return frozenset(key[2:] for key in keys or () if key.startswith("p:"))
