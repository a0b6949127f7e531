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

__all__ = ["DEFAULT_ACTOR", "Event", "insert_admin_event", "last_event", "list_events", "record_event"]

DEFAULT_ACTOR = "lionstate"


class Event(NamedTuple):
    """Who did something, when (epoch seconds), what is kept of it, and to what."""

    actor: str
    at: float
    details: Mapping[str, Any]
    action: str
    target_id: str | None


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

    Cost: as ``list_events`` with a target.
    """
    return next(iter(list_events(conn, action, target_id=target_id, limit=1)), None)


def list_events(conn: Connection, /, prefix: str, *, target_id: str | None, limit: int) -> list[Event]:
    """The newest events whose action begins with ``prefix``, newest first; [] without the table.

    Cost: one catalogue look and, with a target, its events; without one a walk down the index of times that passes
    over the events of others until ``limit`` are found.
    """
    if not inspect(conn).has_table(admin_events.name):
        return []
    kept = admin_events.c
    query = select(kept.actor, kept.created_at, kept.details, kept.action, kept.target_id)
    query = query.where(kept.action.startswith(prefix, autoescape=True))
    if target_id is None:
        query = query.order_by(kept.created_at.desc(), kept.id.desc())
    else:
        # Not the index of times, which would be walked for the few events of one target.
        query = query.where(kept.target_id == target_id).order_by((kept.created_at + 0.0).desc(), kept.id.desc())
    rows = conn.execute(query.limit(limit))
    return [Event(row[0], row[1], row[2] if isinstance(row[2], dict) else {}, row[3], row[4]) for row in rows]
