"""Deletes: small progressions at once, large ones by a tombstone whose rows go in chunks (design decision 18)."""

from __future__ import annotations

import time
from dataclasses import dataclass

from sqlalchemy import Connection, bindparam, delete, select

from lionstate.dialects import Statement
from lionstate.errors import BlockedCode, ForeignKeyError, InvalidInputError
from lionstate.progression import items
from lionstate.progression.control import ensure_fence
from lionstate.progression.phases import Authority, Phase, new_generation
from lionstate.progression.storage_state import StorageState, insert_state, lock_many, update_state
from lionstate.schema.conversation import branches, progressions, sessions
from lionstate.schema.own import progression_storage_state

__all__ = [
    "SMALL_ROWS",
    "TombstoneChunk",
    "delete_progression",
    "list_tombstones",
    "remove_tombstone_chunk",
    "tombstone",
]

SMALL_ROWS = 5_000

_DELETE_PARENT = Statement(delete(progressions).where(progressions.c.id == bindparam("pid")))
_REFERENCES = tuple(
    Statement(select(table.c.id).where(table.c.progression_id == bindparam("pid")).limit(1))
    for table in (sessions, branches)
)
_TOMBSTONES = Statement(
    select(progression_storage_state.c.progression_id)
    .where(progression_storage_state.c.phase == Phase.BLOCKED.value)
    .where(progression_storage_state.c.blocked_reason == BlockedCode.DELETING.value)
    .order_by(progression_storage_state.c.updated_at)
    .limit(bindparam("count"))
)


@dataclass(frozen=True, slots=True)
class TombstoneChunk:
    """What one chunk of a removal did.

    Attributes:
        rows: Item rows removed.
        is_done: Nothing of the progression is left, or there was nothing to remove.
        is_referenced: All item rows are gone, and a foreign process has pointed a session or branch at the
            progression meanwhile: its parent row stays until that is gone.
    """

    rows: int
    is_done: bool
    is_referenced: bool = False


def _is_referenced(conn: Connection, progression_id: str) -> bool:
    return any(statement.rows(conn, {"pid": progression_id}) for statement in _REFERENCES)


def delete_progression(conn: Connection, /, progression_id: str) -> bool:
    """Delete a progression that no session or branch refers to.

    Returns:
        Whether there was one; False for a missing one and for one that is being deleted already.
    Raises:
        ForeignKeyError: A session or branch refers to it.

    Cost: up to 5,000 item rows; a larger one gets a tombstone in a handful of statements.
    Contract: ADR-0117 D1 (cascade); design decision 18.
    """
    locked = lock_many(conn, [progression_id]).get(progression_id)
    if locked is None or (locked.state is not None and locked.state.is_tombstone):
        return False
    if _is_referenced(conn, progression_id):
        raise ForeignKeyError("a session or branch refers to this progression")
    if len(items.page(conn, progression_id, limit=SMALL_ROWS + 1)) > SMALL_ROWS:
        tombstone(conn, progression_id, locked.state)
    else:
        _DELETE_PARENT.run(conn, {"pid": progression_id})
    return True


def tombstone(conn: Connection, /, progression_id: str, state: StorageState | None) -> None:
    """Mark a locked, unreferenced progression: from now on it answers as missing, whatever its rows.

    For deletes of several records too: they mark, maintenance removes.

    Contract: design decision 18.
    """
    ensure_fence(conn)
    changes = {
        "phase": Phase.BLOCKED.value,
        "authority": Authority.NONE.value,
        "blocked_reason": BlockedCode.DELETING.value,
        "generation": new_generation(),
        "compat_read": 0,
        "updated_at": time.time(),
    }
    if state is None:
        insert_state(conn, {"progression_id": progression_id, **changes})
    else:
        update_state(conn, progression_id, changes)


def remove_tombstone_chunk(conn: Connection, /, progression_id: str, *, limit: int) -> TombstoneChunk:
    """Remove at most ``limit`` item rows of a tombstone, and its parent row when no item is left.

    May be repeated after a crash at any point; does nothing to a progression that is no tombstone.

    Cost: linear in ``limit``, at most 10,000.
    Contract: design decision 18.
    """
    if not 1 <= limit <= 10_000:
        raise InvalidInputError("limit is not between 1 and 10000")
    locked = lock_many(conn, [progression_id]).get(progression_id)
    if locked is None or locked.state is None or not locked.state.is_tombstone:
        return TombstoneChunk(0, is_done=True)
    removed = items.delete_items_chunk(conn, progression_id, limit=limit)
    if removed == limit:
        return TombstoneChunk(removed, is_done=False)
    if _is_referenced(conn, progression_id):
        return TombstoneChunk(removed, is_done=False, is_referenced=True)
    _DELETE_PARENT.run(conn, {"pid": progression_id})
    return TombstoneChunk(removed, is_done=True)


def list_tombstones(conn: Connection, /, *, limit: int) -> list[str]:
    """Progressions that wait for their removal, the oldest first. Cost: the blocked rows, by index."""
    return [row[0] for row in _TOMBSTONES.rows(conn, {"count": limit})]
