"""Look at a store from outside: its catalogue, phases and values, with plain drivers and nothing of lionstate.

    python -m tests.demo.lionagi_look URL

Prints one JSON object: ``catalogue`` (rows of kind, name, table, text), ``phases`` by progression, ``collections``
(SHA-256 of each JSON value) and ``items`` (the ids by progression, in ordinal order).
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import sqlite3
import sys
from collections import defaultdict
from typing import Any

Rows = list[tuple[Any, ...]]

_COLLECTIONS = "SELECT id, collection FROM progressions ORDER BY id"
_PHASES = "SELECT progression_id, phase, blocked_reason FROM progression_storage_state ORDER BY 1"
_ITEMS = "SELECT progression_id, message_id FROM progression_items ORDER BY progression_id, ordinal"

_SQLITE_CATALOGUE = "SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY type, name"
_SQLITE_NORMALIZED = "SELECT count(*) FROM sqlite_master WHERE name = 'progression_storage_state'"

_POSTGRESQL_NORMALIZED = "SELECT count(*) FROM pg_tables WHERE tablename = 'progression_storage_state'"
_POSTGRESQL_CATALOGUE = """
SELECT 'column' AS kind, column_name AS name, table_name AS of,
       concat_ws(' ', ordinal_position, data_type, is_nullable, column_default) AS definition
  FROM information_schema.columns WHERE table_schema = 'public'
UNION ALL
SELECT 'index', indexname, tablename, indexdef FROM pg_indexes WHERE schemaname = 'public'
UNION ALL
SELECT 'constraint', conname, conrelid::regclass::text, pg_get_constraintdef(oid)
  FROM pg_constraint WHERE connamespace = 'public'::regnamespace AND conrelid <> 0
UNION ALL
SELECT 'trigger', tgname, tgrelid::regclass::text, pg_get_triggerdef(oid) FROM pg_trigger WHERE NOT tgisinternal
ORDER BY 1, 3, 2, 4
"""


def _look_at_sqlite(path: str) -> list[Rows]:
    conn = sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=10.0)
    try:
        conn.execute("BEGIN")
        (normalized,) = conn.execute(_SQLITE_NORMALIZED).fetchone()
        queries = [_SQLITE_CATALOGUE, _COLLECTIONS, *([_PHASES, _ITEMS] if normalized else [])]
        return [conn.execute(query).fetchall() for query in queries]
    finally:
        conn.close()


async def _look_at_postgresql(url: str) -> list[Rows]:
    import asyncpg

    conn = await asyncpg.connect(url.replace("+asyncpg", ""))
    try:
        async with conn.transaction(isolation="repeatable_read", readonly=True):
            normalized = await conn.fetchval(_POSTGRESQL_NORMALIZED)
            queries = [_POSTGRESQL_CATALOGUE, _COLLECTIONS, *([_PHASES, _ITEMS] if normalized else [])]
            return [[tuple(row) for row in await conn.fetch(query)] for query in queries]
    finally:
        await conn.close()


def look(url: str) -> dict[str, Any]:
    """Read the store in one snapshot."""
    postgresql = url.startswith("postgresql")
    catalogue, collections, *own = asyncio.run(_look_at_postgresql(url)) if postgresql else _look_at_sqlite(url)
    phases, items = own or ([], [])
    order: dict[str, list[str]] = defaultdict(list)
    for progression, message_id in items:
        order[progression].append(message_id)
    return {
        "catalogue": [list(row) for row in catalogue],
        "collections": {key: hashlib.sha256(value.encode()).hexdigest() for key, value in collections},
        "phases": {key: phase if blocked is None else f"{phase}: {blocked}" for key, phase, blocked in phases},
        "items": order,
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(look(sys.argv[1])) + "\n")
