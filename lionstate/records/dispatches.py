"""The outbox of dispatches: entered once, read, acknowledged, retried by an operator, purged.

Attempts at delivery are in `dispatch_attempts`. Contract: ADR-0055 D1; reference §2.7.
"""

from __future__ import annotations

import hmac
import time
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, delete, func, select

from lionstate.audit import insert_admin_event
from lionstate.dialects import dialect_of
from lionstate.errors import InvalidInputError, NotFoundError
from lionstate.records.arguments import flag, mapping, optional, page_limit, page_offset, takes, texts, whole, words
from lionstate.records.dispatch_states import OPEN, STATUSES, TERMINAL, Change, move, record_changes_of
from lionstate.records.rows import all_rows, count_rows, delete_rows, filtered, get_row, lock_row, newest_first, page
from lionstate.records.schemas import MAPPING, TEXT, described
from lionstate.records.values import check_text, finite_number
from lionstate.schema.delivery import dispatch_outbox

__all__ = [
    "DEFAULT_MAX_ATTEMPTS",
    "ack_dispatch",
    "count_dispatches",
    "enqueue_dispatch",
    "enqueue_revival_heartbeat",
    "get_dispatch",
    "list_dispatches",
    "purge_dispatch",
    "purge_dispatches",
    "retry_dispatch",
]

DEFAULT_MAX_ATTEMPTS = 8
_MAX_PURGED = 10_000
_DELETED_AT_ONCE = 500
_PURGER = "li_dispatch_purge"


@described({**TEXT, "minLength": 1})
def _destination(name: str, value: object) -> str:
    """A destination can be one argument of a command: not blank, no NUL."""
    if not check_text(name, value).strip():
        raise InvalidInputError(f"{name} must not be blank")
    return str(value)


@described(MAPPING)
def _body(name: str, value: Any) -> Mapping[str, Any]:
    mapping(name, value)
    found: Mapping[str, Any] = value
    return found


_attempts = whole(1)


@takes(
    deliver_to=_destination,
    kind=check_text,
    body=optional(_body),
    dedup_key=optional(check_text),
    ack_required=flag,
    max_attempts=_attempts,
    expires_at=optional(finite_number),
    session_id=optional(check_text),
    schedule_run_id=optional(check_text),
)
def enqueue_dispatch(
    conn: Connection,
    /,
    *,
    kind: str,
    deliver_to: str,
    body: Mapping[str, Any] | None = None,
    dedup_key: str | None = None,
    ack_required: bool = False,
    max_attempts: int = DEFAULT_MAX_ATTEMPTS,
    expires_at: float | None = None,
    session_id: str | None = None,
    schedule_run_id: str | None = None,
) -> str:
    """Insert a pending dispatch with its first history; the id, that of the first one with the same ``dedup_key``."""
    now, dispatch_id = time.time(), uuid.uuid4().hex
    ack_token = uuid.uuid4().hex if ack_required else None
    payload = {
        "dispatch_id": dispatch_id,
        "kind": kind,
        "deliver_to": deliver_to,
        "attempt": 0,
        "ack_token": ack_token,
        "body": dict(body or {}),
    }
    row = {
        "id": dispatch_id,
        "kind": kind,
        "deliver_to": deliver_to,
        "payload": payload,
        "dedup_key": dedup_key,
        "status": "pending",
        "attempt": 0,
        "max_attempts": max_attempts,
        "next_attempt_at": now,
        "ack_required": int(ack_required),
        "ack_token": ack_token,
        "session_id": session_id,
        "schedule_run_id": schedule_run_id,
        "created_at": now,
        "expires_at": expires_at,
        "updated_at": now,
    }
    # Inserted first and looked up after: the one that comes second waits here for the first, and then sees it.
    if conn.execute(dialect_of(conn).insert_ignore(dispatch_outbox).values(row)).rowcount:
        first = Change(
            "pending", "dispatch.pending.enqueued", f"enqueued kind={kind}", "system", "enqueue_dispatch", now
        )
        record_changes_of(conn, [(dispatch_id, None)], first)
        return dispatch_id
    found = select(dispatch_outbox.c.id).where(dispatch_outbox.c.dedup_key == dedup_key)
    return str(conn.execute(found).scalar_one())


@takes(
    seats=texts,
    reset_epoch=finite_number,
    ttl_seconds=finite_number,
    max_attempts=_attempts,
)
def enqueue_revival_heartbeat(
    conn: Connection,
    /,
    seats: Sequence[str],
    *,
    reset_epoch: float,
    ttl_seconds: float = 3600.0,
    max_attempts: int = DEFAULT_MAX_ATTEMPTS,
) -> list[str]:
    """One ``revival_ping`` to each seat and epoch; the ids in the order of the seats."""
    for seat in seats:
        _destination("seats", seat)
    # In one order, so that two callers do not wait for each other's keys crosswise.
    ids = {
        seat: enqueue_dispatch(
            conn,
            kind="revival_ping",
            deliver_to=seat,
            body={"reset_epoch": reset_epoch},
            dedup_key=f"revival:{seat}:{reset_epoch}",
            max_attempts=max_attempts,
            expires_at=reset_epoch + ttl_seconds if reset_epoch else None,
        )
        for seat in sorted(set(seats))
    }
    return [ids[seat] for seat in seats]


@takes(dispatch_id=check_text)
def get_dispatch(conn: Connection, /, dispatch_id: str) -> dict[str, Any] | None:
    """The row or None."""
    return get_row(conn, dispatch_outbox, id=dispatch_id)


_status = optional(words(STATUSES))


@takes(status=_status, limit=page_limit, offset=page_offset)
def list_dispatches(
    conn: Connection, /, *, status: str | None = None, limit: int = 50, offset: int = 0
) -> list[dict[str, Any]]:
    """A page of dispatches, newest first."""
    return all_rows(conn, page(newest_first(dispatch_outbox, "created_at", status=status), limit, offset))


@takes(status=_status)
def count_dispatches(conn: Connection, /, *, status: str | None = None) -> int:
    """How many there are."""
    return count_rows(conn, dispatch_outbox, status=status)


def _locked(conn: Connection, dispatch_id: str) -> dict[str, Any]:
    row = lock_row(conn, dispatch_outbox, id=dispatch_id)
    if row is None:
        raise NotFoundError("there is no such dispatch")
    return row


@takes(dispatch_id=check_text, ack_token=check_text)
def ack_dispatch(conn: Connection, /, dispatch_id: str, ack_token: str) -> bool:
    """Take the consumer's acknowledgement; one that was taken before is taken again and changes nothing."""
    row = _locked(conn, dispatch_id)
    if not row["ack_required"]:
        raise InvalidInputError("the dispatch does not ask for an acknowledgement")
    if not hmac.compare_digest((row["ack_token"] or "").encode(), ack_token.encode()):
        raise InvalidInputError("the ack_token is not the dispatch's")
    if row["status"] == "acked":
        return True
    if row["status"] not in OPEN:
        raise InvalidInputError(f"the dispatch is {row['status']}: only a pending or delivering one is acknowledged")
    summary = "consumer presented ack_token"
    change = Change("acked", "dispatch.acked.consumer", summary, "operator", "li_dispatch_ack", time.time())
    move(conn, [row], change)
    return True


@takes(dispatch_id=check_text)
def retry_dispatch(conn: Connection, /, dispatch_id: str) -> bool:
    """Make a dead or expired dispatch pending and due again, its attempts counted anew."""
    row = _locked(conn, dispatch_id)
    if row["status"] not in ("dead_letter", "expired"):
        raise InvalidInputError(f"the dispatch is {row['status']}: only a dead_letter or expired one is retried")
    now = time.time()
    why = ("dispatch.pending.retry_backoff", "operator-forced retry", "operator", "li_dispatch_retry")
    move(conn, [row], Change("pending", *why, now), attempt=0, next_attempt_at=now, last_error=None)
    return True


@takes(dispatch_id=check_text, actor=check_text)
def purge_dispatch(conn: Connection, /, dispatch_id: str, *, actor: str = _PURGER) -> bool:
    """Delete one dispatch, whatever its status, with an event; False if it is missing."""
    row = lock_row(conn, dispatch_outbox, id=dispatch_id)
    if row is None:
        return False
    delete_rows(conn, dispatch_outbox, id=dispatch_id)
    details = {"dispatch_id": dispatch_id, "status": row["status"], "total": 1}
    insert_admin_event(conn, action="dispatch_purge", target_id=dispatch_id, details=details, actor=actor)
    return True


def _some_criterion(params: dict[str, Any]) -> dict[str, Any]:
    if params.get("status") is None and params.get("before") is None:
        raise InvalidInputError("a purge needs a status, a time before which they last changed, or both")
    return params


@takes(
    _some_criterion,
    status=_status,
    before=optional(finite_number),
    dry_run=flag,
    limit=whole(1, _MAX_PURGED),
    actor=check_text,
)
def purge_dispatches(
    conn: Connection,
    /,
    *,
    status: str | None = None,
    before: float | None = None,
    dry_run: bool = False,
    limit: int = _MAX_PURGED,
    actor: str = _PURGER,
) -> dict[str, Any]:
    """Delete, or only count, the dispatches that match, with one event; terminal ones unless a status is named."""
    outbox = dispatch_outbox.c
    conditions: list[ColumnElement[bool]] = (
        [outbox.status.in_(TERMINAL)] if status is None else [outbox.status == status]
    )
    if before is not None:
        conditions.append(outbox.updated_at <= before)
    if dry_run:
        counted = select(outbox.status, func.count()).where(*conditions).group_by(outbox.status)
        counts = {found: int(number) for found, number in conn.execute(counted)}
    else:
        # The ids first, locked in one order, and then these only: the criteria could match others a moment later.
        matched = filtered(select(outbox.id, outbox.status), dispatch_outbox).where(*conditions)
        rows = conn.execute(matched.order_by(outbox.id).limit(limit).with_for_update()).all()
        counts = dict(Counter(row.status for row in rows))
        _delete_all(conn, [row.id for row in rows])
    total = sum(counts.values())
    criteria = {"status": status, "before": before, "dry_run": dry_run}
    details = {**criteria, "total": total, "counts_by_status": counts}
    insert_admin_event(conn, action="dispatch_purge", details=details, actor=actor)
    return {"total": total, "dry_run": dry_run, **counts}


def _delete_all(conn: Connection, ids: Sequence[str]) -> None:
    dialect = dialect_of(conn)
    statement = delete(dispatch_outbox).where(dialect.among(dispatch_outbox.c.id, "ids"))
    for start in range(0, len(ids), _DELETED_AT_ONCE):
        conn.execute(statement, {"ids": dialect.bind_ids(ids[start : start + _DELETED_AT_ONCE])})
