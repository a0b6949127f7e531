"""Controls of running sessions: asked for, claimed by the one that applies them, and settled once.

Contract: ADR-0055 D1; reference §2.5.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, select

from lionstate.errors import InvalidInputError
from lionstate.records.arguments import flag, mapping, optional, page_limit, page_offset, takes, words
from lionstate.records.rows import all_rows, get_row, insert_row, lock_row, page, update_rows
from lionstate.records.values import check_text, finite_number
from lionstate.schema.control import session_controls
from lionstate.schema.conversation import sessions

__all__ = [
    "finalize_session_control",
    "get_session_control",
    "insert_session_control",
    "list_pending_session_controls",
    "mark_session_control_applying",
    "resolve_claimed_session_control",
]

_VERBS = ("pause", "resume", "message", "stop")
_POLLED_KINDS = ("flow", "play")
_LIVE = ("pending", "active")
_CLAIM = "applying"


@takes(
    session_id=check_text,
    verb=words(_VERBS),
    payload=optional(mapping),
    created_at=optional(finite_number),
    project=optional(check_text),
    require_live_flow_poller=flag,
)
def insert_session_control(
    conn: Connection,
    /,
    *,
    session_id: str,
    verb: str,
    payload: Mapping[str, Any] | None = None,
    created_at: float | None = None,
    project: str | None = None,
    require_live_flow_poller: bool = False,
) -> str | None:
    """Insert a control if its session is there to take it and return its id, else None.

    The session's row stays locked until the transaction ends: it cannot stop running in between.
    """
    session = lock_row(conn, sessions, id=session_id)
    if session is None or session["status"] != "running" or project not in (None, session["project"]):
        return None
    if require_live_flow_poller and not _is_polled(session):
        return None
    control_id = uuid.uuid4().hex
    row = {"id": control_id, "session_id": session_id, "verb": verb, "payload": payload}
    insert_row(conn, session_controls, {**row, "created_at": time.time() if created_at is None else created_at})
    return control_id


def _is_polled(session: Mapping[str, Any]) -> bool:
    if session["invocation_kind"] not in _POLLED_KINDS:
        return True
    node_metadata = session["node_metadata"]
    return isinstance(node_metadata, dict) and node_metadata.get("flow_control_poller") in _LIVE


@takes(control_id=check_text)
def get_session_control(conn: Connection, /, control_id: str) -> dict[str, Any] | None:
    """The row or None."""
    return get_row(conn, session_controls, id=control_id)


@takes(session_id=check_text, limit=page_limit, offset=page_offset)
def list_pending_session_controls(
    conn: Connection, /, session_id: str, *, limit: int = 1000, offset: int = 0
) -> list[dict[str, Any]]:
    """One page of the controls of a session that are not settled, oldest first, claimed ones too."""
    order = (session_controls.c.created_at, session_controls.c.id)
    found = select(session_controls).where(session_controls.c.session_id == session_id).order_by(*order)
    return all_rows(conn, page(found.where(session_controls.c.applied_at.is_(None)), limit, offset))


@takes(control_id=check_text, owner=optional(check_text))
def mark_session_control_applying(conn: Connection, /, control_id: str, *, owner: str | None = None) -> str | None:
    """Claim a control that nobody has claimed or settled; the claim, else None."""
    claim = f"{_CLAIM}:{owner}" if owner else _CLAIM
    unclaimed = {"id": control_id, "result": None}
    return (
        claim if update_rows(conn, session_controls, unclaimed, {"result": claim, "claimed_at": time.time()}) else None
    )


def _one_guard(params: dict[str, Any]) -> dict[str, Any]:
    if params.get("expect_claim") is not None and params.get("only_if_unclaimed"):
        raise InvalidInputError("expect_claim and only_if_unclaimed exclude each other")
    return params


@takes(
    _one_guard,
    control_id=check_text,
    result=check_text,
    expect_claim=optional(check_text),
    only_if_unclaimed=flag,
)
def finalize_session_control(
    conn: Connection,
    /,
    control_id: str,
    *,
    result: str,
    expect_claim: str | None = None,
    only_if_unclaimed: bool = False,
) -> bool:
    """Settle a control under a guard; False if it is missing or the guard does not hold."""
    key: dict[str, Any] = {"id": control_id}
    if expect_claim is not None or only_if_unclaimed:
        key["result"] = expect_claim
    return bool(update_rows(conn, session_controls, key, {"result": result, "applied_at": time.time()}))


@takes(control_id=check_text, outcome=check_text, actor=optional(check_text))
def resolve_claimed_session_control(
    conn: Connection, /, control_id: str, *, outcome: str, actor: str | None = None
) -> str | None:
    """Settle a control whose claimant never reported back; the stored result, None if it is not claimed."""
    row = lock_row(conn, session_controls, id=control_id)
    claim = row["result"] if row is not None else None
    if not isinstance(claim, str) or not claim.startswith(_CLAIM):
        return None
    result = (
        f"{outcome}: resolved by {actor or 'an unnamed operator'} after the claim {claim!r} was taken and never"
        " reported back"
    )
    changes = {"result": result, "applied_at": time.time()}
    return result if update_rows(conn, session_controls, {"id": control_id, "result": claim}, changes) else None
