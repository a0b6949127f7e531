"""The metadata that all tables share, and the shapes that recur in them."""

from __future__ import annotations

from typing import Any

from sqlalchemy import CheckConstraint, Column, Index, MetaData, Text, text

from lionstate.schema.types import Json

__all__ = ["index", "metadata", "one_of", "status_reason"]

metadata = MetaData()


def one_of(name: str, column: str, values: str, *, or_null: bool = False) -> CheckConstraint:
    """Build the named CHECK of a text column with a closed vocabulary.

    Args:
        values: The words allowed, separated by spaces.
        or_null: Spell out that NULL passes too, as the stores in the field do.
    """
    words = ",".join(f"'{word}'" for word in values.split())
    clause = f"{column} IN ({words})"
    return CheckConstraint(f"{column} IS NULL OR {clause}" if or_null else clause, name=name)


def index(name: str, *keys: str, where: str | None = None, unique: bool = False) -> Index:
    """Build a secondary index, partial under `where`; the same text serves both databases.

    Args:
        keys: Column names; "column DESC" for a descending key.
        where: The predicate of a partial index.
    """
    predicate = None if where is None else text(where)
    columns = [text(key) if " " in key else key for key in keys]
    return Index(name, *columns, unique=unique, sqlite_where=predicate, postgresql_where=predicate)


def status_reason() -> tuple[Column[Any], ...]:
    """The columns that say why a record has its status, as its last row of history does."""
    return (
        Column("status_reason_code", Text),
        Column("status_reason_summary", Text),
        Column("status_evidence_refs", Json),
    )
