"""Schedule sets: the plan of a declaration, applied as a whole or not at all.

Contract: ADR-0055 D1; reference §2.3.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection

from lionstate.errors import InvalidInputError, OwnershipConflictError
from lionstate.records.arguments import optional, takes, texts
from lionstate.records.cursor_claims import NO_CURSOR_CLAIM, claims
from lionstate.records.schedule_audit import check_audit_context, lock_definition, reason_record
from lionstate.records.schedules import change_schedule, check_schedule, check_schedule_changes, insert_schedule
from lionstate.records.values import MAX_PAGE, check_text, finite_number
from lionstate.schema.scheduling import schedules

__all__ = ["apply_schedule_set"]

_check_fields = check_schedule_changes()
_DECLARED = {"origin": "declaration", "source": "declaration"}


def _members(name: str, value: Any) -> list[Any]:
    if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Sequence):
        raise InvalidInputError(f"{name} must be a list")
    return list(value)


def _creates(name: str, value: Any) -> list[Any]:
    return [check_schedule(f"{name}[{number}]", one) for number, one in enumerate(_members(name, value))]


def _updates(name: str, value: Any) -> list[tuple[str, dict[str, Any]]]:
    found = []
    for one in _members(name, value):
        if isinstance(one, (str, bytes, Mapping)) or not isinstance(one, Sequence) or len(one) != 2:
            raise InvalidInputError(f"{name} holds pairs of an id and its changes")
        schedule_id, fields = one
        if not isinstance(fields, Mapping):
            raise InvalidInputError(f"{name}: the changes must be a mapping, not {type(fields).__name__}")
        found.append((check_text(name, schedule_id), _check_fields(dict(fields))))
    return found


def _expected(check: Any) -> Any:
    def by_schedule(name: str, value: Any) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            raise InvalidInputError(f"{name} must be a mapping, not {type(value).__name__}")
        return {check_text(name, key): check(name, one) for key, one in value.items()}

    return optional(by_schedule)


def _set_reason(name: str, value: Any) -> dict[str, Any]:
    reason = reason_record(name, value)
    if not reason["code"].startswith("schedule_definition."):
        raise InvalidInputError(f"{name} of a schedule set must be a schedule_definition one")
    return reason


def _bounded(params: dict[str, Any]) -> dict[str, Any]:
    if sum(len(params[name]) for name in ("creates", "updates", "disables")) > MAX_PAGE:
        raise InvalidInputError(f"a schedule set holds at most {MAX_PAGE} schedules")
    return params


def _member_reason(reason: Mapping[str, Any] | None, code: str, cause: str, row: Mapping[str, Any]) -> dict[str, Any]:
    """The code says what became of this member; what the caller gave stands beside it."""
    given = reason_record("reason", {"code": code}) if reason is None else dict(reason)
    declaration = {"owner_key": row.get("owner_key"), "member_id": row["id"], "cause": cause}
    return {**given, "code": code, "metadata": {**given["metadata"], "declaration": declaration}}


@takes(
    _bounded,
    creates=_creates,
    updates=_updates,
    disables=texts,
    expect_owner_keys=_expected(optional(check_text)),
    expect_updated_at=_expected(optional(finite_number)),
    audit_context=optional(check_audit_context),
    reason=optional(_set_reason),
)
def apply_schedule_set(
    conn: Connection,
    /,
    *,
    creates: Sequence[Mapping[str, Any]],
    updates: Sequence[tuple[str, Mapping[str, Any]]],
    disables: Sequence[str],
    expect_owner_keys: Mapping[str, str | None] | None = None,
    expect_updated_at: Mapping[str, float | None] | None = None,
    audit_context: Mapping[str, Any] | None = None,
    reason: Mapping[str, Any] | None = None,
) -> None:
    """Create, change and disable schedules in one transaction; a claim that does not hold undoes all of it."""
    now = time.time()
    context = check_audit_context("audit_context", _DECLARED if audit_context is None else audit_context)
    changes = [(schedule_id, fields, "declared") for schedule_id, fields in updates]
    changes += [(schedule_id, {"enabled": 0}, "omitted") for schedule_id in disables]
    known = _locked(conn, [row["id"] for row in creates] + [schedule_id for schedule_id, _, _ in changes])
    for row in creates:
        created = _member_reason(reason, "schedule_definition.created.observed", "created", row)
        insert_schedule(conn, row, created, context, now)
        known[row["id"]] = {"enabled": 1, **row}
    owners, stamps = expect_owner_keys or {}, expect_updated_at or {}
    for schedule_id, fields, cause in changes:
        guards = claims(
            schedules,
            owner_key=owners.get(schedule_id, NO_CURSOR_CLAIM),
            updated_at=stamps.get(schedule_id, NO_CURSOR_CLAIM),
        )
        after = {"id": schedule_id, "enabled": 1, **(known[schedule_id] or {}), **fields}
        stated = None
        if reason is not None or "enabled" in fields:
            stated = _member_reason(reason, _code(after, cause), cause, after)
        if change_schedule(conn, schedule_id, fields, guards, reason=stated, context=context, now=now):
            known[schedule_id] = after
        elif guards:
            raise OwnershipConflictError(f"the schedule {schedule_id} is not what this plan was made for")


def _code(after: Mapping[str, Any], cause: str) -> str:
    if after["enabled"]:
        return "schedule_definition.enabled.observed"
    return f"schedule_definition.disabled.{'omitted' if cause == 'omitted' else 'declared'}"


def _locked(conn: Connection, schedule_ids: Sequence[str]) -> dict[str, dict[str, Any] | None]:
    """The rows of a plan, locked in one order, so that two plans do not wait for each other crosswise."""
    return {schedule_id: lock_definition(conn, schedule_id) for schedule_id in sorted(set(schedule_ids))}
