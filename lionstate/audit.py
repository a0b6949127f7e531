"""Writes rows of ``admin_events`` for records and migration; knows no phases."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, insert, inspect

from lionstate.schema.evidence import admin_events

__all__ = ["DEFAULT_ACTOR", "record_event"]

DEFAULT_ACTOR = "lionstate"


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
    """Write one audit row in the caller's transaction.

    Args:
        action: A dotted name, such as ``progression_migrate.cutover``.
        target_id: What it was done to.
        details: Counts, codes and digests; never content.
        now: Epoch seconds; the clock when absent.

    A store of an older release may lack the table, which is left missing: then nothing is written.

    Cost: one catalogue look and one insert.
    Contract: ADR-0055 D1; design §4.
    """
    if not inspect(conn).has_table(admin_events.name):
        return
    row = {
        "id": uuid.uuid4().hex,
        "created_at": time.time() if now is None else now,
        "action": action,
        "target_id": target_id,
        "details": dict(details or {}),
        "actor": actor,
    }
    conn.execute(insert(admin_events).values(**row))
