"""Runs of engines and where they came from.

Contract: ADR-0055 D1; reference §2.5.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Connection, select, tuple_

from lionstate.errors import InvalidInputError
from lionstate.records.arguments import json_value, mapping, optional, page_limit, page_offset, takes, words
from lionstate.records.rows import all_rows, filtered, get_row, insert_row, newest_first, page, update_rows
from lionstate.records.values import check_text, finite_number
from lionstate.schema.control import engine_runs

__all__ = [
    "get_engine_run",
    "insert_engine_run",
    "list_engine_run_summaries",
    "list_engine_runs",
    "record_engine_run_outcome",
    "set_engine_run_lineage",
    "update_engine_run",
]

_STATUSES = ("running", "completed", "failed", "cancelled")
_filters = {name: optional(check_text) for name in ("kind", "status", "session_id")}


@takes(
    run_id=check_text,
    kind=check_text,
    spec_json=mapping,
    started_at=finite_number,
    session_id=optional(check_text),
)
def insert_engine_run(
    conn: Connection,
    /,
    *,
    run_id: str,
    kind: str,
    spec_json: Mapping[str, Any],
    started_at: float,
    session_id: str | None = None,
) -> None:
    """Insert a running run; an id that exists raises."""
    row = {"id": run_id, "kind": kind, "spec_json": spec_json, "started_at": started_at, "session_id": session_id}
    insert_row(conn, engine_runs, {**row, "status": "running"})


@takes(
    run_id=check_text,
    status=words(_STATUSES),
    ended_at=optional(finite_number),
    export_dir=optional(check_text),
    error=optional(check_text),
)
def update_engine_run(
    conn: Connection,
    /,
    run_id: str,
    *,
    status: str,
    ended_at: float | None = None,
    export_dir: str | None = None,
    error: str | None = None,
) -> None:
    """Overwrite status, end, export folder and error; a missing run is silent."""
    changes = {"status": status, "ended_at": ended_at, "export_dir": export_dir, "error": error}
    update_rows(conn, engine_runs, {"id": run_id}, changes)


_lineage = {name: optional(check_text) for name in ("invocation_id", "signal_session_id", "parent_session_id")}


@takes(run_id=check_text, **_lineage)
def set_engine_run_lineage(
    conn: Connection,
    /,
    run_id: str,
    *,
    invocation_id: str | None,
    signal_session_id: str | None,
    parent_session_id: str | None,
) -> None:
    """Overwrite where a run came from; a missing run is silent, a missing parent raises."""
    changes = {
        "invocation_id": invocation_id,
        "signal_session_id": signal_session_id,
        "parent_session_id": parent_session_id,
    }
    update_rows(conn, engine_runs, {"id": run_id}, changes)


@takes(run_id=check_text, outcome_json=json_value)
def record_engine_run_outcome(conn: Connection, /, run_id: str, outcome_json: Mapping[str, Any]) -> None:
    """Overwrite a run's outcome; a missing run is silent."""
    update_rows(conn, engine_runs, {"id": run_id}, {"outcome_json": outcome_json})


@takes(run_id=check_text)
def get_engine_run(conn: Connection, /, run_id: str) -> dict[str, Any] | None:
    """The row or None."""
    return get_row(conn, engine_runs, id=run_id)


@takes(**_filters, limit=page_limit, offset=page_offset)
def list_engine_runs(
    conn: Connection,
    /,
    *,
    kind: str | None = None,
    status: str | None = None,
    session_id: str | None = None,
    limit: int = 100,
    offset: int = 0,
) -> list[dict[str, Any]]:
    """A page of runs, last started first."""
    found = newest_first(engine_runs, "started_at", kind=kind, status=status, session_id=session_id)
    return all_rows(conn, page(found, limit, offset))


def _whole_cursor(params: dict[str, Any]) -> dict[str, Any]:
    if (params.get("before_started_at") is None) != (params.get("before_id") is None):
        raise InvalidInputError("before_started_at and before_id belong together")
    return params


_BULKY = ("spec_json", "export_dir", "error")
_SUMMARY = select(
    *(column for column in engine_runs.c if column.name not in _BULKY),
    engine_runs.c.export_dir.is_not(None).label("has_output"),
    engine_runs.c.error.is_not(None).label("has_error"),
).order_by(engine_runs.c.started_at.desc(), engine_runs.c.id.desc())


@takes(
    _whole_cursor,
    **_filters,
    before_started_at=optional(finite_number),
    before_id=optional(check_text),
    limit=page_limit,
)
def list_engine_run_summaries(
    conn: Connection,
    /,
    *,
    kind: str | None = None,
    status: str | None = None,
    session_id: str | None = None,
    before_started_at: float | None = None,
    before_id: str | None = None,
    limit: int = 100,
) -> list[dict[str, Any]]:
    """A page of runs without their bulky columns, last started first, by keyset."""
    found = filtered(_SUMMARY, engine_runs, kind=kind, status=status, session_id=session_id)
    if before_id is not None:
        found = found.where(tuple_(engine_runs.c.started_at, engine_runs.c.id) < tuple_(before_started_at, before_id))
    return [
        {**row, **{name: bool(row[name]) for name in ("has_output", "has_error")}}
        for row in all_rows(conn, page(found, limit))
    ]
