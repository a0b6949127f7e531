"""Pointing a session or a branch at a progression: one that is being deleted is refused (design decision 18)."""

from __future__ import annotations

from sqlalchemy import Connection, Table, select, update

from lionstate.errors import ConflictError
from lionstate.progression.storage_state import lock_many
from lionstate.records.values import check_text

__all__ = ["fill_progression", "refuse_deleted"]


def refuse_deleted(conn: Connection, /, progression_id: str) -> None:
    """Lock a progression that a session or branch is to point at; a missing one is left to the foreign key.

    Raises:
        ConflictError: Its deletion has begun.

    Cost: two statements.
    """
    locked = lock_many(conn, [progression_id]).get(progression_id)
    if locked is not None and locked.state is not None and locked.state.is_tombstone:
        raise ConflictError("the progression is being deleted; its id is free again when its rows are gone")


def fill_progression(conn: Connection, /, table: Table, row_id: str, new: str) -> str | None:
    """Set the ``progression_id`` of a session or branch that has none; return the one in effect.

    Stores in the field may hold rows without one. Returns None if the row is missing.
    """
    check_text("new", new)
    stored = select(table.c.progression_id).where(table.c.id == row_id)
    row = conn.execute(stored).first()
    if row is not None and row[0] is None:
        refuse_deleted(conn, new)
        empty = (table.c.id == row_id) & table.c.progression_id.is_(None)
        conn.execute(update(table).where(empty).values(progression_id=new))
        row = conn.execute(stored).first()
    return None if row is None else str(row[0])
