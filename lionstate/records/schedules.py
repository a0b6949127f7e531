"""Schedules: definitions of recurring work, with cursors that are compared and set, and a history that outlives them.

Contract: ADR-0055 D1; reference §2.3.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from typing import Any, Final, TypedDict, Unpack

from sqlalchemy import ColumnElement, Connection, inspect

from lionstate.errors import InvalidInputError
from lionstate.records.arguments import changes_of, flag, optional, page_limit, page_offset, row_of, takes
from lionstate.records.cursor_claims import NO_CURSOR_CLAIM, NoCursorClaim, claimed, claims
from lionstate.records.rows import (
    all_rows,
    by_id,
    delete_rows,
    get_row,
    insert_row,
    lock_row,
    newest_first,
    page,
    update_rows,
)
from lionstate.records.schedule_audit import (
    assert_id_available,
    check_audit_context,
    definition_reason,
    definition_status,
    lock_definition,
    reason_record,
    record_definition,
)
from lionstate.records.schemas import choice, described, merged, nullable, schema_of
from lionstate.records.transitions import list_status_transitions
from lionstate.records.values import CheckedRow, check_choice, check_text, finite_number
from lionstate.schema.evidence import status_transitions
from lionstate.schema.scheduling import schedules

__all__ = [
    "MOST_SCHEDULES",
    "ScheduleChanges",
    "change_schedule",
    "check_schedule",
    "check_schedule_changes",
    "create_schedule",
    "delete_schedule",
    "get_schedule",
    "get_schedule_by_name",
    "get_schedule_history",
    "insert_schedule",
    "list_schedules",
    "list_schedules_by_owner_key",
    "reason_fits",
    "update_schedule",
]

MOST_SCHEDULES: Final = 10_000


class _Definition(TypedDict, total=False):
    """What a schedule is created with, besides its id and times."""

    name: str
    description: str | None
    enabled: bool | int
    trigger_type: str
    cron_expr: str | None
    interval_sec: int | None
    github_repo: str | None
    github_filter: Any
    github_cursor: str | None
    poll_interval_sec: int | None
    action_kind: str
    action_model: str | None
    action_prompt: str | None
    action_agent: str | None
    action_playbook: str | None
    action_flow_yaml: str | None
    action_project: str | None
    action_cwd: str | None
    action_extra_args: Any
    action_command: str | None
    action_command_args: Any
    on_success: Any
    on_fail: Any
    last_fired_at: float | None
    next_fire_at: float | None
    missed_fire_policy: str
    overlap_policy: str
    max_runs: int | None
    budget_usd: float | None
    budget_tokens: int | None
    rate_limit: Any
    project: str | None
    threshold_config: Any
    last_alert_at: float | None
    spec_version: str | None
    managed_by: str | None
    owner_key: str | None
    authored_spec: Any
    resolved_target: Any
    resolved_digest: str | None
    resolved_timezone: str | None
    effective_timezone: str | None
    effective_timezone_source: str | None
    notify_on: Any
    notify_command: str | None


class ScheduleChanges(_Definition, total=False):
    """What ``update_schedule`` may change."""

    last_evaluated_at: float | None
    last_healthy_poll_at: float | None
    poller_consecutive_401: int
    predispatch_refusal_event: str | None
    predispatch_refusal_count: int


_WORDS: Final[Mapping[str, tuple[str, ...]]] = {
    "trigger_type": ("cron", "interval", "github_poll", "at"),
    "action_kind": ("agent", "flow", "fanout", "play", "flow_yaml", "command"),
    "missed_fire_policy": ("skip", "run_once"),
    "overlap_policy": ("skip", "allow"),
    "managed_by": ("cli", "declaration"),
}
_WRITABLE = ScheduleChanges.__annotations__.keys()
_CLAIMS = ("expect_next_fire_at", "expect_github_cursor", "expect_owner_key")
_FIXED = frozenset(("schedule_id", "guard_cursor_forward", "audit_context", "reason", *_CLAIMS))
_row = row_of(
    schedules,
    _Definition.__annotations__.keys() | {"id", "created_at", "updated_at"},
    ("id", "name", "trigger_type", "action_kind"),
)


def _check_words(values: Mapping[str, Any]) -> None:
    if "enabled" in values and values["enabled"] not in (0, 1):
        raise InvalidInputError("enabled must be 0 or 1")
    for column, words in _WORDS.items():
        check_choice(column, values.get(column), words)


@described(
    merged(
        schema_of(_row) or {},
        {"properties": {"enabled": {"enum": [0, 1, None]}}},
        {"properties": {column: nullable(choice(words)) for column, words in _WORDS.items()}},
    )
)
def check_schedule(name: str, value: Any) -> CheckedRow:
    """A mapping that becomes a schedule."""
    if isinstance(value, CheckedRow):
        return value
    row: CheckedRow = _row(name, value)
    _check_words({**row, **({"enabled": value["enabled"]} if "enabled" in value else {})})
    if not row["id"].strip():
        raise InvalidInputError("the id of a schedule must not be blank")
    return row


def check_schedule_changes(fixed: Collection[str] = ()) -> Any:
    """The rule that every argument but the ``fixed`` ones is a new value of a column."""
    columns = changes_of(schedules, _WRITABLE, fixed)

    def rule(params: dict[str, Any]) -> dict[str, Any]:
        checked = columns(params)
        _check_words(checked)
        return checked

    return rule


def reason_fits(params: dict[str, Any]) -> dict[str, Any]:
    """The reason of a change whose outcome the call itself says."""
    if "enabled" in params:
        definition_reason(definition_status(params), params.get("reason"))
    return params


def _reason_of(target: str) -> Any:
    def rule(params: dict[str, Any]) -> dict[str, Any]:
        definition_reason(target, params.get("reason"))
        return params

    return rule


def insert_schedule(
    conn: Connection, /, row: Mapping[str, Any], reason: Mapping[str, Any], context: Mapping[str, Any], now: float
) -> None:
    """Insert a checked schedule with the first row of its history."""
    assert_id_available(conn, row["id"])
    full = {"enabled": 1, "created_at": now, "updated_at": now, **row}
    insert_row(conn, schedules, full)
    record_definition(
        conn, full, previous=None, status=definition_status(full), reason=reason, context=context, now=now
    )


@takes(
    _reason_of("created"),
    schedule=check_schedule,
    audit_context=optional(check_audit_context),
    reason=optional(reason_record),
)
def create_schedule(
    conn: Connection,
    /,
    schedule: Mapping[str, Any],
    *,
    audit_context: Mapping[str, Any] | None = None,
    reason: Mapping[str, Any] | None = None,
) -> None:
    """Insert a schedule and the first row of its history; an id is used once, deleted or not."""
    insert_schedule(conn, schedule, definition_reason("created", reason), _context(audit_context), time.time())


def _context(given: Mapping[str, Any] | None) -> Mapping[str, Any]:
    return check_audit_context("audit_context", given)


@takes(schedule_id=check_text)
def get_schedule(conn: Connection, /, schedule_id: str) -> dict[str, Any] | None:
    """The row or None."""
    return get_row(conn, schedules, id=schedule_id)


@takes(name=check_text)
def get_schedule_by_name(conn: Connection, /, name: str) -> dict[str, Any] | None:
    """The row or None."""
    return get_row(conn, schedules, name=name)


@takes(schedule_id=check_text, limit=page_limit, offset=page_offset)
def get_schedule_history(conn: Connection, /, schedule_id: str, *, limit: int = 100, offset: int = 0) -> dict[str, Any]:
    """A page of a definition's history, newest first, and whether the store keeps one."""
    if not inspect(conn).has_table(status_transitions.name):
        return {"available": False, "events": []}
    return {
        "available": True,
        "events": list_status_transitions(conn, "schedule", schedule_id, limit=limit, offset=offset),
    }


@takes(
    enabled=optional(flag),
    trigger_type=optional(check_text),
    project=optional(check_text),
    limit=optional(page_limit),
    offset=page_offset,
)
def list_schedules(
    conn: Connection,
    /,
    *,
    enabled: bool | None = None,
    trigger_type: str | None = None,
    project: str | None = None,
    limit: int | None = 100,
    offset: int = 0,
) -> list[dict[str, Any]]:
    """A page of schedules, last changed first; without a limit all of them, up to a bound."""
    flagged = None if enabled is None else int(enabled)
    found = newest_first(schedules, "updated_at", enabled=flagged, trigger_type=trigger_type, project=project)
    rows = all_rows(conn, page(found, MOST_SCHEDULES + 1 if limit is None else limit, offset))
    if len(rows) > MOST_SCHEDULES:
        raise InvalidInputError(f"more than {MOST_SCHEDULES} schedules: read them in pages")
    return rows


@takes(owner_key=check_text, after_id=optional(check_text), limit=page_limit)
def list_schedules_by_owner_key(
    conn: Connection, /, owner_key: str, *, after_id: str | None = None, limit: int = 1000
) -> list[dict[str, Any]]:
    """A page of the schedules of one owner, in the order of their ids."""
    return all_rows(conn, by_id(schedules, after_id, limit, owner_key=owner_key))


def change_schedule(
    conn: Connection,
    /,
    schedule_id: str,
    fields: Mapping[str, Any],
    guards: list[ColumnElement[bool]],
    *,
    guard_cursor_forward: bool = False,
    reason: Mapping[str, Any] | None = None,
    context: Mapping[str, Any],
    now: float,
) -> bool:
    """Change columns if every guard holds; an edge of ``enabled`` leaves a row of history."""
    changes = dict(fields)
    before = lock_definition(conn, schedule_id) if "enabled" in fields or reason is not None else None
    if guard_cursor_forward and fields.get("github_cursor") is not None:
        stored = (before or lock_row(conn, schedules, id=schedule_id) or {}).get("github_cursor")
        # Compared here, not in SQL: a database's collation may order texts otherwise than their code points.
        if stored is not None and stored >= fields["github_cursor"]:
            del changes["github_cursor"]
    after = None if before is None else {**before, **changes}
    because = None if after is None else definition_reason(definition_status(after), reason)
    if not update_rows(conn, schedules, {"id": schedule_id}, {**changes, "updated_at": now}, guards):
        return False
    if before is not None and after is not None and because is not None:
        previous, status = definition_status(before), definition_status(after)
        if previous != status:
            record_definition(conn, after, previous=previous, status=status, reason=because, context=context, now=now)
    return True


@takes(
    check_schedule_changes(_FIXED),
    reason_fits,
    schedule_id=check_text,
    guard_cursor_forward=flag,
    expect_next_fire_at=claimed(finite_number),
    expect_github_cursor=claimed(check_text),
    expect_owner_key=claimed(check_text),
    audit_context=optional(check_audit_context),
    reason=optional(reason_record),
)
def update_schedule(
    conn: Connection,
    /,
    schedule_id: str,
    *,
    guard_cursor_forward: bool = False,
    expect_next_fire_at: float | NoCursorClaim | None = NO_CURSOR_CLAIM,
    expect_github_cursor: str | NoCursorClaim | None = NO_CURSOR_CLAIM,
    expect_owner_key: str | NoCursorClaim | None = NO_CURSOR_CLAIM,
    audit_context: Mapping[str, Any] | None = None,
    reason: Mapping[str, Any] | None = None,
    **fields: Unpack[ScheduleChanges],
) -> bool:
    """Change columns if the row still holds what is expected of it; False if it does not or is missing."""
    return change_schedule(
        conn,
        schedule_id,
        fields,
        claims(
            schedules,
            next_fire_at=expect_next_fire_at,
            github_cursor=expect_github_cursor,
            owner_key=expect_owner_key,
        ),
        guard_cursor_forward=guard_cursor_forward,
        reason=reason,
        context=_context(audit_context),
        now=time.time(),
    )


@takes(
    _reason_of("deleted"),
    schedule_id=check_text,
    audit_context=optional(check_audit_context),
    reason=optional(reason_record),
)
def delete_schedule(
    conn: Connection,
    /,
    schedule_id: str,
    *,
    audit_context: Mapping[str, Any] | None = None,
    reason: Mapping[str, Any] | None = None,
) -> bool:
    """Remove a schedule with its runs and write the last row of its history; False if it is missing."""
    before = lock_definition(conn, schedule_id)
    if before is None:
        return False
    delete_rows(conn, schedules, id=schedule_id)
    record_definition(
        conn,
        before,
        previous=definition_status(before),
        status="deleted",
        reason=definition_reason("deleted", reason),
        context=_context(audit_context),
        now=time.time(),
    )
    return True
