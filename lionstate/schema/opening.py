"""What kind of store this is, decided before anything is written.

Contract: design decision 32.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Final

from sqlalchemy import Connection, Table, inspect, select

from lionstate.errors import ForeignLineageError, SchemaTooNewError, UnrecognizedStoreError
from lionstate.schema.control import schema_meta
from lionstate.schema.own import progression_items, progression_storage_state
from lionstate.schema.tables import OWN_TABLES, RECORD_TABLES
from lionstate.schema.triggers import schema_dialect

__all__ = [
    "LIONAGI_LINEAGE",
    "LIONAGI_TABLE_NAMES",
    "LIONAGI_VERSION",
    "LIONSTATE_LINEAGE",
    "OWN_SCHEMA_VERSION",
    "OWN_VERSION_KEY",
    "UNFINISHED_COPY_LINEAGE",
    "StoreKind",
    "inspect_store",
    "own_tables_exist",
    "read_own_version",
    "refuse_other_shapes",
]

LIONAGI_LINEAGE: Final = "lionagi"
LIONSTATE_LINEAGE: Final = "lionstate"
UNFINISHED_COPY_LINEAGE: Final = "lionstate-copy-in-progress"
LIONAGI_VERSION: Final = 4
OWN_VERSION_KEY: Final = "lionstate.schema_version"
OWN_SCHEMA_VERSION: Final = 2

# Tables of LionAGI and its Studio that lionstate does not own.
_NEIGHBOUR_NAMES: Final = (
    "terminal_deliveries",
    "attention_dispositions",
    "attention_disposition_revisions",
    "attention_disposition_history",
    "studio_operator_conversations",
    "studio_operator_views",
    "studio_operator_turns",
    "studio_operator_frames",
    "studio_operator_proposals",
    "studio_operator_effects",
)
LIONAGI_TABLE_NAMES: Final = frozenset([*(table.name for table in RECORD_TABLES), *_NEIGHBOUR_NAMES])


class StoreKind(StrEnum):
    """Whose store it is."""

    NEW = "new"
    LIONAGI = "lionagi"
    LIONSTATE = "lionstate"


def inspect_store(conn: Connection, /) -> StoreKind:
    """Say what kind of store `conn` sees, without writing.

    Returns:
        NEW: no `schema_meta` and no table of others (PostgreSQL: no `schema_meta`).
        LIONAGI: lineage `lionagi`, or none with version 1 to 4 and a `sessions` table.
        LIONSTATE: lineage `lionstate`.
    Raises:
        SchemaTooNewError: A newer LionAGI or lionstate wrote it.
        ForeignLineageError: Another application owns it.
        UnrecognizedStoreError: It is none of these.

    Cost: the table names, the columns of `schema_meta` and its rows.
    Contract: design decision 32; reference 1.5.
    """
    names = set(inspect(conn).get_table_names())
    if schema_meta.name not in names:
        unknown = names - LIONAGI_TABLE_NAMES
        if unknown and not schema_dialect(conn).shares_database:
            raise UnrecognizedStoreError(f"no schema_meta, and {len(unknown)} tables that no LionAGI store has")
        return StoreKind.NEW
    meta = _read_meta(conn)
    if OWN_VERSION_KEY in meta:
        _check_own_version(meta[OWN_VERSION_KEY])
        # Created again they would be empty, and a progression cut over would read as its frozen prefix.
        lost = [table.name for table in (progression_items, progression_storage_state) if table.name not in names]
        if lost:
            raise UnrecognizedStoreError(f"{OWN_VERSION_KEY} is recorded and {' and '.join(lost)} missing")
    return _kind_of_lineage(meta, has_sessions="sessions" in names)


def _kind_of_lineage(meta: dict[str, object], *, has_sessions: bool) -> StoreKind:
    lineage, version = meta.get("lineage"), _number(meta.get("version"))
    if lineage == LIONSTATE_LINEAGE:
        return StoreKind.LIONSTATE
    if lineage == UNFINISHED_COPY_LINEAGE:
        raise ForeignLineageError(
            "this is an unfinished copy: the same `lionstate copy` goes on with it if the source was not written since;"
            " else remove it and copy anew"
        )
    if lineage is not None and lineage != LIONAGI_LINEAGE:
        raise ForeignLineageError("schema_meta.lineage names another application; nothing was changed")
    if version is not None and version > LIONAGI_VERSION:
        raise SchemaTooNewError(f"schema version {version} is newer than {LIONAGI_VERSION}; nothing was changed")
    if lineage is None and not (version and has_sessions):
        raise UnrecognizedStoreError("schema_meta has neither a lineage nor the version of a LionAGI store")
    return StoreKind.LIONAGI


def _check_own_version(stored: object) -> None:
    version = _number(stored)
    if not version:
        raise UnrecognizedStoreError(f"schema_meta.{OWN_VERSION_KEY} is not a version")
    if version > OWN_SCHEMA_VERSION:
        raise SchemaTooNewError(f"{OWN_VERSION_KEY} {version} is newer than {OWN_SCHEMA_VERSION}; nothing was changed")


def _number(stored: object) -> int | None:
    """Read a version row; None if it is not a plain decimal number."""
    if isinstance(stored, str) and stored.isascii() and stored.isdigit() and len(stored) <= 1_000:
        return int(stored)
    return None


def _read_meta(conn: Connection, /) -> dict[str, object]:
    # Asked first: on PostgreSQL a SELECT that fails would end the caller's transaction.
    columns = {column["name"] for column in inspect(conn).get_columns(schema_meta.name)}
    if not columns >= {"key", "value"}:
        raise UnrecognizedStoreError("schema_meta is a table of another shape")
    return {row.key: row.value for row in conn.execute(select(schema_meta.c.key, schema_meta.c.value))}


def read_own_version(conn: Connection, /) -> int | None:
    """Read lionstate's schema version; None if the store or the row has none yet.

    Contract: design decision 32.
    """
    if not inspect(conn).has_table(schema_meta.name):
        return None
    return _number(_read_meta(conn).get(OWN_VERSION_KEY))


def own_tables_exist(conn: Connection, /) -> bool:
    """Say whether all own tables are there; a read-only open works without them.

    Contract: design decision 32.
    """
    return {table.name for table in OWN_TABLES} <= set(inspect(conn).get_table_names())


def refuse_other_shapes(conn: Connection, /, tables: Iterable[Table]) -> None:
    """Refuse tables that bear a name of ours and lack its columns; further columns are fine.

    Raises:
        UnrecognizedStoreError: Names the first such table and the columns that are missing.
    """
    for table in tables:
        found = {column["name"] for column in inspect(conn).get_columns(table.name)}
        missing = [column.name for column in table.columns if column.name not in found]
        if missing:
            raise UnrecognizedStoreError(f"table {table.name} exists without the columns {', '.join(missing)}")
