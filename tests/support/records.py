"""Rows that the tests of one family need of another, and what a refused call must leave."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from typing import Any

from lionstate.errors import StateError
from lionstate.schema import metadata
from tests.support.backends import Backend

__all__ = ["assert_refused_unchanged", "pick", "put", "put_session", "snapshot"]


def pick(row: Mapping[str, Any], *names: str) -> tuple[Any, ...]:
    """Some columns of a row, in the given order."""
    return tuple(row[name] for name in names)


async def put(backend: Backend, table: str, **columns: Any) -> None:
    """Insert a row as another program may have left it."""
    names = ", ".join(f'"{name}"' for name in columns)
    values = ", ".join(f":{name}" for name in columns)
    await backend.execute(f'INSERT INTO "{table}" ({names}) VALUES ({values})', **columns)


async def put_session(backend: Backend, session_id: str, **columns: Any) -> None:
    """A running session with a progression of its own."""
    await backend.put_progression(f"p-{session_id}", "[]")
    row = {"progression_id": f"p-{session_id}", "created_at": 1.0, "updated_at": 1.0, "status": "running", **columns}
    await put(backend, "sessions", id=session_id, **row)


async def snapshot(backend: Backend) -> dict[str, list[str]]:
    """Every row of every record table, as text."""
    # What lionstate notes of its own work; a client gives a call that is not idempotent a key, and so a receipt.
    own = {"writer_batches", "migration_control", "request_receipts"}
    tables = [table.name for table in metadata.sorted_tables if table.name not in own]
    found = {name: await backend.rows(f'SELECT * FROM "{name}"') for name in tables}
    return {name: sorted(map(repr, rows)) for name, rows in found.items()}


async def assert_refused_unchanged(backend: Backend, error: type[StateError], *calls: Awaitable[Any]) -> None:
    """Every call raises and leaves every row of every table as it was."""
    before = await snapshot(backend)
    for number, outcome in enumerate(await asyncio.gather(*calls, return_exceptions=True)):
        assert isinstance(outcome, error), f"call {number} of {len(calls)}: {outcome!r}"
    assert before == await snapshot(backend)
