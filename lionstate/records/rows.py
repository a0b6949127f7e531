"""The few statements that every record family is made of: one row, a page of rows, insert, change, remove."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Column, ColumnElement, Connection, Select, Table, delete, func, insert, select, update

from lionstate.dialects import dialect_of

__all__ = [
    "all_rows",
    "by_id",
    "count_rows",
    "delete_rows",
    "filtered",
    "first_of_each",
    "first_row",
    "get_row",
    "insert_ignore_row",
    "insert_row",
    "lock_row",
    "newest_first",
    "page",
    "update_rows",
]


def all_rows(conn: Connection, statement: Select[Any]) -> list[dict[str, Any]]:
    """The rows of a query as decoded mappings."""
    return [dict(row) for row in conn.execute(statement).mappings()]


def first_row(conn: Connection, statement: Select[Any]) -> dict[str, Any] | None:
    """The first row of a query as a decoded mapping, or None."""
    row = conn.execute(statement).mappings().first()
    return None if row is None else dict(row)


def filtered(statement: Select[Any], table: Table, **equals: Any) -> Select[Any]:
    """Keep the rows whose columns have these values; None means that a column does not matter."""
    wanted = {name: value for name, value in equals.items() if value is not None}
    return statement.where(*_matches(table, wanted))


def page(statement: Select[Any], limit: int, offset: int = 0) -> Select[Any]:
    """Cut one page out of an ordered query."""
    return statement.limit(limit).offset(offset)


def newest_first(table: Table, column: str, **equals: Any) -> Select[Any]:
    """The rows of a table that match, largest ``column`` first, ids breaking ties."""
    keys = (table.c[column].desc(), *(key.desc() for key in table.primary_key))
    return filtered(select(table), table, **equals).order_by(*keys)


def by_id(
    table: Table, after_id: str | None, limit: int, *conditions: ColumnElement[bool], **equals: Any
) -> Select[Any]:
    """A page of the rows that match, in the order of their ids, behind ``after_id``."""
    found = filtered(select(table), table, **equals).where(*conditions)
    if after_id is not None:
        found = found.where(table.c.id > after_id)
    return page(found.order_by(table.c.id), limit)


def first_of_each(
    conn: Connection,
    columns: Iterable[Column[Any]],
    group: Column[Any],
    ids: Iterable[str],
    *conditions: ColumnElement[bool],
    order: Sequence[ColumnElement[Any]],
    limit: int,
) -> Select[Any]:
    """At most ``limit`` rows for each id that ``group`` refers to, first in ``order``; they come first to last.

    Cost: one query that looks at every row of these groups.
    """
    dialect = dialect_of(conn)
    place = func.row_number().over(partition_by=group, order_by=order).label("place_in_group")
    ranked = select(*columns, place).where(dialect.among(group, "ids"), *conditions).subquery()
    wanted = [column for column in ranked.c if column.name != place.name]
    firsts = select(*wanted).where(ranked.c[place.name] <= limit).order_by(ranked.c[place.name])
    return firsts.params(ids=dialect.bind_ids(list(dict.fromkeys(ids))))


def _matches(table: Table, key: Mapping[str, Any]) -> list[ColumnElement[bool]]:
    return [table.c[name] == value for name, value in key.items()]


def get_row(conn: Connection, table: Table, **key: Any) -> dict[str, Any] | None:
    """The row with this unique key, or None."""
    return first_row(conn, select(table).where(*_matches(table, key)))


def lock_row(conn: Connection, table: Table, **key: Any) -> dict[str, Any] | None:
    """The row with this unique key, locked until the transaction ends; None if it is missing.

    The lock lets rows that refer to this one be inserted meanwhile. On SQLite the write transaction is the lock.
    """
    return first_row(conn, select(table).where(*_matches(table, key)).with_for_update(key_share=True))


def count_rows(conn: Connection, table: Table, *conditions: ColumnElement[bool], **equals: Any) -> int:
    """How many rows match; None in ``equals`` means that a column does not matter."""
    statement = filtered(select(func.count()).select_from(table), table, **equals).where(*conditions)
    return int(conn.execute(statement).scalar_one())


def insert_row(conn: Connection, table: Table, row: Mapping[str, Any]) -> None:
    """Insert one row; a key that exists raises."""
    conn.execute(insert(table).values(dict(row)))


def insert_ignore_row(conn: Connection, table: Table, row: Mapping[str, Any]) -> bool:
    """Insert one row unless its primary key exists; whether it was inserted.

    A conflict on any other unique key raises.
    """
    statement = dialect_of(conn).insert_ignore(table, [key.name for key in table.primary_key])
    return bool(conn.execute(statement.values(dict(row))).rowcount)


def update_rows(
    conn: Connection,
    table: Table,
    key: Mapping[str, Any],
    changes: Mapping[str, Any],
    guards: Sequence[ColumnElement[bool]] = (),
) -> int:
    """Change the rows with this key for which the guards hold; how many they were."""
    statement = update(table).where(*_matches(table, key), *guards).values(dict(changes))
    return conn.execute(statement).rowcount


def delete_rows(conn: Connection, table: Table, **key: Any) -> int:
    """Remove the rows with this key; how many they were. A row that others refer to raises."""
    return conn.execute(delete(table).where(*_matches(table, key))).rowcount
