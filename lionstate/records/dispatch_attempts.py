"""Attempts at delivering dispatches: due ones are claimed for a while, and each attempt is settled once.

A claim counts the attempt and moves the next one behind a lease: whoever claimed it and dies, the dispatch is due
again when the lease is over. Delivery is at least once.

Contract: ADR-0055 D1; reference §2.7.
"""

from __future__ import annotations

import time
from typing import Any

from sqlalchemy import Connection, Select, func, select

from lionstate.records.arguments import above, flag, optional, page_limit, takes, whole
from lionstate.records.dispatch_states import OPEN, Change, backoff_seconds, move, open_status, word
from lionstate.records.rows import all_rows, lock_row
from lionstate.records.values import check_text, finite_number
from lionstate.schema.delivery import dispatch_outbox

__all__ = ["NEXT_AT", "claim_due_dispatches", "due", "finish_dispatch_attempt", "next_dispatch_at"]

LEASE_SECONDS = 15.0
_ACTOR = "dispatch_delivery_loop"
_ERROR_CHARS = 2_000


def _earliest(status: str) -> Any:
    due = select(func.min(dispatch_outbox.c.next_attempt_at))
    return due.where(open_status(), dispatch_outbox.c.status == word(status)).scalar_subquery()


NEXT_AT = select(*map(_earliest, OPEN))


def next_dispatch_at(conn: Connection, /) -> float | None:
    """When the next attempt is due, in epoch seconds; None while no dispatch is pending or under way."""
    row = conn.execute(NEXT_AT).one()
    return min((float(at) for at in row if at is not None), default=None)


def due(now: float, limit: int) -> Select[Any]:
    """The rows whose time has come, longest due first, locked; those that another claim holds are left to it."""
    outbox = dispatch_outbox.c
    found = select(dispatch_outbox).where(open_status(), outbox.next_attempt_at <= now)
    return (
        found.order_by(outbox.next_attempt_at, outbox.id).limit(limit).with_for_update(key_share=True, skip_locked=True)
    )


@takes(now=optional(finite_number), limit=page_limit, lease_seconds=above(0), actor=check_text)
def claim_due_dispatches(
    conn: Connection,
    /,
    *,
    now: float | None = None,
    limit: int = 32,
    lease_seconds: float = LEASE_SECONDS,
    actor: str = _ACTOR,
) -> list[dict[str, Any]]:
    """Expire what is too late, bury what has no attempt left, claim the rest; the claimed rows."""
    now = time.time() if now is None else now
    by = ("scheduler", actor, now)
    late: list[dict[str, Any]] = []
    spent: list[dict[str, Any]] = []
    taken: dict[int, list[dict[str, Any]]] = {}
    for row in all_rows(conn, due(now, limit)):
        if row["expires_at"] is not None and row["expires_at"] <= now:
            late.append(row)
        elif row["attempt"] >= row["max_attempts"]:
            # Its last attempt's lease ran out: nobody knows what became of it, and one more is not allowed.
            spent.append(row)
        else:
            taken.setdefault(row["attempt"] + 1, []).append(row)
    move(conn, late, Change("expired", "dispatch.expired.deadline", "expires_at reached before delivery", *by))
    over = "the lease of the last attempt ran out"
    move(conn, spent, Change("dead_letter", "dispatch.dead_letter.max_attempts", over, *by), last_error=over)
    claimed: list[dict[str, Any]] = []
    for attempt, rows in sorted(taken.items()):
        claim = Change("delivering", "dispatch.delivering.attempt", f"attempt {attempt}", *by)
        columns = {"attempt": attempt, "next_attempt_at": now + lease_seconds}
        move(conn, rows, claim, **columns)
        claimed += [{**row, "status": claim.status, "updated_at": now, **columns} for row in rows]
    return claimed


@takes(
    dispatch_id=check_text,
    attempt=whole(1),
    error=optional(check_text),
    permanent=flag,
    now=optional(finite_number),
    actor=check_text,
)
def finish_dispatch_attempt(
    conn: Connection,
    /,
    dispatch_id: str,
    *,
    attempt: int,
    error: str | None = None,
    permanent: bool = False,
    now: float | None = None,
    actor: str = _ACTOR,
) -> str | None:
    """Settle a claimed attempt; the new status, None when the dispatch is no longer in that attempt."""
    row = lock_row(conn, dispatch_outbox, id=dispatch_id)
    if row is None or (row["status"], row["attempt"]) != ("delivering", attempt):
        return None
    now = time.time() if now is None else now
    status, reason, summary = _verdict(row, error, permanent)
    columns: dict[str, Any] = {} if error is None else {"last_error": error[:_ERROR_CHARS]}
    if status == "pending":
        columns["next_attempt_at"] = now + backoff_seconds(attempt)
    move(conn, [row], Change(status, reason, summary[:_ERROR_CHARS], "scheduler", actor, now), **columns)
    return status


def _verdict(row: dict[str, Any], error: str | None, permanent: bool) -> tuple[str, str, str]:
    """Status, reason and words for what came of an attempt."""
    attempt = row["attempt"]
    is_last = attempt >= row["max_attempts"]
    if error is None and row["ack_required"]:
        if is_last:
            summary = f"{attempt} sends without ack (max_attempts exhausted)"
            return "dead_letter", "dispatch.dead_letter.ack_timeout", summary
        return "pending", "dispatch.delivered.transport_ok", "the command succeeded; the acknowledgement is awaited"
    if error is None:
        return "delivered", "dispatch.delivered.transport_ok", "the command succeeded"
    if permanent:
        return "dead_letter", "dispatch.dead_letter.max_attempts", f"refused for good: {error}"
    if is_last:
        return "dead_letter", "dispatch.dead_letter.max_attempts", f"{attempt} attempts exhausted: {error}"
    return "pending", "dispatch.pending.retry_backoff", f"retry in {backoff_seconds(attempt):.0f}s: {error}"
