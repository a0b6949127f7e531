"""Retention: ended sessions that nobody has touched for long go, with what only they hold, in batches.

Contract: ADR-0055 D1; design decision 18; reference §3.2, §3.4.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, and_, func, or_, select

from lionstate.audit import record_event
from lionstate.dialects import dialect_of
from lionstate.progression.delete import list_tombstones, remove_tombstone_chunk
from lionstate.progression.storage_state import lock_many
from lionstate.records.arguments import optional, takes, whole
from lionstate.records.session_removal import (
    Removal,
    count_unpointed,
    lock_conversations,
    plan_removal,
    remove_sessions,
)
from lionstate.records.status_vocabulary import ENTITIES
from lionstate.records.values import check_text, finite_number
from lionstate.schema.conversation import branches, sessions

__all__ = ["preview_prune", "prune_sessions", "remove_deleted_rows"]

_MOST_SESSIONS = 100
_MOST_ROWS = 10_000
_TOMBSTONES = 100
_PRUNER = "prune_sessions"
_ENDED = tuple(sorted(ENTITIES["session"].terminal))
_session = sessions.c


def _prunable(before: float) -> ColumnElement[bool]:
    """Ended, or without a status, and untouched since ``before``."""
    moments = (_session.updated_at, _session.created_at, _session.last_message_at, _session.ended_at)
    return and_(
        or_(_session.status.is_(None), _session.status.in_(_ENDED)),
        *(or_(moment.is_(None), moment < before) for moment in moments),
    )


def _batch(conn: Connection, before: float, after_id: str | None, limit: int) -> list[str]:
    found = select(_session.id).where(_prunable(before)).order_by(_session.id).limit(limit)
    if after_id is not None:
        found = found.where(_session.id > after_id)
    return list(conn.execute(found).scalars())


def _result(batch: Sequence[str], plan: Removal, gone_branches: int, gone_messages: int) -> dict[str, Any]:
    return {
        "sessions": len(batch),
        "branches": gone_branches,
        "progressions": len(plan.progressions),
        "messages": gone_messages,
        "unreadable": list(plan.unreadable),
        "last_id": batch[-1] if batch else None,
    }


_NOTHING = Removal((), (), ())


@takes(before=finite_number, after_id=optional(check_text), limit=whole(1, _MOST_SESSIONS), actor=check_text)
def prune_sessions(
    conn: Connection, /, *, before: float, after_id: str | None = None, limit: int = 50, actor: str = _PRUNER
) -> dict[str, Any]:
    """Remove a batch of old sessions in the order of their ids, and what nothing else holds, with one event."""
    if not _batch(conn, before, after_id, 1):
        return _result((), _NOTHING, 0, 0)
    lock_conversations(conn)
    batch = _batch(conn, before, after_id, limit)
    plan = plan_removal(conn, batch)
    found = _result(batch, plan, *remove_sessions(conn, batch, plan))
    if batch:
        counts = {**found, "unreadable": len(plan.unreadable)}
        del counts["last_id"]
        record_event(conn, "prune_sessions", details={"before": before, **counts, "session_ids": batch}, actor=actor)
    return found


@takes(before=finite_number, after_id=optional(check_text), limit=whole(1, _MOST_SESSIONS))
def preview_prune(
    conn: Connection, /, *, before: float, after_id: str | None = None, limit: int = 50
) -> dict[str, Any]:
    """Count what ``prune_sessions`` would remove if it had removed everything up to ``after_id``."""
    batch = _batch(conn, before, after_id, limit)
    if not batch:
        return _result((), _NOTHING, 0, 0)
    gone = and_(_prunable(before), _session.id <= batch[-1])
    plan = plan_removal(conn, batch, gone=gone)
    among = dialect_of(conn).among(branches.c.session_id, "batch")
    counted = select(func.count()).select_from(branches).where(among)
    gone_branches = conn.execute(counted, {"batch": dialect_of(conn).bind_ids(batch)}).scalar_one()
    return _result(batch, plan, gone_branches, count_unpointed(conn, plan.orphans, gone))


@takes(limit=whole(1, _MOST_ROWS))
def remove_deleted_rows(conn: Connection, /, *, limit: int = 5_000) -> int:
    """Remove rows of progressions that are being deleted; how many rows and progressions went."""
    waiting = list_tombstones(conn, limit=_TOMBSTONES)
    lock_many(conn, waiting)
    removed, left = 0, limit
    for progression_id in waiting:
        if left <= 0:
            break
        chunk = remove_tombstone_chunk(conn, progression_id, limit=left)
        removed += chunk.rows + chunk.is_done
        left -= chunk.rows + 1
    return removed
