"""One row in every table, all under one key, so that whatever refers to a row may find one; scripts on a connection."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Column, Connection, Float, Integer, Table, delete, insert, select, update

from lionstate.schema import RECORD_TABLES, Json, metadata
from lionstate.schema.conversation import message_types, sessions
from tests.support.strategies import KNOWN

__all__ = ["reseed", "rows_of_all_tables"]

# What CHECK constraints ask of columns without a default, and what keeps the row open to changes.
_WORDS: dict[str, dict[str, Any]] = {
    "sessions": {"status": "running", "source_kind": "live"},
    "schedules": {"trigger_type": "cron", "action_kind": "agent"},
    "schedule_runs": {"action_kind": "agent"},
    "definitions": {"kind": "agent"},
    "projects": {"source": "studio"},
    "session_controls": {"verb": "pause"},
    "approvals": {"expires_at": 2e9},
    "approval_evidence": {"event_type": "proposed", "previous_hash": "0" * 64},
    "progressions": {"collection": "[]"},
    "messages": {"lion_class": 0, "content": {}},
}
# Rows that are the schema's own, or that the library remembers between transactions.
_KEPT = frozenset(("schema_meta", "message_types", "migration_control", "writer_batches"))
_FILLED = [table for table in metadata.sorted_tables if table in RECORD_TABLES and table.name not in _KEPT]


def _value(column: Column[Any]) -> Any:
    if isinstance(column.type, Json):
        return []
    if isinstance(column.type, Integer):
        return 1
    return 1.0 if isinstance(column.type, Float) else KNOWN


def _row(table: Table) -> dict[str, Any]:
    needed = [column for column in table.columns if not column.nullable and column.server_default is None]
    return {column.name: _value(column) for column in needed} | _WORDS.get(table.name, {})


def reseed(conn: Connection, /) -> None:
    """Empty every table, then put the one row into each."""
    conn.execute(update(sessions).values(first_msg_id=None, last_msg_id=None))
    for table in reversed(metadata.sorted_tables):
        if table.name not in _KEPT:
            conn.execute(delete(table))
    for table in _FILLED:
        conn.execute(insert(table).values(_row(table)))


def rows_of_all_tables(conn: Connection, /) -> dict[str, list[str]]:
    """Every row of every table but the writer's own and class names, as text."""
    unchanged = _KEPT - {message_types.name, "schema_meta"}
    tables = [table for table in metadata.sorted_tables if table.name not in unchanged]
    return {table.name: sorted(map(repr, conn.execute(select(table)))) for table in tables}
