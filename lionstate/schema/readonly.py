"""A store that lionstate has not written to yet, opened without any write: its own tables are absent."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import Dialect
from sqlalchemy.dialects import sqlite
from sqlalchemy.engine import make_url
from sqlalchemy.schema import CreateTable

from lionstate.schema.tables import OWN_TABLES

__all__ = ["OWN_TABLES_APPEARED", "put_empty_own_tables", "put_empty_own_tables_on_postgresql"]

# Counts stand-ins that hide a table which another process has created since; then the connection must be replaced.
OWN_TABLES_APPEARED = (
    "SELECT count(*) FROM main.sqlite_master AS m JOIN temp.sqlite_master AS t ON t.name = m.name"
    " WHERE m.type = 'table' AND t.type = 'table'"
)
_NAMES = "SELECT name FROM main.sqlite_master WHERE type = 'table'"
_NAMES_ON_POSTGRESQL = "SELECT tablename FROM pg_catalog.pg_tables WHERE schemaname = current_schema()"


def put_empty_own_tables(driver: Any) -> None:
    """Stand in for missing own tables of a SQLite store with empty ones in the connection's temporary schema.

    A query then finds no row, as in a store whose progressions were never migrated; the store's file is not touched.

    Contract: design decision 32.
    """
    for created in _stand_ins(sqlite.dialect(), driver.execute(_NAMES).fetchall()):
        driver.execute(created)


def put_empty_own_tables_on_postgresql(driver: Any) -> None:
    """The same on one connection of a PostgreSQL store, whose temporary schema is searched first."""
    cursor = driver.cursor()
    cursor.execute(_NAMES_ON_POSTGRESQL)
    for created in _stand_ins(make_url("postgresql+asyncpg://").get_dialect()(), cursor.fetchall()):
        cursor.execute(created)
    cursor.close()
    driver.commit()


def _stand_ins(dialect: Dialect, present: Iterable[Sequence[str]]) -> list[str]:
    names = {row[0] for row in present}
    # A temporary table cannot refer to one that is not.
    missing = [CreateTable(t, include_foreign_key_constraints=[]) for t in OWN_TABLES if t.name not in names]
    texts = [str(create.compile(dialect=dialect)).strip() for create in missing]
    return [text.replace("CREATE TABLE", "CREATE TEMPORARY TABLE", 1) for text in texts]
