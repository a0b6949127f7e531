"""Bring a store to the own schema version: create what is missing, alter no table.

Contract: design decisions 8, 22, 32.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection, delete, insert, inspect, select, update

from lionstate.schema.base import metadata
from lionstate.schema.control import schema_meta
from lionstate.schema.conversation import message_types
from lionstate.schema.opening import (
    LIONAGI_LINEAGE,
    LIONAGI_TABLE_NAMES,
    LIONAGI_VERSION,
    LIONSTATE_LINEAGE,
    OWN_SCHEMA_VERSION,
    OWN_VERSION_KEY,
    StoreKind,
    inspect_store,
    own_tables_exist,
    read_own_version,
    refuse_other_shapes,
)
from lionstate.schema.own import migration_control
from lionstate.schema.tables import OWN_TABLES, RECORD_TABLES
from lionstate.schema.triggers import delete_trigger_exists, install_delete_trigger, schema_dialect

__all__ = [
    "MESSAGE_TYPE_SEEDS",
    "NORMALIZED_KEY",
    "OpenReport",
    "apply_schema",
    "normalized_default",
    "record_normalized_default",
    "require_fit",
    "schema_complete",
]

NORMALIZED_KEY: Final = "storage.normalized"

MESSAGE_TYPE_SEEDS: Final[tuple[tuple[int, str], ...]] = (
    (0, "__unknown__"),
    (1, "lionagi.protocols.messages.system.System"),
    (2, "lionagi.protocols.messages.instruction.Instruction"),
    (3, "lionagi.protocols.messages.assistant_response.AssistantResponse"),
    (4, "lionagi.protocols.messages.action_request.ActionRequest"),
    (5, "lionagi.protocols.messages.action_response.ActionResponse"),
)


@dataclass(frozen=True, slots=True)
class OpenReport:
    """What an open found and did."""

    kind: StoreKind
    # An own table or trigger was created by this open.
    created_own: bool
    # Those of the 28 tables that an existing store lacks; they are left missing.
    missing_tables: tuple[str, ...]


def schema_complete(conn: Connection, /, kind: StoreKind) -> bool:
    """Say whether `apply_schema` would have nothing to write; for a look without the write lock.

    Contract: design decision 32.
    """
    return (
        kind is not StoreKind.NEW
        and read_own_version(conn) == OWN_SCHEMA_VERSION
        and own_tables_exist(conn)
        and delete_trigger_exists(conn)
        and not _ids_behind(conn)
    )


def require_fit(conn: Connection, /, kind: StoreKind) -> None:
    """Refuse tables that bear a name of ours and are none, where `apply_schema` has something to write.

    Raises:
        UnrecognizedStoreError: A table has another shape.

    Contract: design decision 32.
    """
    if not schema_complete(conn, kind):
        _refuse_other_shapes(conn, kind)


def _refuse_other_shapes(conn: Connection, kind: StoreKind) -> None:
    names = set(inspect(conn).get_table_names())
    ours = [*RECORD_TABLES, *OWN_TABLES] if kind is StoreKind.NEW else OWN_TABLES
    refuse_other_shapes(conn, [table for table in ours if table.name in names])


def apply_schema(conn: Connection, /, kind: StoreKind, *, lionagi_compatible: bool, now: float) -> OpenReport:
    """Create what the store lacks: everything if it is new, own tables and the delete trigger otherwise.

    Never any DDL on the 28 tables of an existing store, never the fence. Writes nothing if all is there. The
    caller's transaction must hold the write lock on SQLite (BEGIN IMMEDIATE) and be READ COMMITTED on
    PostgreSQL, where an advisory lock is taken first.

    Args:
        kind: What `inspect_store` said; asked again under the lock, as another process may have been first.
        lionagi_compatible: A new store is one that LionAGI 0.36.0 opens too.
        now: Epoch seconds.
    Raises:
        SchemaError: As `inspect_store`, a table of our name has another shape, or the item tables are gone.

    Contract: design decisions 8, 22, 32.
    """
    if not schema_complete(conn, kind):
        schema_dialect(conn).lock_schema(conn)
        kind = inspect_store(conn)
        _refuse_other_shapes(conn, kind)
        if kind is StoreKind.NEW:
            _create_store(conn, lionagi_compatible=lionagi_compatible, now=now)
            return OpenReport(kind, created_own=True, missing_tables=())
        created_own = _create_own(conn)
        if _ids_behind(conn):
            schema_dialect(conn).advance_message_type_ids(conn)
    else:
        created_own = False
    names = set(inspect(conn).get_table_names())
    missing = tuple(table.name for table in RECORD_TABLES if table.name not in names)
    return OpenReport(kind, created_own=created_own, missing_tables=missing)


def _create_store(conn: Connection, /, *, lionagi_compatible: bool, now: float) -> None:
    names = set(inspect(conn).get_table_names())
    # A database that already holds tables of LionAGI stays open to LionAGI.
    compatible = lionagi_compatible or bool(names & LIONAGI_TABLE_NAMES)
    metadata.create_all(conn, tables=RECORD_TABLES)
    _create_own(conn)
    rows = {
        "version": str(LIONAGI_VERSION),
        "created_at": str(int(now)),
        "lineage": LIONAGI_LINEAGE if compatible else LIONSTATE_LINEAGE,
    }
    conn.execute(insert(schema_meta), [{"key": key, "value": value} for key, value in rows.items()])
    _seed_message_types(conn)
    record_normalized_default(conn, enabled=not compatible, now=now)


def _create_own(conn: Connection, /) -> bool:
    """Create missing own tables and the delete trigger; return whether there was anything to create.

    From an older version every step adds tables, which the trigger of that version does not know.
    """
    names = set(inspect(conn).get_table_names())
    recorded = read_own_version(conn)
    missing = [table for table in OWN_TABLES if table.name not in names]
    metadata.create_all(conn, tables=missing)
    outdated = recorded is not None and recorded < OWN_SCHEMA_VERSION
    trigger = outdated or not delete_trigger_exists(conn)
    if trigger:
        install_delete_trigger(conn)
    version = {"value": str(OWN_SCHEMA_VERSION)}
    if recorded is None:
        conn.execute(insert(schema_meta).values(key=OWN_VERSION_KEY, **version))
    elif outdated:
        conn.execute(update(schema_meta).where(schema_meta.c.key == OWN_VERSION_KEY).values(version))
    return trigger or bool(missing)


def _seed_message_types(conn: Connection, /) -> None:
    present = set(conn.execute(select(message_types.c.type_id)).scalars())
    rows = [{"type_id": i, "lion_class": name} for i, name in MESSAGE_TYPE_SEEDS if i not in present]
    if rows:
        conn.execute(insert(message_types), rows)
    # The explicit ids do not move PostgreSQL's sequence, and the first unseen class would draw 1.
    schema_dialect(conn).advance_message_type_ids(conn)


def _ids_behind(conn: Connection, /) -> bool:
    # Asked of the catalogue first: a store of an older release may lack the table.
    return inspect(conn).has_table(message_types.name) and schema_dialect(conn).message_type_ids_behind(conn) > 0


def record_normalized_default(
    conn: Connection,
    /,
    *,
    enabled: bool,
    now: float,
    actor: str = "lionstate",
    reason: str = "default of a new store",
) -> None:
    """Record whether new progressions are born in `items`; replaces what was recorded.

    Contract: design decision 8.
    """
    conn.execute(delete(migration_control).where(migration_control.c.key == NORMALIZED_KEY))
    conn.execute(
        insert(migration_control).values(
            key=NORMALIZED_KEY, value=json.dumps(enabled), actor=actor, reason=reason, updated_at=now
        )
    )


def normalized_default(conn: Connection, /) -> bool:
    """Say whether new progressions are born in `items`; False if nothing is recorded.

    Needs the own tables. Contract: design decision 8.
    """
    stored = conn.execute(
        select(migration_control.c.value).where(migration_control.c.key == NORMALIZED_KEY)
    ).scalar_one_or_none()
    return stored == "true"
