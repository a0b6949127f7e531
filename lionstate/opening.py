"""Opens the parts of a store in order: SQLite library and file, schema, writer, reader; closes them in reverse."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from sqlalchemy import Connection

from lionstate.dialects.sqlite_words import said
from lionstate.engine import EngineSettings, NotWritten, Observer, StoreURL, Unit, Written
from lionstate.engine.connections import Connections
from lionstate.engine.load import Load
from lionstate.engine.memory import MemoryReader
from lionstate.engine.postgresql import PostgresqlWriter
from lionstate.engine.reader import PostgresqlReader, Reader, SqliteReader
from lionstate.engine.replicas import Replicas
from lionstate.engine.sqlite import SqliteWriter
from lionstate.engine.sqlite_file import SqliteFile
from lionstate.errors import (
    BackendBusyError,
    BackendError,
    BackendUnavailableError,
    InvalidInputError,
    UnrecognizedStoreError,
)
from lionstate.schema import (
    OpenReport,
    apply_schema,
    inspect_store,
    normalized_default,
    own_tables_exist,
    record_normalized_default,
    require_fit,
    schema_complete,
)
from lionstate.schema.opening import StoreKind
from lionstate.schema.readonly import (
    OWN_TABLES_APPEARED,
    put_empty_own_tables,
    put_empty_own_tables_on_postgresql,
)

__all__ = ["SMALLEST_DATABASE_BYTES", "Parts", "require_asyncio", "write_alone"]

# Several processes may open a new store at once; on PostgreSQL a lane gives way after half a second.
_SCHEMA_WAIT_SECONDS = 30.0
SMALLEST_DATABASE_BYTES = 512


def require_asyncio() -> None:
    """InvalidInputError unless an asyncio event loop runs."""
    try:
        asyncio.get_running_loop()
    except RuntimeError as error:
        raise InvalidInputError("lionstate runs on asyncio; trio and other event loops are not supported") from error


def _fit_store(conn: Connection) -> StoreKind:
    kind = inspect_store(conn)
    require_fit(conn, kind)
    return kind


class _Scripts:
    """A batch that opening makes itself."""

    lane = "maintenance"

    def __init__(self, *scripts: Callable[[Connection], Any]) -> None:
        self._units = [Unit([script]) for script in scripts]

    def wanted(self) -> bool:
        return True

    def take(self) -> Sequence[Unit]:
        return self._units

    def lock(self, conn: Connection) -> None:
        """The scripts lock what they need."""


class Parts:
    """What an open store consists of; a part is None before it is opened, after it is closed, and where it has none."""

    def __init__(self, url: StoreURL, settings: EngineSettings, observer: Observer) -> None:
        """Name them; ``open`` opens them."""
        self.url = url
        self.settings = settings
        self.load = Load(observer, url.path)
        self.report: OpenReport | None = None
        self.file: SqliteFile | None = None
        self.writer: SqliteWriter | PostgresqlWriter | None = None
        self.reader: Reader | None = None
        self.replicas: Replicas | None = None

    async def open(self, *, lionagi_compatible: bool, normalized: bool | None, own: bool, vfs: str | None) -> None:
        """Open everything; what was opened before an error is for ``close``."""
        if self.settings.readonly and normalized is not None:
            raise InvalidInputError("normalized is recorded in the store, which is opened read-only")
        await self.connect(own=own, vfs=vfs)
        if self.writer is not None and self.reader is not None:
            await self._apply_schema(self.writer, self.reader, lionagi_compatible)
            await self._record_normalized(self.writer, self.reader, normalized)
        if self.file is not None:
            self.file.opened()

    async def connect(self, *, own: bool, vfs: str | None = None) -> None:
        """Open file, writer and reader, and leave the schema as it is."""
        if self.settings.replicas and self.url.dialect == "sqlite":
            raise InvalidInputError("a SQLite store has no replicas")
        if self.url.dialect == "sqlite":
            await self._open_sqlite(own, vfs)
        elif own:
            raise InvalidInputError("only a SQLite file can be owned")
        elif self.settings.readonly:
            await self._read_postgresql()
        else:
            self.reader = PostgresqlReader(self.url, self.settings)
            if self.settings.must_exist and await self.reader.run(inspect_store) is StoreKind.NEW:
                raise UnrecognizedStoreError("the database holds no store, and this makes none")
            self.writer = PostgresqlWriter(self.url, self.settings, self.load)
        if self.settings.replicas and self.reader is not None:
            self.replicas = Replicas(self.settings.replicas, self.settings, self.reader)

    async def _open_sqlite(self, own: bool, vfs: str | None) -> None:
        file = SqliteFile(self.url.path, self.settings)
        self.file = file
        file.claim(own=own)
        path, module = file.path, file.module
        if path is not None:
            absent = await self._inspect_unopened(path, file, vfs)
            file.take(own=own)
            prepare, outdated = (put_empty_own_tables, OWN_TABLES_APPEARED) if absent else (None, None)
            check = file.require_in_place
            self.reader = SqliteReader(
                path, module, self.settings, vfs=vfs, prepare=prepare, outdated=outdated, require_in_place=check
            )
        if not self.settings.readonly:
            writer = SqliteWriter(
                path, module, self.settings, self.load, vfs=vfs, require_in_place=file.require_in_place
            )
            self.writer = writer
            try:
                await writer.open()
            except module.Error as error:
                raise BackendUnavailableError(f"the store file cannot be opened: {said(error)}") from error
            file.watch_log(lambda: writer.wal.is_in_place)
            if path is None:
                self.reader = MemoryReader(writer)

    async def _read_postgresql(self) -> None:
        reader = PostgresqlReader(self.url, self.settings)
        self.reader = reader
        if await reader.run(inspect_store) is StoreKind.NEW:
            raise UnrecognizedStoreError("the database holds no store, and a read-only open makes none")
        if not await reader.run(own_tables_exist):
            await reader.close()
            self.reader = PostgresqlReader(self.url, self.settings, prepare=put_empty_own_tables_on_postgresql)

    async def _inspect_unopened(self, path: Path, file: SqliteFile, vfs: str | None) -> bool:
        """Refuse a newer or foreign store through a read-only connection, before any pragma could change it.

        Returns:
            Whether a read-only open has to do without lionstate's own tables.
        """
        size = file.size_bytes
        may_be_made = not self.settings.readonly and not self.settings.must_exist
        if size == 0 and may_be_made:
            return False
        if 0 < size < SMALLEST_DATABASE_BYTES:
            # SQLite would take a few bytes of something else for a new file and write over them.
            raise UnrecognizedStoreError("the file is no database")
        look = dataclasses.replace(self.settings, readonly=True, tidy=True, readers=1)
        looking = SqliteReader(path, file.module, look, vfs=vfs)
        try:
            kind = await looking.run(inspect_store if self.settings.readonly else _fit_store)
            if may_be_made:
                return False
            if kind is StoreKind.NEW:
                what = "a read-only open" if self.settings.readonly else "this"
                raise UnrecognizedStoreError(f"the file holds no store, and {what} makes none")
            return self.settings.readonly and not await looking.run(own_tables_exist)
        except BackendBusyError:
            raise
        except BackendError as error:
            raise BackendUnavailableError(f"the store file cannot be read: {error}") from error
        finally:
            await looking.close()

    async def _apply_schema(
        self, writer: SqliteWriter | PostgresqlWriter, reader: Reader, lionagi_compatible: bool
    ) -> None:
        kind = await reader.run(inspect_store)
        if await reader.run(lambda conn: schema_complete(conn, kind)):
            self.report = OpenReport(kind, False, ())
            return

        def script(conn: Connection) -> OpenReport:
            return apply_schema(conn, kind, lionagi_compatible=lionagi_compatible, now=time.time())

        self.report = await write_alone(writer, script)
        with suppress(BackendBusyError):
            # New tables have no statistics before the server's own round (design decision 10); a lock can wait for it.
            await write_alone(writer, writer.dialect.refresh_statistics)

    async def _record_normalized(
        self, writer: SqliteWriter | PostgresqlWriter, reader: Reader, normalized: bool | None
    ) -> None:
        if normalized is None or await reader.run(normalized_default) is normalized:
            return
        reason = "asked for when the store was opened"
        record = functools.partial(record_normalized_default, enabled=normalized, now=time.time(), reason=reason)
        await write_alone(writer, record)

    def connections(self) -> Connections:
        """Connections of the writer and the readers now, from memory; none when closed."""
        found = Connections() if self.writer is None else self.writer.connections()
        found = found if self.replicas is None else found.and_(self.replicas.connections())
        return found if self.reader is None else found.and_(self.reader.connections())

    async def require_in_place(self) -> None:
        """Ask whether the path of a SQLite store still names the file that is open, and its log; writes ask too.

        Raises:
            BackendUnavailableError: It does not (``store_moved``).

        Cost: one hop to a thread and one ``stat``.
        """
        if (file := self.file) is not None:
            await asyncio.to_thread(file.require_in_place)

    async def close(self) -> None:
        """Close the readers, then the writer, then give the file back; may be repeated."""
        writer, self.writer = self.writer, None
        reader, self.reader = self.reader, None
        replicas, self.replicas = self.replicas, None
        try:
            if replicas is not None:
                await replicas.close()
            if reader is not None:
                await reader.close()
        finally:
            try:
                if writer is not None:
                    await writer.close()
            finally:
                if self.file is not None:
                    self.file.release()


async def write_alone(writer: SqliteWriter | PostgresqlWriter, script: Callable[[Connection], Any]) -> Any:
    """Run a script that other processes may be running as well; wait for them beyond one lane's patience."""
    give_up = time.monotonic() + _SCHEMA_WAIT_SECONDS
    while True:
        (outcome,) = await writer.run(_Scripts(script))
        if isinstance(outcome, Written):
            return outcome.value
        busy = isinstance(outcome, NotWritten) and isinstance(outcome.error, BackendBusyError)
        if not busy or time.monotonic() >= give_up:
            raise outcome.error
