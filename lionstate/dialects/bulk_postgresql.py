"""PostgreSQL's side of ``BulkIntents``: COPY."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import Column, ColumnElement, Connection, Table, Text, cast, select
from sqlalchemy.util import await_only

from lionstate.schema.types import Json

__all__ = ["PostgresqlBulk"]


class PostgresqlBulk:
    """See ``BulkIntents``."""

    def raw_column(self, column: Column[Any]) -> ColumnElement[Any]:
        # The driver decodes JSON, and what it makes of it cannot be put back exactly.
        return cast(column, Text) if isinstance(column.type, Json) else column

    def bulk_insert(
        self, conn: Connection, table: Table, columns: Sequence[str], rows: Sequence[Sequence[Any]]
    ) -> None:
        # The adapter begins the transaction with the first statement that it sends itself.
        conn.execute(select(1))
        adapted: Any = conn.connection.dbapi_connection
        raw: Any = adapted.driver_connection
        await_only(raw.copy_records_to_table(table.name, records=rows, columns=list(columns)))

    def broken_references(self, conn: Connection, table: Table) -> int:
        return 0
