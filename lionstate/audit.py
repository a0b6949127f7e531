"""Writes ``admin_events`` rows, for the records and for the migration; what an action means is theirs to know."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from typing import Any, NamedTuple

from sqlalchemy import Connection, insert, inspect, select

from lionstate.errors import InvalidInputError
from lionstate.schema.evidence import admin_events
from lionstate.schema.types import encode_json

__all__ = ["DEFAULT_ACTOR", "Event", "insert_admin_event", "last_event", "record_event"]

DEFAULT_ACTOR = "lionstate"


class Event(NamedTuple):
    """Who did something, when (epoch seconds), and what is kept of it."""

    actor: str
    at: float
    details: Mapping[str, Any]


def insert_admin_event(
    conn: Connection,
    /,
    *,
    action: str,
    details: Mapping[str, Any],
    target_id: str | None = None,
    actor: str = "admin",
    now: float | None = None,
) -> str:
    """Insert one event in the caller's transaction.

    Args:
        details: Anything that JSON has a form for.
        now: Epoch seconds of the event; None is the current time.
    Returns:
        The new row's id, 12 hex digits.
    Raises:
        InvalidInputError: ``details`` has no form in JSON, or holds inf or nan.

    Contract: ADR-0055 D1.
    """
    try:
        encode_json(details)
    except (ValueError, TypeError, RecursionError) as error:
        raise InvalidInputError(f"the event's details cannot be stored as JSON: {type(error).__name__}") from error
    event_id = uuid.uuid4().hex[:12]
    row = {
        "id": event_id,
        "created_at": time.time() if now is None else now,
        "action": action,
        "target_id": target_id,
        "details": details,
        "actor": actor,
    }
    conn.execute(insert(admin_events).values(row))
    return event_id


def record_event(
    conn: Connection,
    /,
    action: str,
    *,
    target_id: str | None = None,
    details: Mapping[str, Any] | None = None,
    actor: str = DEFAULT_ACTOR,
    now: float | None = None,
) -> None:
    """Insert one event of lionstate's own work; a store of an older release may lack the table: then nothing.

    Args:
        action: A dotted name, such as ``progression_migrate.cutover``.
        details: Counts, codes and digests; never content.

    Cost: one catalogue look and one insert.
    Contract: ADR-0055 D1; design §4.
    """
    if inspect(conn).has_table(admin_events.name):
        insert_admin_event(conn, action=action, details=dict(details or {}), target_id=target_id, actor=actor, now=now)


def last_event(conn: Connection, /, action: str, target_id: str) -> Event | None:
    """The newest event of this action on one target; None without one, and without the table.

    Cost: one catalogue look and the events of the target, in no order: an index of times would be walked for one.
    """
    if not inspect(conn).has_table(admin_events.name):
        return None
    kept = admin_events.c
    query = select(kept.actor, kept.created_at, kept.details).where(kept.target_id == target_id, kept.action == action)
    found = [
        Event(actor, at, details if isinstance(details, dict) else {}) for actor, at, details in conn.execute(query)
    ]
    return max(found, key=lambda one: one.at, default=None)
