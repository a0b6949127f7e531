"""What copying whole stores needs of a database."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias

from sqlalchemy import Column, ColumnElement, Connection, Table

__all__ = ["BulkIntents", "Rows"]

Rows: TypeAlias = Sequence[Sequence[Any]]


class BulkIntents(Protocol):
    """The part of the seam that serves copies of whole tables."""

    def raw_column(self, column: Column[Any]) -> ColumnElement[Any]:
        """Build the value of a column as it is stored, so that ``bulk_insert`` can take it: JSON as its text."""
        ...

    def bulk_insert(
        self, conn: Connection, table: Table, columns: Sequence[str], rows: Sequence[Sequence[Any]]
    ) -> None:
        """Insert rows of raw values in the order of ``columns``; a conflict raises."""
        ...

    def broken_references(self, conn: Connection, table: Table) -> int:
        """Rows of a table whose foreign keys lead nowhere; 0 where the database does not let that be.

        Cost: one pass over the table.
        """
        ...
