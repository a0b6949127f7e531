"""A store with a row in every table, odd values, many messages and progressions in every phase."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import partial
from typing import Any

from sqlalchemy import Connection, Float, Integer, LargeBinary, Table, insert, select

from lionstate import StateDB
from lionstate.dialects import Statement, dialect_of
from lionstate.schema import OWN_TABLES, RECORD_TABLES, Json, metadata
from tests.support.backends import Backend
from tests.support.phases import SHAPES, change_state, put, run

__all__ = ["contents", "fill", "fill_messages", "named_rows"]

_ODD_JSON = ('{"t": "ä\\u0000\\ud800 🦁"}', "5", "2.5", '"5"', "null", "[]", "1e3", "true", '{"b": 1, "a": 1}')
_NOT_COPIED = {"migration_lease", "request_receipts", "writer_batches", "schema_meta"}


def _value(column: Any, row: str) -> Any:
    references = [key.column.table.name for key in column.foreign_keys if key.column.table is not column.table]
    if column.name == "progression_id":
        return "whole"
    if references:
        return 1 if references[0] == "message_types" else f"{references[0]}-{row}"
    if column.foreign_keys:
        return None
    checks = [str(check.sqltext) for check in column.constraints if hasattr(check, "sqltext")]
    if checks:
        return next(iter(re.findall(r"'([^']+)'", checks[0])), 1)
    if isinstance(column.type, Json):
        return _ODD_JSON[sum(map(ord, column.name + row)) % len(_ODD_JSON)]
    if isinstance(column.type, LargeBinary):
        return bytes(range(256))
    if isinstance(column.type, Integer):
        return 1 + int(row)
    if isinstance(column.type, Float):
        return 1_700_000_000.123_456_7 + int(row)
    return f"{column.table.name}-{row}" if column.primary_key else f"{column.name} «ä🦁» {row}"


def named_rows(table: Table) -> list[dict[str, Any]]:
    """Two rows: one with every column filled, one with as many NULLs as may be."""
    columns = [column for column in table.columns if not (table.name == "messages" and column.name == "lion_class")]
    full, bare = ({column.name: _value(column, row) for column in columns} for row in "01")
    for column in columns:
        if column.nullable and not column.primary_key:
            bare[column.name] = None
    if table.name == "messages":
        full["lion_class"], bare["lion_class"] = 1, 77
    if table.name == "approvals":
        bare["status"] = "denied"
    return [full, bare]


async def fill(backend: Backend, *, messages: int, longest: int) -> None:
    """Fill an empty store.

    Args:
        messages: How many messages, each in two progressions of 500.
        longest: Ids of the progressions that are half migrated.
    """

    def script(conn: Connection) -> None:
        types = {table.name: table for table in RECORD_TABLES}
        conn.execute(insert(types["message_types"]), [{"type_id": 77, "lion_class": "tests.Odd"}])
        conn.execute(insert(types["progressions"]), [{"id": "whole", "created_at": 0.1, "collection": "[]"}])
        for table in metadata.sorted_tables:
            if table in OWN_TABLES or table.name in ("message_types", "progressions", "schema_meta"):
                continue
            rows = named_rows(table)
            if table.name == "schedule_runs":
                # A row refers to one that comes later in key order.
                rows[0]["chain_parent_id"] = "schedule_runs-1"
                rows.reverse()
            for row in rows:
                dialect_of(conn).bulk_insert(conn, table, list(row), [list(row.values())])
        _own_rows(conn)

    await run(backend.direct, script)
    await fill_messages(backend.direct, messages)
    ids = [f"m{number:08d}" for number in range(longest)]
    for shape in SHAPES:
        await put(
            backend, f"half {shape}", shape, ids, ["tail 1", "tail 2"], copied=longest // 2 if shape == "dual" else None
        )
    await put(backend, "half shadow", "dual", ids, copied=longest // 3)
    await change_state(backend, "half shadow", phase="json", shadow_rows=1, held_reason="operator", last_xact=7)
    await change_state(backend, "half items", compat_read=1)
    await put(backend, "half empty", "items", [])
    await backend.put_progression("half malformed", "[1, ")


def _own_rows(conn: Connection) -> None:
    own = {table.name: table for table in OWN_TABLES}
    base = {"actor": "tests", "updated_at": 3.5}
    controls = [("pause", "{}", 9e12), ("foreign.sighted", '{"enabled": true}', 9e12), ("compat_read", "false", None)]
    conn.execute(
        insert(own["migration_control"]),
        [{"key": key, "value": value, "expires_at": expires, **base} for key, value, expires in controls],
    )
    lease = {"name": "maintenance", "owner": "x", "epoch": 1, "expires_at": 9e12, "acquired_at": 1.0}
    conn.execute(insert(own["migration_lease"]), [lease])
    receipt = {"caller": "c", "key": "k", "params_hash": "h", "created_at": 1.0}
    conn.execute(insert(own["request_receipts"]), [receipt])
    measured = {"progression_id": "whole", "bytes": 1 << 40, "measured_at": 2.5}
    conn.execute(insert(own["progression_sizes"]), [measured])
    order = {"progression_id": "whole", "kind": "hold", **base}
    conn.execute(insert(own["progression_orders"]), [order])
    proof = {"progression_id": "whole", "generation": 1 << 60, "item_count": 3, "proved_at": 2.5}
    conn.execute(insert(own["progression_proofs"]), [proof])
    seen = {"progression_id": "whole", "appends": 1 << 33, "updated_at": 2.5}
    conn.execute(insert(own["progression_activity"]), [seen])


def _messages(first: int, count: int) -> Iterator[tuple[Any, ...]]:
    for number in range(first, first + count):
        content = json.dumps({"text": f"message {number} " + "lorem ipsum " * 12})
        yield f"m{number:08d}", 1.7e9 + number / 7, None, content, "user", number % 6


async def fill_messages(state: StateDB, count: int) -> None:
    """Messages, and two progressions of 500 for each 500 of them: one in items, one in JSON."""
    tables = {table.name: table for table in metadata.sorted_tables}
    columns = ["id", "created_at", "node_metadata", "content", "role", "lion_class"]

    def script(conn: Connection, /, *, first: int, size: int) -> None:
        dialect = dialect_of(conn)
        rows = list(_messages(first, size))
        dialect.bulk_insert(conn, tables["messages"], columns, rows)
        ids = [row[0] for row in rows]
        for start in range(0, size, 500):
            part, name = ids[start : start + 500], f"p{first + start:08d}"
            parents = [(f"{name} items", 1.5, "[]"), (f"{name} json", 2.5, json.dumps(part))]
            dialect.bulk_insert(conn, tables["progressions"], ["id", "created_at", "collection"], parents)
            dialect.insert_items(conn, [(f"{name} items", place, mid) for place, mid in enumerate(part)])
            state_row = {
                "progression_id": f"{name} items",
                "phase": "items",
                "authority": "items",
                "generation": 1 + first + start,
                "next_ordinal": len(part),
                "source_count": 0,
                "frozen_count": 0,
                "updated_at": 1.0,
                "cutover_at": 1.0,
            }
            conn.execute(insert(tables["progression_storage_state"]), [state_row])

    for first in range(0, count, 10_000):
        size = min(10_000, count - first)
        await run(state, partial(script, first=first, size=size))


async def contents(state: StateDB) -> dict[str, list[str]]:
    """Every row that a copy has to carry, as text that is alike on both databases."""

    def script(conn: Connection) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for table in metadata.sorted_tables:
            if table.name in _NOT_COPIED:
                continue
            columns = [column for column in table.columns if column.name != "last_xact"]
            raw = Statement(select(*map(dialect_of(conn).raw_column, columns)))
            rows = [list(map(_plain, columns, row)) for row in raw.rows(conn)]
            if table.name == "migration_control":
                rows = [row for row in rows if row[0] not in ("copy.progress", "foreign.sighted")]
            found[table.name] = sorted(map(repr, rows))
        return found

    found: dict[str, list[str]] = await state.store.read(script)
    return found


def _plain(column: Any, value: Any) -> Any:
    if isinstance(column.type, Json):
        if isinstance(value, str):
            try:
                value = json.loads(value)
            except ValueError:
                return value
        # SQLite keeps the JSON text 1e3 as the integer 1000.
        return int(value) if isinstance(value, float) and value.is_integer() else value
    if isinstance(column.type, Float) and isinstance(value, int):
        return float(value)
    return bytes(value) if isinstance(column.type, LargeBinary) and value is not None else value
