"""Sessions: creation and reads."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final

from sqlalchemy import Connection, Select, func, select, update

from lionstate.dialects import dialect_of
from lionstate.records.arguments import optional, page_limit, page_offset, takes
from lionstate.records.projects import DEFAULT_SOURCE, note_project
from lionstate.records.rows import page
from lionstate.records.schemas import choice, merged, nullable, row_schema
from lionstate.records.status import record_initial_status
from lionstate.records.status_vocabulary import ENTITIES
from lionstate.records.tombstones import refuse_deleted
from lionstate.records.values import MAX_PAGE, CheckedRow, check_choice, check_text, checked_row
from lionstate.schema.conversation import sessions
from lionstate.schema.execution import invocations

__all__ = [
    "INVOCATION_KINDS",
    "SESSION_SCHEMA",
    "SOURCE_KINDS",
    "checked_session",
    "count_sessions",
    "create_session",
    "get_session",
    "get_session_by_cc_id",
    "get_sessions_for_run",
    "list_sessions",
    "session_rows",
]

INVOCATION_KINDS: Final = frozenset({"agent", "play", "flow", "fanout", "show-play", "engine"})
SOURCE_KINDS: Final = frozenset({"live", "imported_fs", "imported_codex"})
# What a caller may not choose: derived, or written with an audited status change.
_DERIVED: Final = frozenset(
    {"ended_at_is_approximate", "status_reason_code", "status_reason_summary", "status_evidence_refs"}
)
_GIVEN: Final = tuple(column.name for column in sessions.columns if column.name not in _DERIVED)
# Columns whose absence the stores in the field write as JSON null rather than leave out.
_ALWAYS: Final = ("node_metadata", "artifact_contract_json", "artifact_verification_json")


SESSION_SCHEMA: Final = merged(
    row_schema(sessions, _GIVEN, ("id", "progression_id")),
    {
        "properties": {
            "status": nullable(choice(ENTITIES["session"].statuses)),
            "invocation_kind": nullable(choice(INVOCATION_KINDS)),
            "source_kind": nullable(choice(SOURCE_KINDS)),
        }
    },
)


def checked_session(session: Mapping[str, Any]) -> CheckedRow:
    """Check a session that is to be created.

    Raises:
        InvalidInputError: ``id`` or ``progression_id`` is missing, a word is outside its vocabulary, or a value has
            no stored form.
    """
    if isinstance(session, CheckedRow):
        return session
    row = checked_row("session", sessions, _GIVEN, session, required=("id", "progression_id"))
    check_choice("status", row.get("status"), ENTITIES["session"].statuses)
    check_choice("invocation_kind", row.get("invocation_kind"), INVOCATION_KINDS)
    check_choice("source_kind", row.get("source_kind"), SOURCE_KINDS)
    return row


def _completed(row: Mapping[str, Any], now: float) -> dict[str, Any]:
    """Fill in the defaults of a new row."""
    full = {**dict.fromkeys(_ALWAYS), **row}
    for name in ("created_at", "updated_at"):
        full[name] = now if full.get(name) is None else full[name]
    if full.get("source_kind") is None:
        full["source_kind"] = "live"
    started = full.get("started_at")
    if full.get("last_message_at") is None:
        full["last_message_at"] = now if started is None else started
    if full.get("status") in ENTITIES["session"].terminal:
        _end(full, started)
    return full


def _end(full: dict[str, Any], started: float | None) -> None:
    """A session that is born terminal has an end: the measured one, or the latest time that is known of it."""
    if full.get("ended_at") is None:
        times = (full["updated_at"], full["last_message_at"], started, full["created_at"])
        full["ended_at"] = max(found for found in times if found is not None)
        full["ended_at_is_approximate"] = 1
        full["duration_ms"] = None
    elif started is not None and full.get("duration_ms") is None:
        full["duration_ms"] = max(0.0, (full["ended_at"] - started) * 1000.0)


def create_session(conn: Connection, /, session: Mapping[str, Any]) -> None:
    """Create a session; an existing id is left untouched.

    Contract: ADR-0055 D1; reference §2.1; design decision 18.
    """
    row = checked_session(session)
    now = time.time()
    refuse_deleted(conn, row["progression_id"])
    created = conn.execute(dialect_of(conn).insert_ignore(sessions).values(_completed(row, now))).rowcount
    if not created:
        return
    record_initial_status(conn, "session", row["id"], row.get("status"), actor="create_session", now=now)
    if (invocation := row.get("invocation_id")) is not None:
        conn.execute(
            update(invocations)
            .where(invocations.c.id == invocation)
            .values(session_count=invocations.c.session_count + 1, updated_at=now)
        )
    if (project := row.get("project")) is not None:
        note_project(conn, project, row.get("project_source") or DEFAULT_SOURCE, now=now)


def session_rows(conn: Connection, /, query: Select[Any]) -> list[dict[str, Any]]:
    """Rows of a query of whole sessions, decoded."""
    found = [dict(row) for row in conn.execute(query).mappings()]
    for row in found:
        row["ended_at_is_approximate"] = bool(row["ended_at_is_approximate"])
    return found


@takes(session_id=check_text)
def get_session(conn: Connection, /, session_id: str) -> dict[str, Any] | None:
    """One session; None if it is missing.

    Contract: ADR-0055 D1.
    """
    rows = session_rows(conn, select(sessions).where(sessions.c.id == session_id))
    return rows[0] if rows else None


@takes(cc_session_id=check_text)
def get_session_by_cc_id(conn: Connection, /, cc_session_id: str) -> dict[str, Any] | None:
    """The session of an outer transcript id, the oldest of several; None if there is none.

    Contract: ADR-0055 D1.
    """
    query = select(sessions).where(sessions.c.cc_session_id == cc_session_id)
    rows = session_rows(conn, query.order_by(sessions.c.created_at, sessions.c.id).limit(1))
    return rows[0] if rows else None


@takes(run_id=check_text, limit=page_limit, offset=page_offset)
def get_sessions_for_run(
    conn: Connection, /, run_id: str, *, limit: int = MAX_PAGE, offset: int = 0
) -> list[dict[str, Any]]:
    """One page of the sessions of a run, oldest first.

    Contract: ADR-0055 D1.
    """
    query = select(sessions).where(sessions.c.run_id == run_id)
    return session_rows(conn, page(query.order_by(sessions.c.created_at, sessions.c.id), limit, offset))


@takes(status=optional(check_text), limit=page_limit, offset=page_offset)
def list_sessions(
    conn: Connection, /, *, status: str | None = None, limit: int = 100, offset: int = 0
) -> list[dict[str, Any]]:
    """One page of sessions, the most recently updated first.

    Contract: ADR-0055 D1.
    """
    query = select(sessions).order_by(sessions.c.updated_at.desc(), sessions.c.id.desc()).limit(limit).offset(offset)
    return session_rows(conn, query if status is None else query.where(sessions.c.status == status))


@takes(status=optional(check_text))
def count_sessions(conn: Connection, /, *, status: str | None = None) -> int:
    """How many sessions there are, in one status or in all.

    Contract: ADR-0055 D1.
    """
    query = select(func.count()).select_from(sessions)
    if status is not None:
        query = query.where(sessions.c.status == status)
    return int(conn.execute(query).scalar_one())
