"""SQLite's side of ``BulkIntents``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import Column, ColumnElement, Connection, Table, bindparam, insert
from sqlalchemy.types import UserDefinedType

__all__ = ["SqliteBulk"]


class _AsGiven(UserDefinedType[Any]):
    """A value that is in its stored form already."""

    cache_ok = True


_inserts: Final[dict[tuple[str, tuple[str, ...]], str]] = {}


class SqliteBulk:
    """See ``BulkIntents``."""

    def raw_column(self, column: Column[Any]) -> ColumnElement[Any]:
        return column

    def bulk_insert(
        self, conn: Connection, table: Table, columns: Sequence[str], rows: Sequence[Sequence[Any]]
    ) -> None:
        key = (table.name, tuple(columns))
        if key not in _inserts:
            values = {name: bindparam(name, type_=_AsGiven()) for name in columns}
            compiled: Any = insert(table).values(values).compile(dialect=conn.dialect, column_keys=list(columns))
            # The compiler keeps the table's order of columns, which need not be the caller's.
            if compiled.positiontup != list(columns):
                raise ValueError(f"columns of {table.name} are not in the table's order")
            _inserts[key] = str(compiled)
        driver: Any = conn.connection.dbapi_connection
        driver.executemany(_inserts[key], rows)

    def broken_references(self, conn: Connection, table: Table) -> int:
        if not table.foreign_keys:
            return 0
        name = conn.dialect.identifier_preparer.quote(table.name)
        return sum(1 for _ in conn.exec_driver_sql(f"PRAGMA foreign_key_check({name})"))
