"""The history of schedule definitions: who changed one, from where and why; checked as LionAGI 0.36.0 checks it.

Contract: ADR-0055 D1; reference §2.3, §2.8.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import PurePosixPath, PureWindowsPath
from typing import Any, Final

from sqlalchemy import Connection, select

from lionstate.dialects import dialect_of
from lionstate.errors import InvalidInputError
from lionstate.records.rows import first_row, lock_row
from lionstate.records.status import record_transition, references
from lionstate.records.status_vocabulary import REASON_CODES
from lionstate.records.values import check_choice, check_text, encoded_json
from lionstate.schema.evidence import status_transitions
from lionstate.schema.scheduling import schedules

__all__ = [
    "assert_id_available",
    "check_audit_context",
    "definition_reason",
    "definition_status",
    "lock_definition",
    "lock_definition_id",
    "reason_record",
    "record_definition",
]

_ORIGINS = ("programmatic", "cli", "mcp", "http", "browser", "declaration", "scheduler", "unavailable")
_ACTOR_TYPES = ("executor", "agent", "admin", "system", "scheduler", "operator", "webhook")
_PROVENANCE = ("available", "unavailable")
_WORDS: Final[Mapping[str, tuple[str, ...]]] = {
    "origin": _ORIGINS,
    "source": (*_ORIGINS, *_ACTOR_TYPES),
    "assurance": ("client_resolved", "client_reported", "system", "unavailable"),
    "actor_status": _PROVENANCE,
    "cwd_status": _PROVENANCE,
}
_FAILURES = ("not_provided", "resolver_unavailable", "resolver_failed", "cwd_unavailable", "browser_unavailable")
_UNOBSERVED: Final[Mapping[str, str | None]] = {
    "actor": None,
    "submitting_cwd": None,
    "origin": "unavailable",
    "source": "unavailable",
    "assurance": "unavailable",
    "actor_status": "unavailable",
    "cwd_status": "unavailable",
    "failure_category": "not_provided",
}
_DEFAULT_REASONS = {
    "created": "schedule_definition.created.observed",
    "enabled": "schedule_definition.enabled.observed",
    "disabled": "schedule_definition.disabled.unspecified",
    "deleted": "schedule_definition.deleted.observed",
}
_REASON_KEYS = frozenset(("code", "summary", "evidence_refs", "metadata"))


def _fields(name: str, value: object, known: frozenset[str]) -> dict[str, Any]:
    """A mapping, or an object of a dataclass such as LionAGI's, by field."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        value = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if not isinstance(value, Mapping):
        raise InvalidInputError(f"{name} must be a mapping, not {type(value).__name__}")
    unknown = value.keys() - known
    if unknown:
        raise InvalidInputError(f"{name} takes no {', '.join(sorted(map(str, unknown)))}")
    return dict(value)


def check_audit_context(name: str, value: object) -> dict[str, Any]:
    """Where a change was observed to come from; what is not given was not observed."""
    given = {**_UNOBSERVED, **_fields(name, {} if value is None else value, frozenset(_UNOBSERVED))}
    for word, choices in _WORDS.items():
        check_choice(f"{name}.{word}", given[word], choices, optional=False)
    check_choice(f"{name}.failure_category", given["failure_category"], _FAILURES)
    actor, cwd = given["actor"], given["submitting_cwd"]
    if actor is not None and not check_text(f"{name}.actor", actor).strip():
        raise InvalidInputError(f"{name}.actor must not be blank")
    if cwd is not None and not _is_absolute(check_text(f"{name}.submitting_cwd", cwd)):
        raise InvalidInputError(f"{name}.submitting_cwd must be absolute")
    for what, status in ((actor, "actor_status"), (cwd, "cwd_status")):
        if (what is not None) != (given[status] == "available"):
            raise InvalidInputError(f"{name}.{status} contradicts what is given")
    reported = actor is not None or cwd is not None
    if given["origin"] == "http" and reported and given["assurance"] != "client_reported":
        raise InvalidInputError(f"{name}: what comes over http is client_reported")
    if given["origin"] == "browser" and (reported or given["assurance"] != "unavailable"):
        raise InvalidInputError(f"{name}: a browser reports nothing")
    return given


def _is_absolute(path: str) -> bool:
    return PurePosixPath(path).is_absolute() or PureWindowsPath(path).is_absolute()


def reason_record(name: str, value: object) -> dict[str, Any]:
    """A registered code with what goes beside it, every key filled in."""
    given = {"summary": "", "evidence_refs": [], "metadata": {}, **_fields(name, value, _REASON_KEYS)}
    check_choice(f"{name}.code", given.get("code"), REASON_CODES, optional=False)
    check_text(f"{name}.summary", given["summary"])
    evidence = references(f"{name}.evidence_refs", given["evidence_refs"])
    if not isinstance(given["metadata"], Mapping):
        raise InvalidInputError(f"{name}.metadata must be a mapping")
    encoded_json(f"{name}.metadata", given["metadata"])
    return {**given, "evidence_refs": evidence, "metadata": dict(given["metadata"])}


def definition_reason(target: str, reason: Mapping[str, Any] | None) -> dict[str, Any]:
    """The reason of a step to ``created``, ``enabled``, ``disabled`` or ``deleted``, the default one without any."""
    if reason is None:
        return reason_record("reason", {"code": _DEFAULT_REASONS[target]})
    if not reason["code"].startswith(f"schedule_definition.{target}."):
        raise InvalidInputError(f"the reason does not say why the schedule is {target}")
    if reason["code"] == "schedule_definition.disabled.manual" and not reason["summary"].strip():
        raise InvalidInputError("a manual disable needs a summary")
    return dict(reason)


def definition_status(row: Mapping[str, Any]) -> str:
    """``enabled`` or ``disabled``."""
    return "enabled" if row["enabled"] else "disabled"


def lock_definition_id(conn: Connection, /, schedule_id: str) -> None:
    """Keep an id ours, whether it has a row or not; LionAGI 0.36.0 locks definitions by the same word."""
    dialect_of(conn).lock_word(conn, f"lionagi:schedule-definition:{schedule_id}")


def lock_definition(conn: Connection, /, schedule_id: str) -> dict[str, Any] | None:
    """The locked row of a schedule, or None."""
    lock_definition_id(conn, schedule_id)
    return lock_row(conn, schedules, id=schedule_id)


def assert_id_available(conn: Connection, /, schedule_id: str) -> None:
    """Refuse an id that any definition ever had."""
    lock_definition_id(conn, schedule_id)
    history = status_transitions.c
    used = select(history.id).where(history.entity_type == "schedule", history.entity_id == schedule_id).limit(1)
    if first_row(conn, used) is not None:
        raise InvalidInputError("the id of a schedule definition cannot be used again")


def record_definition(
    conn: Connection,
    /,
    row: Mapping[str, Any],
    *,
    previous: str | None,
    status: str,
    reason: Mapping[str, Any],
    context: Mapping[str, Any],
    now: float,
) -> None:
    """Write one row of a definition's history; it outlives the definition."""
    seen = {name: context[name] for name in _UNOBSERVED if name not in ("actor", "source")}
    record_transition(
        conn,
        {
            "entity_type": "schedule",
            "entity_id": row["id"],
            "previous_status": previous,
            "status": status,
            "reason_code": reason["code"],
            "reason_summary": reason["summary"],
            "evidence_refs": reason["evidence_refs"],
            "source": context["source"],
            "actor": context["actor"],
            "metadata": {**reason["metadata"], "schedule_name": row.get("name"), "provenance": seen},
        },
        now,
    )
