"""Counts the statements that a store sends, as the driver sees them."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import asyncpg
from sqlalchemy import Connection, event

from lionstate.engine.postgresql import PostgresqlWriter
from lionstate.engine.sqlite import SqliteWriter
from tests.support.backends import Backend

__all__ = ["seen_on_postgresql", "statements"]

_OF_THE_ENGINE = ("BEGIN", "COMMIT", "ROLLBACK", "INSERT INTO writer_batches", "SELECT CAST(CAST(pg_current_xact_id")


@contextlib.asynccontextmanager
async def statements(backend: Backend) -> AsyncIterator[list[str]]:
    """What the writer sends inside the block, without what the engine adds to every batch."""
    sent: list[str] = []

    def note(sql: str) -> None:
        if not sql.startswith((*_OF_THE_ENGINE, "--")):
            sent.append(sql)

    writer = backend.direct.store.writer
    if isinstance(writer, SqliteWriter):
        driver = writer._driver
        await writer.call(lambda _: driver.set_trace_callback(note))
        try:
            yield sent
        finally:
            await writer.call(lambda _: driver.set_trace_callback(None))
        return
    assert isinstance(writer, PostgresqlWriter)
    with seen_on_postgresql(note, writer.engine.sync_engine):
        yield sent


@contextlib.contextmanager
def seen_on_postgresql(note: Callable[[str], None], target: Any) -> Iterator[None]:
    """Tell of every statement that goes to a server through ``target`` (SQLAlchemy's engine or connection).

    A transaction begins through SQLAlchemy; from then on its connection is known, and what the hot path runs on asyncpg
    itself is seen as well.
    """
    known: set[int] = set()

    def know(conn: Any) -> None:
        known.add(id(getattr(conn.connection.dbapi_connection, "driver_connection", None)))

    def before(conn: Any, _cursor: Any, sql: str, *_rest: Any) -> None:
        know(conn)
        note(sql)

    if isinstance(target, Connection):
        know(target)

    plain: dict[str, Any] = {name: getattr(asyncpg.Connection, name) for name in ("fetch", "execute")}

    def noting(name: str) -> Any:
        async def run(self: Any, sql: str, *args: Any, **options: Any) -> Any:
            # Without arguments `execute` is the driver's own BEGIN or COMMIT.
            if id(self) in known and (args or name == "fetch"):
                note(sql)
            return await plain[name](self, sql, *args, **options)

        return run

    event.listen(target, "begin", know)
    event.listen(target, "before_cursor_execute", before)
    for name in plain:
        setattr(asyncpg.Connection, name, noting(name))
    try:
        yield
    finally:
        for name, method in plain.items():
            setattr(asyncpg.Connection, name, method)
        event.remove(target, "before_cursor_execute", before)
        event.remove(target, "begin", know)
