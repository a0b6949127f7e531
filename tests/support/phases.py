"""Progressions put into a phase, with rows that are consistent unless a test says otherwise."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from sqlalchemy import Connection, insert

from lionstate import StateDB
from lionstate.dialects import dialect_of
from lionstate.progression import items
from lionstate.progression.collection import PreparedCollection, prepare
from lionstate.progression.control import ensure_fence
from lionstate.progression.phases import new_generation
from lionstate.progression.storage_state import insert_state, update_state
from lionstate.schema.conversation import progressions
from tests.support.backends import Backend

__all__ = ["SHAPES", "change_state", "insert_items", "put", "run", "whole"]

# Every phase with an authority of its own: name -> (phase, authority, reason).
SHAPES: dict[str, tuple[str | None, str, str | None]] = {
    "absent": (None, "json", None),
    "json": ("json", "json", None),
    "dual": ("dual", "json", None),
    "items": ("items", "items", None),
    "blocked-json": ("blocked", "json", "foreign_write"),
    "blocked-items": ("blocked", "items", "digest_mismatch"),
    "blocked-none": ("blocked", "none", "allocator_mismatch"),
    "deleting": ("blocked", "none", "deleting"),
}


async def run(state: StateDB, script: Callable[[Connection], Any]) -> Any:
    """Run a script in a transaction of its own."""
    return await state.store.write("test", script)


async def put(
    backend: Backend,
    progression_id: str,
    shape: str,
    ids: Sequence[str],
    tail: Sequence[str] = (),
    *,
    copied: int | None = None,
    compat_read: bool = False,
) -> None:
    """Create a progression in one of ``SHAPES``.

    Args:
        ids: What admission, or the cutover, found in the JSON.
        tail: What was appended since: in the JSON too while that is the authority.
        copied: In dual, how far the backfill has come; all of ``ids`` when absent.
    """
    phase, authority, reason = SHAPES[shape]
    in_json = authority == "json"
    source = prepare(ids)
    value = prepare([*ids, *tail]) if in_json else source

    def script(conn: Connection) -> None:
        conn.execute(insert(progressions).values(id=progression_id, created_at=1.0, collection=value.text))
        if phase is None:
            return
        if not in_json:
            ensure_fence(conn)
        insert_state(
            conn,
            {
                "progression_id": progression_id,
                "phase": phase,
                "authority": authority,
                "blocked_reason": reason,
                "generation": new_generation(),
                "compat_read": int(compat_read),
                "updated_at": time.time(),
                **_counts(phase, source, len(ids) + len(tail), copied, in_json=in_json),
            },
        )
        if phase == "json":
            return
        done = len(ids) if copied is None else copied
        rows = [*enumerate(ids[:done]), *enumerate(tail, len(ids))]
        _insert_items(conn, progression_id, rows)

    await run(backend.direct, script)


def _counts(
    phase: str, source: PreparedCollection, following: int, copied: int | None, *, in_json: bool
) -> dict[str, Any]:
    if phase == "json":
        return {}
    found: dict[str, Any] = {
        "source_count": source.count,
        "backfill_next": source.count if copied is None else copied,
        "next_ordinal": following,
    }
    if not in_json:
        found |= {
            "frozen_count": source.count,
            "source_digest": source.digest,
            "items_digest": source.digest,
            "text_bytes": source.text_bytes,
            "text_sha256": source.text_sha256,
            "cutover_at": 2.0,
        }
    return found


def _insert_items(conn: Connection, progression_id: str, rows: Sequence[items.Item]) -> None:
    dialect_of(conn).insert_items(conn, [(progression_id, ordinal, mid) for ordinal, mid in rows])


async def insert_items(backend: Backend, progression_id: str, rows: Sequence[items.Item]) -> None:
    """Insert item rows as they are given."""
    await run(backend.direct, lambda conn: _insert_items(conn, progression_id, rows))


async def change_state(backend: Backend, progression_id: str, **changes: Any) -> None:
    """Change columns of a state row."""
    await run(backend.direct, lambda conn: update_state(conn, progression_id, changes))


async def whole(backend: Backend, progression_id: str) -> dict[str, list[dict[str, Any]]]:
    """Every row and column that belongs to a progression, to compare before and after."""
    return {
        "parent": await backend.rows("SELECT * FROM progressions WHERE id = :id", id=progression_id),
        "state": await backend.rows(
            "SELECT * FROM progression_storage_state WHERE progression_id = :id", id=progression_id
        ),
        "items": await backend.rows(
            "SELECT ordinal, message_id FROM progression_items WHERE progression_id = :id ORDER BY ordinal",
            id=progression_id,
        ),
    }
