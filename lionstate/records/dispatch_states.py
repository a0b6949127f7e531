"""The statuses of a dispatch, its history and its back-off: what every change of one shares.

Contract: ADR-0055 D1; reference §2.7, §2.8.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Text, insert, literal_column, update

from lionstate.dialects import dialect_of
from lionstate.schema.delivery import dispatch_outbox
from lionstate.schema.evidence import status_transitions

__all__ = [
    "OPEN",
    "STATUSES",
    "TERMINAL",
    "Change",
    "backoff_seconds",
    "move",
    "open_status",
    "record_changes_of",
    "word",
]

OPEN: Final = ("pending", "delivering")
TERMINAL: Final = ("delivered", "acked", "dead_letter", "expired")
STATUSES: Final = (*OPEN, *TERMINAL)

_FIRST_SECONDS = 30
_LONGEST_SECONDS = 1_800


def backoff_seconds(attempt: int) -> float:
    """Seconds from a failed attempt to the next: 30 · 2^attempt, at most half an hour."""
    # A larger exponent is a larger number that nobody needs to compute.
    return float(min(_FIRST_SECONDS * 2 ** min(attempt, 16), _LONGEST_SECONDS))


def word(status: str) -> ColumnElement[str]:
    """One of ``OPEN`` as it stands in the text of a statement."""
    return literal_column(f"'{OPEN[OPEN.index(status)]}'", Text)


def open_status() -> ColumnElement[bool]:
    """The test of the partial index on due rows, spelled as the index spells it, or no planner sees that it serves."""
    return dispatch_outbox.c.status.in_([word(status) for status in OPEN])


@dataclass(frozen=True, slots=True)
class Change:
    """One move of a dispatch.

    Attributes:
        status: The new status.
        reason: Its reason code.
        summary: The reason in words.
        source: Who: ``scheduler``, ``operator`` or ``system``.
        actor: Who, by name.
        now: Epoch seconds.
    """

    status: str
    reason: str
    summary: str
    source: str
    actor: str
    now: float


def record_changes_of(conn: Connection, rows: Sequence[tuple[str, str | None]], change: Change) -> None:
    """Write a row of history for each (id, previous status)."""
    conn.execute(
        insert(status_transitions),
        [
            {
                "id": uuid.uuid4().hex,
                "entity_type": "dispatch",
                "entity_id": row_id,
                "previous_status": previous,
                "status": change.status,
                "reason_code": change.reason,
                "reason_summary": change.summary,
                "evidence_refs": [],
                "source": change.source,
                "actor": change.actor,
                "created_at": change.now,
                "metadata": {},
            }
            for row_id, previous in rows
        ],
    )


def move(conn: Connection, rows: Sequence[Mapping[str, Any]], change: Change, **columns: Any) -> None:
    """Give locked rows a new status, and what else changes with it, with their history. Cost: two statements."""
    if not rows:
        return
    dialect = dialect_of(conn)
    statement = update(dispatch_outbox).where(dialect.among(dispatch_outbox.c.id, "moved"))
    values = {"status": change.status, "updated_at": change.now, **columns}
    conn.execute(statement.values(values), {"moved": dialect.bind_ids([row["id"] for row in rows])})
    record_changes_of(conn, [(row["id"], row["status"]) for row in rows], change)
