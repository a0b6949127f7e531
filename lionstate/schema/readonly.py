"""A store that lionstate has not written to yet, opened without any write: its own tables are absent."""

from __future__ import annotations

from typing import Any

from sqlalchemy.dialects import sqlite
from sqlalchemy.schema import CreateTable

from lionstate.schema.tables import OWN_TABLES

__all__ = ["OWN_TABLES_APPEARED", "put_empty_own_tables"]

# Counts stand-ins that hide a table which another process has created since; then the connection must be replaced.
OWN_TABLES_APPEARED = (
    "SELECT count(*) FROM main.sqlite_master AS m JOIN temp.sqlite_master AS t ON t.name = m.name"
    " WHERE m.type = 'table' AND t.type = 'table'"
)
_NAMES = "SELECT name FROM main.sqlite_master WHERE type = 'table'"


def put_empty_own_tables(driver: Any) -> None:
    """Stand in for missing own tables of a SQLite store with empty ones in the connection's temporary schema.

    A query then finds no row, as in a store whose progressions were never migrated; the store's file is not touched.

    Contract: design decision 32.
    """
    present = {row[0] for row in driver.execute(_NAMES).fetchall()}
    for table in OWN_TABLES:
        if table.name not in present:
            created = str(CreateTable(table).compile(dialect=sqlite.dialect())).strip()
            driver.execute(created.replace("CREATE TABLE", "CREATE TEMPORARY TABLE", 1))
