"""Everything that differs between SQLite and PostgreSQL; the rooms above ask ``dialect_of(conn)`` for intents."""

from __future__ import annotations

from sqlalchemy import Connection

from lionstate.dialects.appends import ParentRow
from lionstate.dialects.base import Capabilities, Dialect, ParentValue
from lionstate.dialects.postgresql import PostgresqlDialect
from lionstate.dialects.sqlite import SqliteDialect
from lionstate.dialects.statement import Statement

__all__ = ["Capabilities", "Dialect", "ParentRow", "ParentValue", "Statement", "dialect_named", "dialect_of"]

_DIALECTS: dict[str, Dialect] = {"sqlite": SqliteDialect(), "postgresql": PostgresqlDialect()}


def dialect_named(name: str) -> Dialect:
    """The dialect with this SQLAlchemy name (``sqlite`` or ``postgresql``); KeyError for any other."""
    return _DIALECTS[name]


def dialect_of(conn: Connection) -> Dialect:
    """The dialect of an open connection."""
    return _DIALECTS[conn.dialect.name]
