"""Approvals of proposed actions, each change with a row of hash-chained evidence.

Contract: ADR-0055 D1; reference §2.5 (LionAGI has them in its studio only).
"""

from __future__ import annotations

import functools
import time
import uuid
from collections.abc import Mapping
from typing import Any, Final

from sqlalchemy import Connection, and_, case, select

from lionstate.dialects import dialect_of
from lionstate.engine import Deferred, Refused
from lionstate.errors import ConflictError, InvalidInputError, NotFoundError
from lionstate.records.arguments import above, optional, page_limit, page_offset, takes, whole, words
from lionstate.records.evidence_chain import GENESIS, hash_params, sealed, verify_links
from lionstate.records.rows import all_rows, filtered, first_row, insert_row, lock_row, page, update_rows
from lionstate.records.schemas import MAPPING, described
from lionstate.records.values import check_text
from lionstate.schema.control import approval_evidence, approvals

__all__ = [
    "consume_approval",
    "create_approval",
    "deny_approval",
    "get_approval",
    "grant_approval",
    "list_approval_evidence",
    "list_approvals",
    "verify_approval_chain",
]

TTL_SECONDS = 300.0
_OPEN = ("pending", "granted")
_STATUSES = (*_OPEN, "consumed", "expired", "denied")
_key = optional(check_text)
# What one verdict may hold in memory, about 100 MB.
MOST_LINKS: Final = 50_000


def _enter(conn: Connection) -> None:
    """Keep sequence and predecessor of the next evidence ours; before any row lock, so that nobody waits crosswise."""
    dialect_of(conn).lock_word(conn, approval_evidence.name)


def _note(
    conn: Connection,
    approval: Mapping[str, Any],
    event: str,
    before: str | None,
    now: float,
    hmac_key: str | None,
    **justification: str | None,
) -> None:
    """Append one row to the chain."""
    evidence = approval_evidence.c
    last = first_row(conn, select(evidence.sequence, evidence.chain_hash).order_by(evidence.sequence.desc()).limit(1))
    row = {
        "id": uuid.uuid4().hex,
        "sequence": 1 if last is None else last["sequence"] + 1,
        "event_type": event,
        "approval_id": approval["id"],
        "action_kind": approval["action_kind"],
        "status_from": before,
        "status_to": approval["status"],
        "params_hash": approval["params_hash"],
        "justification_class": None,
        "justification_reason": None,
        "created_at": now,
        **justification,
    }
    insert_row(conn, approval_evidence, sealed(row, GENESIS if last is None else last["chain_hash"], hmac_key))


def _change(
    conn: Connection, row: Mapping[str, Any], status: str, now: float, hmac_key: str | None, **more: Any
) -> dict[str, Any]:
    """Move a locked approval to a status, with its evidence; the new row."""
    justification = {name: more.pop(name) for name in ("justification_class", "justification_reason") if name in more}
    changes = {"status": status, **more}
    update_rows(conn, approvals, {"id": row["id"], "status": row["status"]}, changes)
    changed = {**row, **changes}
    _note(conn, changed, status, row["status"], now, hmac_key, **justification)
    return changed


def _current(conn: Connection, approval_id: str, now: float, hmac_key: str | None) -> dict[str, Any] | None:
    """The locked row; one whose time is over becomes ``expired`` first."""
    _enter(conn)
    row = lock_row(conn, approvals, id=approval_id)
    if row is not None and row["status"] in _OPEN and now > row["expires_at"]:
        return _change(conn, row, "expired", now, hmac_key)
    return row


def _decide(
    conn: Connection, approval_id: str, expected: str, status: str, hmac_key: str | None, **more: Any
) -> dict[str, Any] | Refused:
    now = time.time()
    row = _current(conn, approval_id, now, hmac_key)
    if row is None:
        raise NotFoundError("there is no such approval")
    if row["status"] != expected:
        # Not raised: the expiry that was found stays.
        return Refused(ConflictError(f"the approval is {row['status']}, not {expected}"))
    stamp = {f"{status}_at": now} if f"{status}_at" in approvals.c else {}
    return _change(conn, row, status, now, hmac_key, **stamp, **more)


@described(MAPPING)
def _hashed(name: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise InvalidInputError(f"{name} must be a mapping, not {type(value).__name__}")
    hash_params(value)
    return value


@takes(
    action_kind=check_text,
    params=_hashed,
    session_id=optional(check_text),
    ttl_seconds=above(0),
    hmac_key=_key,
)
def create_approval(
    conn: Connection,
    /,
    *,
    action_kind: str,
    params: Mapping[str, Any],
    session_id: str | None = None,
    ttl_seconds: float = TTL_SECONDS,
    hmac_key: str | None = None,
) -> dict[str, Any]:
    """Insert a pending approval of these parameters and its first evidence; the row."""
    _enter(conn)
    now = time.time()
    row = {
        "id": uuid.uuid4().hex,
        "action_kind": action_kind,
        "params_hash": hash_params(params),
        "session_id": session_id,
        "status": "pending",
        "proposed_at": now,
        "granted_at": None,
        "consumed_at": None,
        "expires_at": now + ttl_seconds,
    }
    insert_row(conn, approvals, row)
    _note(conn, row, "proposed", None, now, hmac_key)
    return row


@takes(approval_id=check_text, hmac_key=_key)
def get_approval(conn: Connection, /, approval_id: str, *, hmac_key: str | None = None) -> dict[str, Any] | None:
    """The row or None; one whose time is over becomes ``expired`` with its evidence."""
    return _current(conn, approval_id, time.time(), hmac_key)


@takes(status=optional(words(_STATUSES)), action_kind=_key, session_id=_key, limit=page_limit, offset=page_offset)
def list_approvals(
    conn: Connection,
    /,
    *,
    status: str | None = None,
    action_kind: str | None = None,
    session_id: str | None = None,
    limit: int = 100,
    offset: int = 0,
) -> list[dict[str, Any]]:
    """A page of approvals, last proposed first; an open one whose time is over reads as ``expired``."""
    over = and_(approvals.c.status.in_(_OPEN), approvals.c.expires_at < time.time())
    now = case((over, "expired"), else_=approvals.c.status).label("status")
    found = select(*(now if column.name == "status" else column for column in approvals.c))
    found = filtered(found, approvals, action_kind=action_kind, session_id=session_id)
    if status is not None:
        found = found.where(now == status)
    return all_rows(conn, page(found.order_by(approvals.c.proposed_at.desc(), approvals.c.id.desc()), limit, offset))


@takes(approval_id=check_text, hmac_key=_key)
def grant_approval(conn: Connection, /, approval_id: str, *, hmac_key: str | None = None) -> dict[str, Any] | Refused:
    """Grant a pending approval; the row."""
    return _decide(conn, approval_id, "pending", "granted", hmac_key)


@takes(approval_id=check_text, justification_class=_key, justification_reason=_key, hmac_key=_key)
def deny_approval(
    conn: Connection,
    /,
    approval_id: str,
    *,
    justification_class: str | None = None,
    justification_reason: str | None = None,
    hmac_key: str | None = None,
) -> dict[str, Any] | Refused:
    """Deny a pending approval, with a reason in its evidence; the row."""
    why = {"justification_class": justification_class, "justification_reason": justification_reason}
    return _decide(conn, approval_id, "pending", "denied", hmac_key, **why)


@takes(approval_id=check_text, action_kind=check_text, params=_hashed, hmac_key=_key)
def consume_approval(
    conn: Connection,
    /,
    approval_id: str,
    *,
    action_kind: str,
    params: Mapping[str, Any],
    hmac_key: str | None = None,
) -> dict[str, Any] | Refused:
    """Use a granted approval for the very action and parameters it was asked for, once; the row."""
    _enter(conn)
    row = lock_row(conn, approvals, id=approval_id)
    if row is not None and (row["action_kind"], row["params_hash"]) != (action_kind, hash_params(params)):
        raise ConflictError("the approval was given for another action or other parameters")
    return _decide(conn, approval_id, "granted", "consumed", hmac_key)


@takes(approval_id=_key, after_sequence=whole(), limit=page_limit)
def list_approval_evidence(
    conn: Connection, /, *, approval_id: str | None = None, after_sequence: int = 0, limit: int = 100
) -> list[dict[str, Any]]:
    """A page of evidence, ascending."""
    sequence = approval_evidence.c.sequence
    found = filtered(select(approval_evidence), approval_evidence, approval_id=approval_id)
    return all_rows(conn, page(found.where(sequence > after_sequence).order_by(sequence), limit))


@takes(hmac_key=_key, after_sequence=whole(), limit=optional(whole(1, MOST_LINKS)))
def verify_approval_chain(
    conn: Connection, /, *, hmac_key: str | None = None, after_sequence: int = 0, limit: int | None = None
) -> Deferred[dict[str, Any]]:
    """The verdict on the whole chain or a part of it; cost: one read of that, hashed outside the transaction."""
    sequence = approval_evidence.c.sequence
    found = select(approval_evidence).order_by(sequence)
    rows = all_rows(
        conn, (found.where(sequence > after_sequence) if after_sequence else found).limit(limit or MOST_LINKS + 1)
    )
    if len(rows) > MOST_LINKS:
        raise InvalidInputError(f"more than {MOST_LINKS} entries: verify them in parts, by limit and after_sequence")
    before = GENESIS
    if after_sequence:
        entry = first_row(conn, select(approval_evidence.c.chain_hash).where(sequence == after_sequence))
        if entry is None:
            raise InvalidInputError("there is no entry of the number after_sequence")
        before = entry["chain_hash"]
    verify = functools.partial(verify_links, hmac_key=hmac_key, after_sequence=after_sequence, before=before)
    return Deferred(rows, verify, len(rows) * 512)
