"""The row in which a SQLite writer numbers its batches, so that a COMMIT that raised can be looked up."""

from __future__ import annotations

import functools
import time
import uuid

from sqlalchemy import Connection, delete, select

from lionstate.dialects import Dialect, Statement
from lionstate.engine import Look
from lionstate.schema.own import writer_batches

__all__ = ["BatchRow"]

_STALE_WRITER_SECONDS = 86_400.0


class BatchRow:
    """The writer's row in ``writer_batches``: the number of its last committed batch (design §2.1)."""

    def __init__(self, dialect: Dialect) -> None:
        """Start at zero under a name of its own: several processes may write one store."""
        self.name = uuid.uuid4().hex
        self._number = 0
        self._upsert = Statement(dialect.upsert(writer_batches, ["writer"], ["batch", "updated_at"]))
        self._last = Statement(select(writer_batches.c.batch).where(writer_batches.c.writer == self.name))

    def record(self, conn: Connection) -> Look:
        """Write the next number; what is returned tells whether it is the one in the store."""
        self._number += 1
        self._write(conn)
        return functools.partial(self._is_last, number=self._number)

    def _write(self, conn: Connection) -> None:
        self._upsert.each(conn, ((self.name, self._number, time.time()),))

    def _is_last(self, conn: Connection, *, number: int) -> bool:
        rows = self._last.rows(conn)
        return bool(rows) and rows[0][0] == number

    def settle(self, conn: Connection) -> None:
        """Write the row again, under a number that no batch has."""
        self._number += 1
        self._write(conn)

    def forget(self, conn: Connection) -> None:
        """Remove this row, and those of writers that ended without removing theirs."""
        old = time.time() - _STALE_WRITER_SECONDS
        stale = (writer_batches.c.writer == self.name) | (writer_batches.c.updated_at < old)
        conn.execute(delete(writer_batches).where(stale))
