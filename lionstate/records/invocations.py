"""Invocations: one run of a skill and what came of it.

Contract: ADR-0055 D1; reference §2.2.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Final, Unpack

from sqlalchemy import Column, Connection, ScalarSelect, Table, func, select, tuple_

from lionstate.engine import Refused
from lionstate.errors import InvalidInputError
from lionstate.records.arguments import optional, page_limit, page_offset, row_of, takes, texts
from lionstate.records.metadata_merge import check_patch, merge_node_metadata
from lionstate.records.rows import all_rows, count_rows, filtered, first_of_each, get_row, insert_ignore_row, page
from lionstate.records.sessions import session_rows
from lionstate.records.shows import status_of
from lionstate.records.status import StatusReason, change_record, record_changes, record_initial_status
from lionstate.records.values import check_text, finite_number
from lionstate.schema.conversation import sessions
from lionstate.schema.execution import invocations
from lionstate.schema.scheduling import schedule_runs

__all__ = [
    "MOST_SESSIONS",
    "InvocationChanges",
    "count_invocations",
    "create_invocation",
    "get_invocation",
    "list_invocations",
    "list_running_invocations_for_reaping",
    "list_sessions_for_invocation",
    "list_sessions_for_invocations",
    "merge_invocation_node_metadata",
    "update_invocation",
]


class InvocationChanges(StatusReason, total=False):
    """What ``update_invocation`` may change; a status takes its reason along."""

    skill: str
    plugin: str | None
    prompt: str | None
    started_at: float
    ended_at: float | None
    status: str
    session_count: int
    updated_at: float
    node_metadata: Mapping[str, Any] | None


WRITABLE = InvocationChanges.__annotations__.keys() - StatusReason.__annotations__.keys()
MOST_SESSIONS: Final = 10_000
_COLUMNS = WRITABLE | {"id", "created_at"}
_row = row_of(invocations, _COLUMNS, ("id", "skill", "started_at"))


@takes(status_of("invocation"), invocation=_row)
def create_invocation(conn: Connection, /, invocation: Mapping[str, Any]) -> None:
    """Insert an invocation and its first history row; an id that exists stays as it is."""
    now = time.time()
    row = {"status": "running", "created_at": now, "updated_at": now, **invocation}
    if insert_ignore_row(conn, invocations, row):
        record_initial_status(conn, "invocation", row["id"], row["status"], actor="create_invocation", now=now)


@takes(invocation_id=check_text)
def get_invocation(conn: Connection, /, invocation_id: str) -> dict[str, Any] | None:
    """The row or None."""
    return get_row(conn, invocations, id=invocation_id)


def _latest(table: Table, column: str, *order: Any) -> ScalarSelect[Any]:
    """One column of the latest row of ``table`` that names the invocation; seeks the index on it."""
    of_invocation = table.c.invocation_id == invocations.c.id
    statement = select(table.c[column]).where(of_invocation).order_by(*order, table.c.id.desc()).limit(1)
    return statement.correlate(invocations).scalar_subquery()


def _descending(column: Column[Any]) -> Any:
    return func.coalesce(column, 0).desc()


_BY_SESSION = (_descending(sessions.c.updated_at), _descending(sessions.c.created_at))
_BY_RUN = (_descending(schedule_runs.c.created_at),)
_LISTED = select(
    invocations,
    _latest(sessions, "project", *_BY_SESSION).label("project"),
    _latest(sessions, "project_source", *_BY_SESSION).label("project_source"),
    _latest(schedule_runs, "exit_code", *_BY_RUN).label("schedule_run_exit_code"),
    _latest(schedule_runs, "error_detail", *_BY_RUN).label("schedule_run_error_detail"),
    _latest(schedule_runs, "action_kind", *_BY_RUN).label("action_kind"),
).order_by(invocations.c.updated_at.desc(), invocations.c.id.desc())
_filters = {name: optional(check_text) for name in ("skill", "plugin", "status")}


@takes(limit=page_limit, offset=page_offset, **_filters)
def list_invocations(
    conn: Connection,
    /,
    *,
    skill: str | None = None,
    plugin: str | None = None,
    status: str | None = None,
    limit: int = 100,
    offset: int = 0,
) -> list[dict[str, Any]]:
    """A page of invocations, last changed first, each with facts of its latest session and schedule run."""
    statement = filtered(_LISTED, invocations, skill=skill, plugin=plugin, status=status)
    return all_rows(conn, page(statement, limit, offset))


@takes(**_filters)
def count_invocations(
    conn: Connection, /, *, skill: str | None = None, plugin: str | None = None, status: str | None = None
) -> int:
    """How many invocations match."""
    return count_rows(conn, invocations, skill=skill, plugin=plugin, status=status)


@takes(record_changes("invocation", "invocation_id", WRITABLE), invocation_id=check_text)
def update_invocation(conn: Connection, /, invocation_id: str, **changes: Unpack[InvocationChanges]) -> Refused | None:
    """Change columns; a status goes through ``update_status``."""
    return change_record(conn, "invocation", invocation_id, changes)


@takes(invocation_id=check_text, patch=check_patch)
def merge_invocation_node_metadata(conn: Connection, /, invocation_id: str, patch: Mapping[str, Any]) -> None:
    """Merge a patch into the stored metadata (RFC 7396)."""
    merge_node_metadata(conn, invocations, invocation_id, patch)


def _whole_cursor(params: dict[str, Any]) -> dict[str, Any]:
    if (params.get("after_started_at") is None) != (params.get("after_id") is None):
        raise InvalidInputError("after_started_at and after_id belong together")
    return params


@takes(_whole_cursor, limit=page_limit, after_started_at=optional(finite_number), after_id=optional(check_text))
def list_running_invocations_for_reaping(
    conn: Connection, /, *, limit: int = 500, after_started_at: float | None = None, after_id: str | None = None
) -> list[dict[str, Any]]:
    """A page of running invocations, oldest start first."""
    keys = (invocations.c.started_at, invocations.c.id)
    statement = select(invocations).where(invocations.c.status == "running").order_by(*keys)
    if after_id is not None:
        statement = statement.where(tuple_(*keys) > tuple_(after_started_at, after_id))
    return all_rows(conn, page(statement, limit))


@takes(invocation_ids=texts, limit=page_limit)
def list_sessions_for_invocations(
    conn: Connection, /, invocation_ids: Sequence[str], *, limit: int = 1000
) -> dict[str, list[dict[str, Any]]]:
    """The sessions of several invocations, oldest first, at most ``limit`` for each and a bound for all."""
    found: dict[str, list[dict[str, Any]]] = {invocation_id: [] for invocation_id in invocation_ids}
    if not found:
        return found
    order = (sessions.c.created_at, sessions.c.id)
    statement = first_of_each(conn, sessions.c, sessions.c.invocation_id, found, order=order, limit=limit)
    rows = session_rows(conn, statement.limit(MOST_SESSIONS + 1))
    if len(rows) > MOST_SESSIONS:
        raise InvalidInputError(f"more than {MOST_SESSIONS} sessions: ask for fewer invocations, or for fewer of each")
    for row in rows:
        found[row["invocation_id"]].append(row)
    return found


@takes(invocation_id=check_text, limit=page_limit, offset=page_offset)
def list_sessions_for_invocation(
    conn: Connection, /, invocation_id: str, *, limit: int = 1000, offset: int = 0
) -> list[dict[str, Any]]:
    """One page of the sessions of one invocation, oldest first."""
    found = filtered(select(sessions), sessions, invocation_id=invocation_id)
    return session_rows(conn, page(found.order_by(sessions.c.created_at, sessions.c.id), limit, offset))
