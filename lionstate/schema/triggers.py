"""The two triggers on `progressions`, and the one place of this room that asks which database it is.

Contract: design decisions 21 (fence) and 22 (orphans).
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection

from lionstate.schema.ddl import SchemaDialect
from lionstate.schema.ddl_postgresql import PostgresqlSchema
from lionstate.schema.ddl_sqlite import SqliteSchema

__all__ = [
    "delete_trigger_exists",
    "fence_exists",
    "install_delete_trigger",
    "install_fence",
    "remove_delete_trigger",
    "remove_fence",
    "schema_dialect",
]

_DIALECTS: Final[dict[str, SchemaDialect]] = {"sqlite": SqliteSchema(), "postgresql": PostgresqlSchema()}


def schema_dialect(conn: Connection, /) -> SchemaDialect:
    """Return the statements for the database of `conn`."""
    return _DIALECTS[conn.dialect.name]


def install_fence(conn: Connection, /) -> None:
    """Refuse changes of `collection` that do not come from lionstate, once a row's authority left `json`.

    Replaces a fence that is there. The refusal is the driver's IntegrityError; its message names the bridge.
    On PostgreSQL one attempt, which waits for open writers of `progressions`: set `lock_timeout` and retry.

    Contract: design decision 21.
    """
    dialect = schema_dialect(conn)
    # Two installations at once would both create the function.
    dialect.lock_schema(conn)
    dialect.install_fence(conn)


def remove_fence(conn: Connection, /) -> None:
    """Drop the fence; nothing happens if there is none. Contract: design decision 21."""
    schema_dialect(conn).remove_fence(conn)


def fence_exists(conn: Connection, /) -> bool:
    """Say whether the fence is installed and enabled; one catalogue row. Contract: design decision 21."""
    return schema_dialect(conn).fence_exists(conn)


def install_delete_trigger(conn: Connection, /) -> None:
    """Make a deleted progression take its own-table rows along, whatever the `foreign_keys` pragma says.

    Nothing to do on PostgreSQL, where the foreign keys do it. Contract: design decision 22.
    """
    schema_dialect(conn).install_delete_trigger(conn)


def remove_delete_trigger(conn: Connection, /) -> None:
    """Drop the delete trigger; it must go before the own tables do. Contract: design decision 21."""
    schema_dialect(conn).remove_delete_trigger(conn)


def delete_trigger_exists(conn: Connection, /) -> bool:
    """Say whether deletes of progressions take the own rows along. Contract: design decision 22."""
    return schema_dialect(conn).delete_trigger_exists(conn)
