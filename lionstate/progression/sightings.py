"""Sightings of other programs that write a ``dual`` progression, where rows carry versions (design decision 37)."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection, bindparam, select

from lionstate.audit import DEFAULT_ACTOR, record_event
from lionstate.dialects import Statement, dialect_of
from lionstate.progression.phases import Phase
from lionstate.progression.storage_state import AppendState, StorageState
from lionstate.schema.own import migration_control as table

__all__ = ["SIGHTED_SECONDS", "note_sighting", "sighted_at", "was_written_by_others"]

SIGHTED_SECONDS: Final = 86_400.0
"""How long a sighting counts when no other follows."""

_KEY: Final = "foreign.sighted"
# A sighting this young is not written again: a program that writes often costs one row a minute.
_RENEW_SECONDS: Final = 60.0

_ROW = Statement(select(table.c.updated_at, table.c.expires_at).where(table.c.key == bindparam("key")))


def sighted_at(conn: Connection, /, now: float) -> float | None:
    """When another program's write was last found, epoch seconds; None if not in the last `SIGHTED_SECONDS`.

    Cost: one primary-key seek.
    """
    rows = _ROW.rows(conn, {"key": _KEY})
    if not rows or (rows[0][1] is not None and rows[0][1] <= now):
        return None
    found: float = rows[0][0]
    return found


def was_written_by_others(version: int | None, state: StorageState | AppendState | None) -> bool:
    """Whether the parent row of a locked dual progression is not as lionstate's last write left it."""
    if version is None or state is None or state.phase is not Phase.DUAL or state.last_xact is None:
        return False
    return version != state.last_xact


def note_sighting(conn: Connection, /, progression_id: str, *, actor: str = DEFAULT_ACTOR, now: float) -> None:
    """Keep for `SIGHTED_SECONDS` that another program wrote this store; audited when none was kept.

    A caller that has the progression locked brings the version on its state row up to date, so that the next write
    of others is seen again.

    Cost: one seek, and one upsert when the last sighting is more than a minute old.
    Contract: design decision 37.
    """
    before = sighted_at(conn, now)
    if before is not None and before > now - _RENEW_SECONDS:
        return
    row = {
        "key": _KEY,
        "value": '{"enabled": true}',
        "actor": actor,
        "reason": "a dual progression was written by another program",
        "updated_at": now,
        "expires_at": now + SIGHTED_SECONDS,
    }
    conn.execute(dialect_of(conn).upsert(table, ["key"], [name for name in row if name != "key"]), row)
    if before is None:
        record_event(conn, "progression_migrate.foreign_write_seen", target_id=progression_id, actor=actor, now=now)
