"""Write the demonstration's store as LionAGI would have left it: the 28 tables, no table of lionstate.

python -m tests.demo.legacy_store URL
"""

from __future__ import annotations

import asyncio
import sys
import time

from sqlalchemy import Connection, create_engine
from sqlalchemy.ext.asyncio import create_async_engine

from lionstate.schema import RECORD_TABLES, metadata
from lionstate.schema.control import schema_meta
from lionstate.schema.conversation import branches, message_types, progressions, sessions
from tests.demo.layout import MALFORMED, collection_text, conversations, progression_ids


def write(conn: Connection) -> None:
    """Create the tables and the rows."""
    now = time.time()
    metadata.create_all(conn, tables=list(RECORD_TABLES))
    meta = {"version": "4", "created_at": str(int(now)), "lineage": "lionagi"}
    conn.execute(schema_meta.insert(), [{"key": key, "value": value} for key, value in meta.items()])
    conn.execute(message_types.insert(), [{"type_id": 0, "lion_class": "__unknown__"}])
    rows = [{"id": pid, "created_at": now, "collection": collection_text(pid)} for pid in progression_ids()]
    conn.execute(progressions.insert(), rows)
    made: set[str] = set()
    for found in conversations():
        if found.session_id not in made:
            made.add(found.session_id)
            _session(conn, found.session_id, found.session_progression, now)
        conn.execute(
            branches.insert(),
            {
                "id": found.branch_id,
                "created_at": now,
                "session_id": found.session_id,
                "progression_id": found.branch_progression,
            },
        )
    _session(conn, "demo-session-malformed", MALFORMED, now)


def _session(conn: Connection, session_id: str, progression_id: str, now: float) -> None:
    row = {
        "id": session_id,
        "created_at": now,
        "updated_at": now,
        "progression_id": progression_id,
        "status": "running",
        "last_message_at": now,
    }
    conn.execute(sessions.insert(), row)


async def _write_postgresql(url: str) -> None:
    engine = create_async_engine(url)
    async with engine.begin() as conn:
        await conn.run_sync(write)
    await engine.dispose()


def main() -> None:
    """Write the store that the only argument names."""
    url = sys.argv[1]
    if url.startswith("postgresql"):
        asyncio.run(_write_postgresql(url))
        return
    engine = create_engine(f"sqlite:///{url}")
    with engine.begin() as conn:
        conn.exec_driver_sql("PRAGMA journal_mode = WAL")
        write(conn)
    engine.dispose()


if __name__ == "__main__":
    main()
