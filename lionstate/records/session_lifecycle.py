"""Changes of sessions and branches that concern their status or their invocation.

Contract: ADR-0055 D1; reference §2.1.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from typing import Any, Unpack

from sqlalchemy import Connection, case, or_, select

from lionstate.engine import Refused
from lionstate.errors import InvalidInputError
from lionstate.records.arguments import optional, page_limit, saying, takes, texts
from lionstate.records.rows import all_rows, filtered, lock_row, page, update_rows
from lionstate.records.schemas import choice, nullable
from lionstate.records.sessions import INVOCATION_KINDS, SOURCE_KINDS
from lionstate.records.status import StatusReason, change_record, record_changes
from lionstate.records.status_vocabulary import ENTITIES
from lionstate.records.values import check_choice, check_text, encoded_json, finite_number
from lionstate.schema.conversation import branches, sessions
from lionstate.schema.execution import invocations
from lionstate.schema.types import RawJson

__all__ = [
    "SessionChanges",
    "attach_session_invocation",
    "finalize_branch",
    "sessions_by_source_kind",
    "update_session",
]


class _Override(StatusReason, total=False):
    """How a terminal status is left."""

    override: bool
    override_actor: str | None
    override_justification: str | None


class SessionChanges(_Override, total=False):
    """What ``update_session`` may change; a status takes its reason along."""

    agent_hash: str | None
    agent_name: str | None
    artifact_contract_json: Mapping[str, Any] | None
    artifacts_path: str | None
    cc_session_id: str | None
    current_phase: str | None
    duration_ms: float | None
    effort: str | None
    ended_at: float | None
    first_msg_id: str | None
    input_tokens: int | None
    invocation_id: str | None
    invocation_kind: str | None
    last_message_at: float | None
    last_msg_id: str | None
    model: str | None
    name: str | None
    node_metadata: Mapping[str, Any] | str | None
    num_turns: int | None
    output_tokens: int | None
    playbook_name: str | None
    project: str | None
    project_source: str | None
    provider: str | None
    run_id: str | None
    show_play_name: str | None
    show_topic: str | None
    source_kind: str | None
    started_at: float | None
    status: str | None
    total_cost_usd: float | None
    updated_at: float
    user: str | None


_WRITABLE = SessionChanges.__annotations__.keys() - _Override.__annotations__.keys()


@saying({"invocation_kind": nullable(choice(INVOCATION_KINDS)), "source_kind": nullable(choice(SOURCE_KINDS))})
def _vocabularies(params: dict[str, Any]) -> dict[str, Any]:
    check_choice("invocation_kind", params.get("invocation_kind"), INVOCATION_KINDS)
    check_choice("source_kind", params.get("source_kind"), SOURCE_KINDS)
    unknown = set(params.get("set_if_null", ())) - _WRITABLE
    if unknown:
        raise InvalidInputError(f"set_if_null names no column that can be written: {', '.join(sorted(unknown))}")
    return params


def _metadata(name: str, value: Any) -> Any:
    """A mapping, or its JSON text as LionAGI's callers hand it over."""
    return encoded_json(name, RawJson(value) if isinstance(value, str) else value)


@takes(
    record_changes("session", "session_id", _WRITABLE),
    _vocabularies,
    session_id=check_text,
    set_if_null=texts,
    node_metadata=_metadata,
)
def update_session(
    conn: Connection, /, session_id: str, *, set_if_null: Collection[str] = (), **changes: Unpack[SessionChanges]
) -> Refused | None:
    """Change columns, some only where nothing is stored; a status goes through ``update_status``."""
    given: dict[str, Any] = dict(changes)
    row = lock_row(conn, sessions, id=session_id) if set_if_null else None
    if row is not None:
        filled = {name for name in given.keys() & set(set_if_null) if row[name] is not None}
        given = {name: value for name, value in given.items() if name not in filled}
        if filled:
            given.setdefault("updated_at", None)
    return change_record(conn, "session", session_id, given)


@takes(branch_id=check_text, status=check_text, ended_at=optional(finite_number))
def finalize_branch(conn: Connection, /, branch_id: str, *, status: str, ended_at: float | None = None) -> bool:
    """End a branch that has no status or runs; False if it has ended, is missing, or the status is not terminal."""
    if status not in ENTITIES["session"].terminal:
        return False
    unended = or_(branches.c.status.is_(None), branches.c.status == "running")
    changes = {"status": status, "ended_at": time.time() if ended_at is None else ended_at}
    return bool(update_rows(conn, branches, {"id": branch_id}, changes, [unended]))


@takes(session_id=check_text, invocation_id=check_text)
def attach_session_invocation(conn: Connection, /, session_id: str, invocation_id: str) -> None:
    """Point a session at an invocation and keep both counts of sessions in step; a missing session is silent."""
    session = lock_row(conn, sessions, id=session_id)
    if session is None or session["invocation_id"] == invocation_id:
        return
    now, before = time.time(), session["invocation_id"]
    update_rows(conn, sessions, {"id": session_id}, {"invocation_id": invocation_id, "updated_at": now})
    # In one order, so that two sessions that change places do not wait for each other.
    for found in sorted({invocation_id, before} - {None}):
        count = invocations.c.session_count + (1 if found == invocation_id else -1)
        update_rows(
            conn, invocations, {"id": found}, {"session_count": case((count < 0, 0), else_=count), "updated_at": now}
        )


@takes(source_kind=check_text, after_id=optional(check_text), limit=page_limit)
def sessions_by_source_kind(
    conn: Connection, /, source_kind: str, *, after_id: str | None = None, limit: int = 1000
) -> list[dict[str, Any]]:
    """A page of the ids and metadata of sessions of one kind, in the order of their ids."""
    found = filtered(select(sessions.c.id, sessions.c.node_metadata), sessions, source_kind=source_kind)
    if after_id is not None:
        found = found.where(sessions.c.id > after_id)
    return all_rows(conn, page(found.order_by(sessions.c.id), limit))
