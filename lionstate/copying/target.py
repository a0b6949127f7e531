"""The store that is written: empty at first, opened by nobody else before it is verified."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, TypeVar

from sqlalchemy import Connection, bindparam, delete, insert, inspect, select, update

from lionstate.copying.progress import Progress, advance, load, start
from lionstate.copying.source import readings_of
from lionstate.copying.tables import CopiedTable, Reading
from lionstate.copying.values import numeric_rows, strict_rows
from lionstate.dialects import Statement, dialect_named, dialect_of
from lionstate.engine import EngineSettings, SilentObserver, StoreURL
from lionstate.engine.postgresql import PostgresqlWriter
from lionstate.engine.reader import PostgresqlReader, Reader, SqliteReader
from lionstate.engine.sqlite import SqliteWriter
from lionstate.engine.sqlite_file import SqliteFile
from lionstate.errors import BackendBusyError, NotEmptyError, UnrecognizedStoreError
from lionstate.opening import SMALLEST_DATABASE_BYTES, write_alone
from lionstate.schema import (
    OWN_SCHEMA_VERSION,
    OWN_TABLES,
    RECORD_TABLES,
    StoreKind,
    apply_schema,
    install_fence,
)
from lionstate.schema.control import schema_meta
from lionstate.schema.conversation import message_types
from lionstate.schema.opening import OWN_VERSION_KEY, UNFINISHED_COPY_LINEAGE
from lionstate.schema.own import migration_control, progression_storage_state
from lionstate.schema.triggers import schema_dialect

__all__ = ["Target"]

R = TypeVar("R")

"""The lineage of a copy before it is verified: neither lionstate nor LionAGI opens such a store."""

OUR_NAMES: Final = frozenset(table.name for table in (*RECORD_TABLES, *OWN_TABLES))


class Target:
    """A store to write whole tables into.

    Attributes:
        progress: How far the copy is; None before ``begin`` of a new one.
        readings: How each table is read back, by name.
    """

    def __init__(self, url: StoreURL, settings: EngineSettings) -> None:
        """Name the store; ``look`` looks at it and ``open`` opens it."""
        self.url = url
        # Nobody else has a use for the file before it is finished: no pauses for others.
        self._settings = dataclasses.replace(settings, exclusive=True, lanes=1, readers=1, readonly=False)
        self._is_strict = dialect_named(url.dialect).capabilities.strict_values
        self._file: SqliteFile | None = None
        self._writer: SqliteWriter | PostgresqlWriter | None = None
        self._reader: Reader | None = None
        self.progress: Progress | None = None
        self.readings: dict[str, Reading] = {}

    @property
    def max_indexed_bytes(self) -> int | None:
        """Longest text in an index when the target is strict about values; None when it takes everything."""
        capabilities = dialect_named(self.url.dialect).capabilities
        return capabilities.max_migratable_id_bytes if capabilities.strict_values else None

    async def look(self) -> None:
        """Learn whether the target is empty or holds a copy, without any write.

        Raises:
            NotEmptyError: It holds something else.
        """
        path = self.url.path
        if path is None:
            self._reader = PostgresqlReader(self.url, self._settings)
            self.progress = await self._reader.run(_examine)
        elif path.exists() and (size := path.stat().st_size):
            if size < SMALLEST_DATABASE_BYTES:
                raise UnrecognizedStoreError("the target file is no database")
            looking = dataclasses.replace(self._settings, readonly=True, tidy=True)
            file = SqliteFile(path, looking)
            file.claim(own=False)
            reader = SqliteReader(path, file.module, looking)
            try:
                self.progress = await reader.run(_examine)
            finally:
                await reader.close()
                file.release()

    async def open(self) -> None:
        """Open for writing; the daemon's lock of a file is taken.

        Raises:
            OwnershipConflictError: A daemon, or another copy, owns the file.
            BackendUnavailableError: The path or server cannot be used.
        """
        if self.url.path is None:
            self._writer = PostgresqlWriter(self.url, self._settings, SilentObserver())
        else:
            self._file = file = SqliteFile(self.url.path, self._settings)
            file.claim(own=True)
            file.take(own=True)
            self._writer = writer = SqliteWriter(self.url.path, file.module, self._settings, SilentObserver())
            await writer.open()
            self._reader = SqliteReader(self.url.path, file.module, self._settings)
        if self.progress is not None:
            await self._learn_readings()

    async def run(self, script: Callable[[Connection], R]) -> R:
        """Run one read script in a snapshot of its own."""
        assert self._reader is not None
        return await self._reader.run(script)

    async def _write(self, script: Callable[[Connection], Any]) -> Any:
        assert self._writer is not None
        return await write_alone(self._writer, script)

    async def begin(self, source: str) -> Progress:
        """Make an empty store that nobody opens, and note whose copy it becomes.

        Raises:
            NotEmptyError: Something was made in it since ``look``.
        """
        progress = Progress(source)
        await self._write(lambda conn: _begin(conn, progress))
        await self._learn_readings()
        self.progress = progress
        return progress

    async def _learn_readings(self) -> None:
        self.readings = await self.run(lambda conn: readings_of(conn, OUR_NAMES))

    async def put(self, copied: CopiedTable, rows: Sequence[Sequence[Any]], before: Progress, after: Progress) -> None:
        """Write one page and move on, in one transaction."""
        given = self._given(copied, rows)

        def script(conn: Connection) -> None:
            advance(conn, before, after)
            dialect_of(conn).bulk_insert(conn, copied.table, copied.names, given)

        await self._write(script)
        self.progress = after

    def _given(self, copied: CopiedTable, rows: Sequence[Sequence[Any]]) -> Sequence[Sequence[Any]]:
        if not rows:
            return rows
        found = strict_rows(copied, rows) if self._is_strict else numeric_rows(copied, rows)
        if not copied.links:
            return found
        return [[None if place in copied.links else value for place, value in enumerate(row)] for row in found]

    async def link(self, copied: CopiedTable, rows: Sequence[Sequence[Any]], before: Progress, after: Progress) -> None:
        """Set the references of a table to itself, and move on, in one transaction."""

        def script(conn: Connection) -> None:
            advance(conn, before, after)
            for place in copied.links:
                linked = [row for row in rows if row[place] is not None]
                _set_links(conn, copied, place, linked)

        await self._write(script)
        self.progress = after

    async def finish(self, meta: Mapping[str, str], before: Progress, after: Progress) -> None:
        """Make the store one that may be opened: fence, sequences, metadata.

        Contract: design decisions 21, 32.
        """
        await self._write(lambda conn: _finish(conn, meta, before, after))
        self.progress = after
        with suppress(BackendBusyError):
            await self._write(lambda conn: dialect_of(conn).refresh_statistics(conn))

    async def close(self) -> None:
        """Close the connections and give the file back; may be repeated."""
        try:
            if self._reader is not None:
                await self._reader.close()
        finally:
            try:
                if self._writer is not None:
                    await self._writer.close()
            finally:
                if self._file is not None:
                    self._file.release()


def _examine(conn: Connection, /) -> Progress | None:
    names = set(inspect(conn).get_table_names())
    if not names & OUR_NAMES:
        if names and not schema_dialect(conn).shares_database:
            raise NotEmptyError("the target file is a database of something else; name a new file")
        return None
    found = load(conn) if migration_control.name in names else None
    if found is None:
        raise NotEmptyError("the target holds a store already; name a new file or an empty database")
    return found


def _begin(conn: Connection, /, progress: Progress) -> None:
    schema_dialect(conn).lock_schema(conn)
    if _examine(conn) is not None:
        raise NotEmptyError("another process has begun to copy into the same target")
    apply_schema(conn, StoreKind.NEW, lionagi_compatible=False, now=time.time())
    for table in (message_types, migration_control, schema_meta):
        conn.execute(delete(table))
    conn.execute(insert(schema_meta), [{"key": "lineage", "value": UNFINISHED_COPY_LINEAGE}])
    start(conn, progress)


def _set_links(conn: Connection, copied: CopiedTable, place: int, rows: Sequence[Sequence[Any]]) -> None:
    keys = [copied.columns[at] for at in copied.key]
    statement = Statement(
        update(copied.table)
        .where(*(key == bindparam(f"key{at}") for at, key in enumerate(keys)))
        .values({copied.columns[place].name: bindparam("to")})
    )
    statement.many(
        conn, [{**{f"key{at}": v for at, v in enumerate(copied.key_of(row))}, "to": row[place]} for row in rows]
    )


def _finish(conn: Connection, /, meta: Mapping[str, str], before: Progress, after: Progress) -> None:
    advance(conn, before, after)
    state = progression_storage_state.c
    if conn.execute(select(state.progression_id).where(state.authority != "json").limit(1)).first() is not None:
        install_fence(conn)
    while schema_dialect(conn).message_type_ids_behind(conn):
        schema_dialect(conn).advance_message_type_ids(conn)
    conn.execute(delete(schema_meta))
    rows = {**meta, OWN_VERSION_KEY: str(OWN_SCHEMA_VERSION)}
    conn.execute(insert(schema_meta), [{"key": key, "value": value} for key, value in rows.items()])
