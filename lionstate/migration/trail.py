"""The audit trail of migration, as ``admin_events`` keeps it: who did what, when and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection

from lionstate.audit import list_events

__all__ = ["AuditEvent", "read_trail"]

_PREFIX: Final = "progression_migrate."


@dataclass(frozen=True, slots=True)
class AuditEvent:
    """One event of the audit trail.

    Attributes:
        at: Epoch seconds.
        action: What was done: ``pause``, ``hold``, ``cutover``.
        actor: Who did it.
        reason: Why, as it was said then; None without one.
        progression_id: To which progression; None for what is of the whole store.
        details: Counts, codes and times that were kept beside that.
    """

    at: float
    action: str
    actor: str
    reason: str | None
    progression_id: str | None
    details: Mapping[str, Any]


def read_trail(conn: Connection, /, *, progression_id: str | None, limit: int) -> tuple[AuditEvent, ...]:
    """The newest events, newest first; those of a progression that was deleted too.

    Cost: as ``list_events``.
    """
    return tuple(
        AuditEvent(
            event.at,
            event.action.removeprefix(_PREFIX),
            event.actor,
            event.details.get("reason"),
            event.target_id,
            {name: value for name, value in event.details.items() if name != "reason"},
        )
        for event in list_events(conn, _PREFIX, target_id=progression_id, limit=limit)
    )
