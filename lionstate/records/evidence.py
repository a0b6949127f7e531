"""Artifacts and the audit trail.

Contract: ADR-0055 D4.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, insert, or_, select, update

from lionstate import audit
from lionstate.dialects import dialect_of
from lionstate.errors import InvalidInputError
from lionstate.records.arguments import optional, page_limit, page_offset, takes
from lionstate.records.rows import all_rows, page
from lionstate.records.values import MAX_PAGE, check_text, encoded_json
from lionstate.schema.evidence import admin_events, artifacts
from lionstate.schema.types import encode_json

__all__ = [
    "check_artifact",
    "check_event",
    "get_artifact",
    "insert_admin_event",
    "insert_artifact",
    "list_admin_events",
    "list_artifacts_for_invocation",
    "list_artifacts_for_session",
]


def check_artifact(params: Mapping[str, Any]) -> dict[str, Any]:
    """Check and encode the parameters of ``insert_artifact``.

    Raises:
        InvalidInputError: ``kind`` or ``name`` is empty, or a value has no stored form.
    """
    found = dict(params)
    for name in ("kind", "name"):
        if not check_text(name, found[name]):
            raise InvalidInputError(f"{name} is empty")
    for name in ("invocation_id", "session_id", "file_path"):
        if found.get(name) is not None:
            check_text(name, found[name])
    found["content"] = encoded_json("content", found["content"])
    return found


def _same_key(invocation_id: str | None, session_id: str | None, kind: str, name: str) -> ColumnElement[bool]:
    """The natural key in its four shapes: an absent parent is part of it."""
    columns = artifacts.c
    invocation = columns.invocation_id.is_(None) if invocation_id is None else columns.invocation_id == invocation_id
    session = columns.session_id.is_(None) if session_id is None else columns.session_id == session_id
    return invocation & session & (columns.kind == kind) & (columns.name == name)


def insert_artifact(
    conn: Connection,
    /,
    *,
    kind: str,
    name: str,
    content: Mapping[str, Any],
    invocation_id: str | None = None,
    session_id: str | None = None,
    file_path: str | None = None,
) -> str:
    """Insert an artifact or update the one with its natural key; return the row's id.

    Contract: ADR-0055 D4 (lookup, then write; a race is left to the unique indexes).
    """
    parents = {"invocation_id": invocation_id, "session_id": session_id}
    given = check_artifact({"kind": kind, "name": name, "content": content, "file_path": file_path, **parents})
    now = time.time()
    values = {"content": given["content"], "file_path": file_path, "updated_at": now}
    key = select(artifacts.c.id).where(_same_key(invocation_id, session_id, kind, name))
    found = conn.execute(key).scalar()
    if found is not None:
        conn.execute(update(artifacts).where(artifacts.c.id == found).values(values))
        return str(found)
    artifact_id = uuid.uuid4().hex[:12]
    row = {"id": artifact_id, "created_at": now, "kind": kind, "name": name, **parents, **values}
    conn.execute(insert(artifacts).values(row))
    return artifact_id


@takes(artifact_id=check_text)
def get_artifact(conn: Connection, /, artifact_id: str) -> dict[str, Any] | None:
    """One artifact; None if it is missing.

    Contract: ADR-0055 D4.
    """
    row = conn.execute(select(artifacts).where(artifacts.c.id == artifact_id)).mappings().first()
    return None if row is None else dict(row)


def _artifacts_where(condition: ColumnElement[bool]) -> Select[Any]:
    return select(artifacts).where(condition).order_by(artifacts.c.created_at, artifacts.c.id)


@takes(invocation_id=check_text, limit=page_limit, offset=page_offset)
def list_artifacts_for_invocation(
    conn: Connection, /, invocation_id: str, *, limit: int = MAX_PAGE, offset: int = 0
) -> list[dict[str, Any]]:
    """One page of the artifacts of an invocation, oldest first.

    Contract: ADR-0055 D4.
    """
    return all_rows(conn, page(_artifacts_where(artifacts.c.invocation_id == invocation_id), limit, offset))


@takes(session_id=check_text, limit=page_limit, offset=page_offset)
def list_artifacts_for_session(
    conn: Connection, /, session_id: str, *, limit: int = MAX_PAGE, offset: int = 0
) -> list[dict[str, Any]]:
    """One page of the artifacts of a session, oldest first.

    Contract: ADR-0055 D4.
    """
    return all_rows(conn, page(_artifacts_where(artifacts.c.session_id == session_id), limit, offset))


def check_event(params: Mapping[str, Any]) -> dict[str, Any]:
    """Check and encode the parameters of ``insert_admin_event``."""
    found = dict(params)
    check_text("action", found["action"])
    for name in ("target_id", "actor"):
        if found.get(name) is not None:
            check_text(name, found[name])
    found["details"] = encoded_json("details", found["details"])
    return found


def insert_admin_event(
    conn: Connection,
    /,
    *,
    action: str,
    details: Mapping[str, Any],
    target_id: str | None = None,
    actor: str = "admin",
) -> str:
    """Insert one event of the audit trail; return its id.

    Contract: ADR-0055 D1.
    """
    given = check_event({"action": action, "details": details, "target_id": target_id, "actor": actor})
    return audit.insert_admin_event(conn, **given)


@takes(action=optional(check_text), target_id=optional(check_text), limit=page_limit, offset=page_offset)
def list_admin_events(
    conn: Connection, /, *, action: str | None = None, target_id: str | None = None, limit: int = 100, offset: int = 0
) -> list[dict[str, Any]]:
    """One page of events, newest first; ``target_id`` also finds events whose details hold the id as a JSON text.

    Cost: with a ``target_id`` the whole table.
    Contract: ADR-0055 D1; reference §2.6, §4 rows 15 and 16.
    """
    query = select(admin_events).order_by(admin_events.c.created_at.desc(), admin_events.c.id.desc())
    if action is not None:
        query = query.where(admin_events.c.action == action)
    if target_id is not None:
        named = dialect_of(conn).text_holds(admin_events.c.details, encode_json(target_id))
        query = query.where(or_(admin_events.c.target_id == target_id, named))
    return all_rows(conn, page(query, limit, offset))
