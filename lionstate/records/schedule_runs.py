"""Runs of schedules: what fired, in one transaction with the schedule's cursor where it stands for a due instant.

Contract: ADR-0055 D1; reference §2.3, §2.8.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Unpack

from sqlalchemy import Connection, select

from lionstate.engine import Refused
from lionstate.errors import InvalidInputError
from lionstate.records.arguments import optional, page_limit, page_offset, row_of, takes, texts
from lionstate.records.cursor_claims import NO_CURSOR_CLAIM, NoCursorClaim, claimed, claims
from lionstate.records.rows import all_rows, by_id, first_row, get_row, insert_row, lock_row, newest_first, page
from lionstate.records.schedule_audit import check_audit_context, reason_record
from lionstate.records.schedules import change_schedule, check_schedule_changes, reason_fits
from lionstate.records.schemas import choice, described, merged, nullable, schema_of
from lionstate.records.status import (
    StatusReason,
    change_record,
    record_changes,
    record_initial_status,
    references,
    write_status,
)
from lionstate.records.status_vocabulary import ENTITIES
from lionstate.records.values import CheckedRow, check_choice, check_text, encoded_json, finite_number, require_keys
from lionstate.schema.scheduling import schedule_runs, schedules

__all__ = [
    "ScheduleRunChanges",
    "create_schedule_run",
    "create_schedule_run_and_advance",
    "get_schedule_run",
    "get_schedule_run_by_invocation",
    "insert_run",
    "list_dispatched_running_schedule_runs",
    "list_running_schedule_runs",
    "list_schedule_runs",
    "list_undispatched_schedule_runs",
    "schedule_run_exists_since",
    "statuses",
    "tombstone_and_replace_schedule_run",
    "update_schedule_run",
]


class ScheduleRunChanges(StatusReason, total=False):
    """What ``update_schedule_run`` may change; a status takes its reason along."""

    status: str
    exit_code: int | None
    ended_at: float | None
    error_detail: str | None
    invocation_id: str | None
    dispatched_at: float | None
    resume_packet: Any


RUN = ENTITIES["schedule_run"]
_WRITABLE = ScheduleRunChanges.__annotations__.keys() - StatusReason.__annotations__.keys()
_REQUIRED = ("id", "action_kind", "fired_at")
_GIVEN = ("schedule_id", "trigger_context", "action_args")
_OTHERS = "invocation_id status exit_code chain_parent_id chain_depth ended_at error_detail created_at"
_row = row_of(schedule_runs, {*_REQUIRED, *_GIVEN, *_OTHERS.split()}, _REQUIRED)
_UNDISPATCHED = "undispatched schedule run replaced during recovery"


@described(
    merged(
        schema_of(_row) or {},
        {"properties": {"status": nullable(choice(RUN.statuses))}, "required": sorted({*_REQUIRED, *_GIVEN})},
    )
)
def _run(name: str, value: Any) -> CheckedRow:
    if isinstance(value, CheckedRow):
        return value
    if isinstance(value, Mapping):
        require_keys(name, value, (*_REQUIRED, *_GIVEN))
    row: CheckedRow = _row(name, value)
    # None is a JSON value here, not the lack of one.
    row.update({key: encoded_json(key, None) for key in ("trigger_context", "action_args") if value[key] is None})
    check_choice("status", row.get("status"), RUN.statuses)
    return row


def statuses(name: str, value: Any) -> list[str]:
    """One status or several."""
    return texts(name, [value] if isinstance(value, str) else value)


def insert_run(conn: Connection, /, row: Mapping[str, Any], *, actor: str, now: float) -> None:
    """Insert a checked run with its first row of history."""
    full = {"status": "running", "created_at": now, **row}
    if full["status"] == "queued" and full["schedule_id"] is None:
        # The place in the queue; without one no worker would find it.
        full.setdefault("queued_at", full["created_at"])
    insert_row(conn, schedule_runs, full)
    record_initial_status(conn, "schedule_run", full["id"], full["status"], actor=actor, now=now)


@takes(run=_run)
def create_schedule_run(conn: Connection, /, run: Mapping[str, Any]) -> None:
    """Insert a run with its first row of history; an id that exists raises."""
    insert_run(conn, run, actor="create_schedule_run", now=time.time())


_check_fields = check_schedule_changes()


def _schedule_fields(name: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise InvalidInputError(f"{name} must be a mapping, not {type(value).__name__}")
    checked: dict[str, Any] = _check_fields(dict(value))
    return checked


def _advance_reason_fits(params: dict[str, Any]) -> dict[str, Any]:
    reason_fits({**params["schedule_fields"], "reason": params.get("reason")})
    return params


@takes(
    _advance_reason_fits,
    run=_run,
    schedule_id=check_text,
    schedule_fields=_schedule_fields,
    expect_next_fire_at=claimed(finite_number),
    expect_github_cursor=claimed(check_text),
    audit_context=optional(check_audit_context),
    reason=optional(reason_record),
)
def create_schedule_run_and_advance(
    conn: Connection,
    /,
    run: Mapping[str, Any],
    *,
    schedule_id: str,
    schedule_fields: Mapping[str, Any],
    expect_next_fire_at: float | NoCursorClaim | None,
    expect_github_cursor: str | NoCursorClaim | None = NO_CURSOR_CLAIM,
    audit_context: Mapping[str, Any] | None = None,
    reason: Mapping[str, Any] | None = None,
) -> bool:
    """Move a schedule's cursors under their claims and insert the run; False, nothing written, if a claim is lost."""
    now = time.time()
    advanced = change_schedule(
        conn,
        schedule_id,
        schedule_fields,
        claims(schedules, next_fire_at=expect_next_fire_at, github_cursor=expect_github_cursor),
        guard_cursor_forward=True,
        reason=reason,
        context=check_audit_context("audit_context", audit_context),
        now=now,
    )
    if advanced:
        insert_run(conn, run, actor="create_schedule_run_and_advance", now=now)
    return advanced


def _unfinished(name: str, value: Any) -> Any:
    check_choice(name, value, RUN.statuses - RUN.terminal, optional=False)
    return value


@takes(
    orphan_id=check_text,
    replacement_run=_run,
    expected_orphan_status=_unfinished,
    reason_summary=check_text,
    evidence_refs=optional(references),
)
def tombstone_and_replace_schedule_run(
    conn: Connection,
    /,
    orphan_id: str,
    replacement_run: Mapping[str, Any],
    *,
    expected_orphan_status: str = "running",
    reason_summary: str = _UNDISPATCHED,
    evidence_refs: Sequence[Mapping[str, Any]] | None = None,
) -> bool:
    """Fail a run that was never dispatched and insert its replacement; False, nothing written, if it was."""
    orphan = lock_row(conn, schedule_runs, id=orphan_id)
    if orphan is None or orphan["status"] != expected_orphan_status or orphan["dispatched_at"] is not None:
        return False
    now, actor = time.time(), "tombstone_and_replace_schedule_run"
    write_status(
        conn,
        RUN,
        orphan,
        "failed",
        reason_code="run.failed.never_dispatched",
        reason_summary=reason_summary,
        evidence_refs=evidence_refs or [],
        source="scheduler",
        actor=actor,
        columns={},
        now=now,
    )
    insert_run(conn, replacement_run, actor=actor, now=now)
    return True


@takes(record_changes("schedule_run", "run_id", _WRITABLE), run_id=check_text)
def update_schedule_run(conn: Connection, /, run_id: str, **changes: Unpack[ScheduleRunChanges]) -> Refused | None:
    """Change columns; a status goes through ``update_status``."""
    return change_record(conn, "schedule_run", run_id, changes)


@takes(run_id=check_text)
def get_schedule_run(conn: Connection, /, run_id: str) -> dict[str, Any] | None:
    """The row or None."""
    return get_row(conn, schedule_runs, id=run_id)


@takes(invocation_id=check_text)
def get_schedule_run_by_invocation(conn: Connection, /, invocation_id: str) -> dict[str, Any] | None:
    """The run of an invocation that was created last, or None."""
    return first_row(conn, newest_first(schedule_runs, "created_at", invocation_id=invocation_id).limit(1))


@takes(schedule_id=check_text, status=optional(statuses), limit=page_limit, offset=page_offset)
def list_schedule_runs(
    conn: Connection,
    /,
    schedule_id: str,
    *,
    status: str | Sequence[str] | None = None,
    limit: int = 50,
    offset: int = 0,
) -> list[dict[str, Any]]:
    """A page of the runs of a schedule, last fired first."""
    found = newest_first(schedule_runs, "fired_at", schedule_id=schedule_id)
    if status:
        found = found.where(schedule_runs.c.status.in_(status))
    return all_rows(conn, page(found, limit, offset))


_of_schedule = schedule_runs.c.schedule_id.is_not(None)
_dispatched = schedule_runs.c.dispatched_at.is_not(None)
_after = optional(check_text)


@takes(schedule_id=check_text, after_id=_after, limit=page_limit)
def list_running_schedule_runs(
    conn: Connection, /, schedule_id: str, *, after_id: str | None = None, limit: int = 1000
) -> list[dict[str, Any]]:
    """A page of the running runs of a schedule, in the order of their ids."""
    return all_rows(conn, by_id(schedule_runs, after_id, limit, schedule_id=schedule_id, status="running"))


@takes(after_id=_after, limit=page_limit)
def list_undispatched_schedule_runs(
    conn: Connection, /, *, after_id: str | None = None, limit: int = 1000
) -> list[dict[str, Any]]:
    """A page of the running runs of schedules whose launch was never confirmed, in the order of their ids."""
    return all_rows(conn, by_id(schedule_runs, after_id, limit, _of_schedule, ~_dispatched, status="running"))


@takes(after_id=_after, limit=page_limit)
def list_dispatched_running_schedule_runs(
    conn: Connection, /, *, after_id: str | None = None, limit: int = 1000
) -> list[dict[str, Any]]:
    """A page of the running runs of schedules that were launched for an invocation, in the order of their ids."""
    launched = (_of_schedule, _dispatched, schedule_runs.c.invocation_id.is_not(None))
    return all_rows(conn, by_id(schedule_runs, after_id, limit, *launched, status="running"))


@takes(schedule_id=check_text, since=finite_number)
def schedule_run_exists_since(conn: Connection, /, schedule_id: str, since: float) -> bool:
    """Whether a top-level run of a schedule fired, and was not skipped, at this time or later."""
    run = schedule_runs.c
    found = select(run.id).where(run.schedule_id == schedule_id, run.fired_at >= since)
    return first_row(conn, found.where(run.status != "skipped", run.chain_depth == 0).limit(1)) is not None
