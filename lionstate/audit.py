"""Writes ``admin_events`` rows, for the records and for the migration; what an action means is theirs to know."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, insert

from lionstate.errors import InvalidInputError
from lionstate.schema.evidence import admin_events
from lionstate.schema.types import encode_json

__all__ = ["insert_admin_event"]


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
