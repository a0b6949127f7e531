"""Short cuts for tests that work on a ``Store`` instead of the facade: raw rows, appends, one batch on purpose."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from sqlalchemy import Connection, text

from lionstate.operations import OPERATIONS
from lionstate.store import Store

__all__ = ["append", "execute", "gathered", "one_batch", "put_items_progression", "put_progression", "read_ids"]

_PG_HOLD_SECONDS = 0.3


async def execute(store: Store, sql: str, **params: Any) -> None:
    """Run one statement through the queue."""

    def script(conn: Connection) -> None:
        conn.execute(text(sql), params)

    await store.write("test", script)


async def put_progression(store: Store, progression_id: str, collection: str = "[]") -> None:
    """Put a progression as an old writer left it."""
    await execute(
        store,
        "INSERT INTO progressions (id, created_at, collection) VALUES (:id, 1.0, :collection)",
        id=progression_id,
        collection=collection,
    )


async def put_items_progression(store: Store, progression_id: str) -> None:
    """Put an empty progression whose authority is its item rows."""
    await put_progression(store, progression_id)
    await execute(
        store,
        "INSERT INTO progression_storage_state (progression_id, phase, authority, generation, source_count,"
        " backfill_next, next_ordinal, frozen_count, updated_at, cutover_at)"
        " VALUES (:id, 'items', 'items', 1, 0, 0, 0, 0, 1.0, 1.0)",
        id=progression_id,
    )


async def append(store: Store, progression_id: str, message_id: str, *, deadline: float | None = None) -> None:
    """Append one id."""
    params = {"progression_id": progression_id, "message_id": message_id}
    await store.run(OPERATIONS["append_to_progression"], params, deadline=deadline)


async def read_ids(store: Store, progression_id: str) -> list[str]:
    """Read a progression."""
    found: list[str] = await store.run(OPERATIONS["get_progression"], {"progression_id": progression_id})
    return found


@asynccontextmanager
async def one_batch(store: Store) -> AsyncIterator[None]:
    """Occupy the writer, so that everything submitted inside the block waits and then runs as one batch."""
    release = threading.Event()

    def hold(conn: Connection) -> None:
        if store.url.dialect == "sqlite":
            release.wait(10)
        else:
            conn.execute(text("SELECT pg_sleep(:seconds)"), {"seconds": _PG_HOLD_SECONDS})

    holding = asyncio.ensure_future(store.write("hold", hold))
    await asyncio.sleep(0)
    try:
        yield
        # Whatever was started inside gets to the queue.
        for _ in range(10):
            await asyncio.sleep(0)
    finally:
        release.set()
        await holding


async def gathered(store: Store, *calls: Any) -> list[Any]:
    """Run calls as one batch; their results or exceptions, in order."""
    tasks: list[asyncio.Future[Any]] = []
    async with one_batch(store):
        tasks += [asyncio.ensure_future(call) for call in calls]
    return await asyncio.gather(*tasks, return_exceptions=True)
