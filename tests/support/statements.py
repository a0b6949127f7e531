"""Counts the statements that a store sends, as the driver sees them."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

from sqlalchemy import event

from lionstate.engine.postgresql import PostgresqlWriter
from lionstate.engine.sqlite import SqliteWriter
from tests.support.backends import Backend

__all__ = ["statements"]

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
    engine = writer.engine.sync_engine

    def before(_conn: Any, _cursor: Any, sql: str, *_rest: Any) -> None:
        note(sql)

    event.listen(engine, "before_cursor_execute", before)
    try:
        yield sent
    finally:
        event.remove(engine, "before_cursor_execute", before)
