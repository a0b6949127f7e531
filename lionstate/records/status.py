"""Changes of status: every one is checked, guarded and leaves a row of history.

Contract: ADR-0055 D1; reference §2.8.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Collection, Mapping, Sequence
from typing import Any, TypedDict

from sqlalchemy import Connection, Table

from lionstate.audit import insert_admin_event
from lionstate.engine import Refused
from lionstate.errors import InvalidInputError, NotFoundError, TransitionRejectedError, VersionRaceError
from lionstate.records.arguments import Rule, changes_of, flag, optional, saying, takes
from lionstate.records.rows import insert_row, lock_row, update_rows
from lionstate.records.schemas import (
    ANY,
    MAPPING,
    TEXT,
    choice,
    described,
    list_of,
    merged,
    nullable,
    schemas_of,
)
from lionstate.records.status_effects import settle_change
from lionstate.records.status_vocabulary import ENTITIES, REASON_CODES, SOURCES, Entity, entity_named
from lionstate.records.values import check_choice, check_text, checked_row, encoded_json, finite_number
from lionstate.schema.base import metadata as tables
from lionstate.schema.evidence import status_transitions

__all__ = [
    "OVERRIDE_KEYS",
    "REASON_KEYS",
    "StatusReason",
    "change_record",
    "record_changes",
    "record_initial_status",
    "record_transition",
    "references",
    "table_of",
    "update_status",
    "write_status",
]


class StatusReason(TypedDict, total=False):
    """Why a status changes, for the methods that change other columns as well."""

    reason_code: str | None
    reason_summary: str
    evidence_refs: list[dict[str, Any]] | None
    reason_source: str
    reason_actor: str | None


REASON_KEYS = frozenset(StatusReason.__annotations__)
OVERRIDE_KEYS = frozenset(("override", "override_actor", "override_justification"))


def table_of(entity: Entity) -> Table:
    """The table of an entity's rows."""
    return tables.tables[entity.table]


_STATUSES = frozenset().union(*(entity.statuses for entity in ENTITIES.values()))


@saying(
    {
        "entity_type": choice(ENTITIES),
        "source": choice(SOURCES),
        "reason_code": choice(REASON_CODES),
        "new_status": choice(_STATUSES),
        "extra_fields": nullable(MAPPING),
    }
)
def _checked_change(params: dict[str, Any]) -> dict[str, Any]:
    """Checks 1 to 5 of reference §2.8, in its order."""
    check_choice("source", params.get("source", "executor"), SOURCES, optional=False)
    if params.get("override") and not (params.get("override_actor") and params.get("override_justification")):
        raise InvalidInputError("an override needs override_actor and override_justification")
    entity = entity_named(params["entity_type"])
    if entity is None:
        raise InvalidInputError(f"entity_type is not one of {', '.join(sorted(ENTITIES))}")
    check_choice("reason_code", params["reason_code"], REASON_CODES, optional=False)
    check_choice("new_status", params["new_status"], entity.statuses, optional=False)
    extra = params.get("extra_fields") or {}
    if not isinstance(extra, Mapping):
        raise InvalidInputError("extra_fields must be a mapping")
    unknown = extra.keys() - entity.extra_fields
    if unknown:
        raise InvalidInputError(f"{entity.name} takes no {', '.join(sorted(map(str, unknown)))} with a status change")
    return {**params, "extra_fields": checked_row("extra_fields", table_of(entity), extra, extra)}


@described(list_of(MAPPING))
def references(name: str, value: object) -> list[Any]:
    """A list of JSON values that a reason rests on."""
    if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Sequence):
        raise InvalidInputError(f"{name} must be a list")
    encoded_json(name, list(value))
    return list(value)


@described(list_of(nullable(TEXT)))
def _statuses(name: str, value: object) -> frozenset[str | None]:
    if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Collection):
        raise InvalidInputError(f"{name} must be a set of statuses")
    return frozenset(None if found is None else check_text(name, found) for found in value)


@described(ANY)
def _details(name: str, value: object) -> object:
    encoded_json(name, value)
    return value


@takes(
    _checked_change,
    entity_type=check_text,
    entity_id=check_text,
    reason_summary=check_text,
    evidence_refs=optional(references),
    actor=optional(check_text),
    metadata=optional(_details),
    expected_statuses=optional(_statuses),
    expected_updated_at=optional(finite_number),
    override=flag,
    override_actor=optional(check_text),
    override_justification=optional(check_text),
)
def update_status(
    conn: Connection,
    /,
    entity_type: str,
    entity_id: str,
    *,
    new_status: str,
    reason_code: str,
    reason_summary: str = "",
    evidence_refs: Sequence[Mapping[str, Any]] | None = None,
    source: str = "executor",
    actor: str | None = None,
    metadata: Mapping[str, Any] | None = None,
    expected_statuses: Collection[str | None] | None = None,
    expected_updated_at: float | None = None,
    extra_fields: Mapping[str, Any] | None = None,
    override: bool = False,
    override_actor: str | None = None,
    override_justification: str | None = None,
) -> bool | Refused:
    """Change a status under its guards; False when a guard did not hold.

    A terminal status without an override is refused after its admin event, which stays.

    Contract: reference §2.8.
    """
    entity = entity_named(entity_type)
    assert entity is not None
    table, now = table_of(entity), time.time()
    row = lock_row(conn, table, id=entity_id)
    if row is None:
        raise NotFoundError(f"there is no such {entity.name}")
    previous = row["status"]
    if expected_statuses is not None and previous not in expected_statuses:
        return False
    reopens = previous in entity.terminal and new_status != previous
    about = {"entity_type": entity.name, "previous_status": previous, "reason_code": reason_code}
    if reopens and not override:
        details = {**about, "attempted_status": new_status, "source": source}
        _audit(conn, "status_transition_rejected", entity_id, details, actor or source, now)
        return Refused(TransitionRejectedError(f"the {entity.name} is {previous}: {new_status} needs an override"))
    if expected_updated_at is not None and row["updated_at"] != expected_updated_at:
        return False
    written = write_status(
        conn,
        entity,
        row,
        new_status,
        reason_code=reason_code,
        reason_summary=reason_summary,
        evidence_refs=list(evidence_refs or []),
        source=source,
        actor=actor,
        columns=extra_fields or {},
        now=now,
        override=override,
        **({} if metadata is None else {"metadata": metadata}),
    )
    if not written:
        # Out of reach while the row is locked; a driver that misreports is not taken for a success.
        if expected_statuses is None and expected_updated_at is None:
            raise VersionRaceError(f"the {entity.name} changed under the status change")
        return False
    if reopens:
        details = {**about, "new_status": new_status, "justification": override_justification}
        _audit(conn, "status_transition_override", entity_id, details, override_actor or source, now)
    return True


def _audit(conn: Connection, action: str, target_id: str, details: Mapping[str, Any], actor: str, now: float) -> None:
    insert_admin_event(conn, action=action, details=details, target_id=target_id, actor=actor, now=now)


def write_status(
    conn: Connection,
    /,
    entity: Entity,
    row: Mapping[str, Any],
    status: str,
    *,
    reason_code: str,
    reason_summary: str = "",
    evidence_refs: Sequence[Mapping[str, Any]] = (),
    source: str,
    actor: str | None,
    columns: Mapping[str, Any],
    now: float,
    override: bool = False,
    **more: Any,
) -> bool:
    """Give a locked row a status, its reason and what changes with them, and write the history row.

    Args:
        row: The stored row.
        columns: Other columns that change as well.
        more: Other columns of the history row.
    Returns:
        False, nothing written, if the row's status is another one than ``row`` says.

    Contract: reference §2.8.
    """
    reason = {
        "status_reason_code": reason_code,
        "status_reason_summary": reason_summary,
        "status_evidence_refs": list(evidence_refs),
    }
    changes = settle_change(entity, row, status, {**reason, **columns}, now=now, override=override)
    key = {"id": row["id"], "status": row["status"]}
    if not update_rows(conn, table_of(entity), key, {**changes, "status": status, "updated_at": now}):
        return False
    transition: dict[str, Any] = {
        "entity_type": entity.name,
        "entity_id": row["id"],
        "previous_status": row["status"],
        "status": status,
        "reason_code": reason_code,
        "reason_summary": reason_summary,
        "evidence_refs": list(evidence_refs),
        "source": source,
        "actor": actor,
    }
    record_transition(conn, {**transition, **more}, now)
    return True


def record_transition(conn: Connection, /, transition: Mapping[str, Any], now: float) -> None:
    """Write one row of the history of statuses."""
    insert_row(conn, status_transitions, {"id": uuid.uuid4().hex, "created_at": now, **transition})


def record_initial_status(
    conn: Connection, /, entity_type: str, entity_id: str, status: str | None, *, actor: str, now: float
) -> None:
    """Write the reason and the first history row of a record that was just inserted.

    Args:
        status: One without a declared first entry, None too, writes nothing.
        actor: The creating method's name.

    Contract: reference §2.8 (initial history).
    """
    entity = ENTITIES[entity_type]
    code = entity.initial_reasons.get(status or "")
    if code is None:
        return
    reason = {"status_reason_code": code, "status_reason_summary": "", "status_evidence_refs": []}
    update_rows(conn, table_of(entity), {"id": entity_id}, reason)
    transition: dict[str, Any] = {
        "entity_type": entity.name,
        "entity_id": entity_id,
        "status": status,
        "reason_code": code,
        "reason_summary": "",
        "evidence_refs": [],
        "source": "system",
        "actor": actor,
    }
    record_transition(conn, transition, now)


_check_update: Rule = vars(update_status)["check"]
_CALL_NAMES = {"evidence_refs": "evidence_refs", "reason_source": "source", "reason_actor": "actor"}


def _status_call(entity: Entity, row_id: str, changes: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of ``update_status`` among those of a method that changes a whole record."""
    same = {name: changes[name] for name in (OVERRIDE_KEYS | {"reason_summary"}) & changes.keys()}
    renamed = {other: changes[name] for name, other in _CALL_NAMES.items() if name in changes}
    return {
        "entity_type": entity.name,
        "entity_id": row_id,
        "new_status": changes["status"],
        "reason_code": changes["reason_code"],
        "extra_fields": {name: changes[name] for name in entity.extra_fields & changes.keys()},
        **same,
        **renamed,
    }


_REASON_SCHEMAS = {
    "reason_code": nullable(choice(REASON_CODES)),
    "reason_summary": TEXT,
    "reason_source": choice(SOURCES),
    "reason_actor": nullable(TEXT),
    "evidence_refs": nullable(list_of(MAPPING)),
}


def record_changes(entity_type: str, id_name: str, writable: Collection[str]) -> Rule:
    """The check of a method that changes columns of a record and may change its status among them.

    A status without a reason takes the declared default; one without a default is refused.
    """
    entity = ENTITIES[entity_type]
    fixed = REASON_KEYS | OVERRIDE_KEYS | {id_name, "set_if_null"}
    check_columns = changes_of(table_of(entity), writable, fixed)

    def rule(params: dict[str, Any]) -> dict[str, Any]:
        checked = check_columns(params)
        if checked.get("status") is None:
            return checked
        if checked.get("reason_code") is None:
            checked["reason_code"] = entity.default_reasons.get(checked["status"])
            if checked["reason_code"] is None and checked["status"] in entity.statuses:
                raise InvalidInputError(f"a {entity.name} that becomes {checked['status']} needs a reason_code")
        _check_update(_status_call(entity, checked[id_name], checked))
        return checked

    schemas = merged(schemas_of(check_columns), _REASON_SCHEMAS, {"status": choice(entity.statuses)})
    return saying(schemas)(rule)


def change_record(conn: Connection, /, entity_type: str, row_id: str, changes: Mapping[str, Any]) -> Refused | None:
    """Change the status through ``update_status``, then the other columns; a missing row is silent without a status.

    Contract: reference §2.1, §2.2.
    """
    entity = ENTITIES[entity_type]
    columns = {name: value for name, value in changes.items() if name not in REASON_KEYS | OVERRIDE_KEYS}
    status = columns.pop("status", None)
    if status is not None:
        call = _status_call(entity, row_id, changes)
        columns = {name: value for name, value in columns.items() if name not in call["extra_fields"]}
        outcome = update_status(conn, **call)
        if isinstance(outcome, Refused):
            return outcome
    if columns:
        update_rows(conn, table_of(entity), {"id": row_id}, {**columns, "updated_at": time.time()})
    return None
