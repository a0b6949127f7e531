"""Tasks: runs without a schedule that wait in a durable queue for a worker.

Contract: ADR-0055 D1; reference §2.3, §2.8 (ADR-0071 as LionAGI 0.36.0 has it).
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, bindparam, func, select

from lionstate.dialects import dialect_of
from lionstate.errors import AdmissionRejectedError, InvalidInputError, NotFoundError
from lionstate.records.arguments import (
    above,
    mapping,
    optional,
    page_limit,
    page_offset,
    takes,
    texts,
    whole,
    words,
)
from lionstate.records.rows import all_rows, count_rows, filtered, insert_row, lock_row, page, update_rows
from lionstate.records.schedule_runs import RUN, statuses
from lionstate.records.schemas import MAPPING, TEXT, choice, described, list_of
from lionstate.records.status import record_initial_status, references, write_status
from lionstate.records.status_vocabulary import REASON_CODES
from lionstate.records.task_admission import (
    ACTION_KINDS,
    CAP_EXCEEDED,
    EXECUTION_TARGETS,
    LEASE_SECONDS,
    MOST_WAITERS,
    TOO_LONG,
    admits_parking,
    concurrency_key_of,
    outlasts,
)
from lionstate.records.values import CheckedJson, check_text, finite_number
from lionstate.schema.scheduling import schedule_runs
from lionstate.schema.types import decode_json

__all__ = [
    "KEYS_WORD",
    "cancel_task",
    "count_tasks",
    "finish_task",
    "is_status",
    "lease_length",
    "list_tasks",
    "renew_task",
    "submit_task",
]

# Whoever looks whether a concurrency key is held, and acts on it, is alone.
KEYS_WORD = "lionstate:task-concurrency-keys"
_WAITING = ("queued", "retry_wait")
_LONGEST_SECONDS = 366 * 86_400
_ENDS = {"completed": "run.completed.ok", "failed": "run.failed.exception", "timed_out": "run.timed_out.deadline"}
_run = schedule_runs.c


def lease_length(name: str, value: Any) -> float:
    """Seconds of a lease: more than none, a year at most."""
    seconds: float = above(0)(name, value)
    if seconds > _LONGEST_SECONDS:
        raise InvalidInputError(f"{name} must be at most {_LONGEST_SECONDS}")
    return seconds


def is_status(status: ColumnElement[str], *words: str) -> ColumnElement[bool]:
    """A test in literals, spelled as a partial index spells its own, or no planner sees that the index serves."""
    if len(words) == 1:
        return status == bindparam(words[0], words[0], literal_execute=True)
    return status.in_(bindparam("_".join(words), words, expanding=True, literal_execute=True))


@described(choice((*ACTION_KINDS, "playbook")))
def _action_kind(name: str, value: Any) -> str:
    kind: str = words((*ACTION_KINDS, "playbook"))(name, value)
    return "play" if kind == "playbook" else kind


@described(list_of({**TEXT, "minLength": 1}))
def _capabilities(name: str, value: Any) -> list[str]:
    found = texts(name, value)
    if "" in found:
        raise InvalidInputError(f"{name} holds an empty text")
    return found


@described(MAPPING)
def _task_args(name: str, value: Any) -> Any:
    if isinstance(value, CheckedJson):
        return value
    args = mapping(name, value)
    too_long = outlasts(decode_json(args.text), LEASE_SECONDS)
    if too_long is not None:
        raise AdmissionRejectedError(too_long, reason=TOO_LONG)
    return args


@takes(
    action_kind=_action_kind,
    args=_task_args,
    execution_target=words(EXECUTION_TARGETS),
    required_capabilities=_capabilities,
    library_ref=optional(check_text),
    library_content_hash=optional(check_text),
    concurrency_key=optional(check_text),
)
def submit_task(
    conn: Connection,
    /,
    *,
    action_kind: str,
    args: Mapping[str, Any],
    execution_target: str,
    required_capabilities: Sequence[str] = (),
    library_ref: str | None = None,
    library_content_hash: str | None = None,
    concurrency_key: str | None = None,
) -> str:
    """Put a task at the end of the queue; its id."""
    key = concurrency_key_of(required_capabilities) if concurrency_key is None else concurrency_key
    if key is not None:
        _admit(conn, key, args)
    now, run_id = time.time(), str(uuid.uuid4())
    row = {
        "id": run_id,
        "schedule_id": None,
        "trigger_context": {},
        "action_kind": action_kind,
        "action_args": args,
        "status": "queued",
        "fired_at": now,
        "created_at": now,
        "queued_at": now,
        "concurrency_key": key,
        "required_capabilities": list(required_capabilities),
        "execution_target": execution_target,
        "library_ref": library_ref,
        "library_content_hash": library_content_hash,
    }
    insert_row(conn, schedule_runs, row)
    record_initial_status(conn, "schedule_run", run_id, "queued", actor="submit_task", now=now)
    return run_id


def _admit(conn: Connection, key: str, args: Any) -> None:
    """Refuse a task whose key is held and waited for by as many as may; unless it parks."""
    dialect_of(conn).lock_word(conn, KEYS_WORD)
    if admits_parking(decode_json(args.text)):
        return
    indexed = is_status(_run.status, "queued", "running", "retry_wait")
    of_key = select(_run.id).where(_run.concurrency_key == key, indexed)
    held = conn.execute(of_key.where(is_status(_run.status, "running")).limit(1)).first()
    waiting = of_key.where(is_status(_run.status, *_WAITING)).limit(MOST_WAITERS).subquery()
    if held and conn.execute(select(func.count()).select_from(waiting)).scalar_one() >= MOST_WAITERS:
        raise AdmissionRejectedError(f"{MOST_WAITERS} tasks wait for the concurrency key already", reason=CAP_EXCEEDED)


@takes(run_id=check_text, actor=check_text, source=words(("scheduler", "operator", "system", "webhook", "agent")))
def cancel_task(conn: Connection, /, run_id: str, *, actor: str, source: str = "operator") -> bool:
    """Cancel a task that waits; False if it does not."""
    row = _existing(conn, run_id)
    if row["status"] != "queued":
        return False
    now = time.time()
    return write_status(
        conn,
        RUN,
        row,
        "cancelled",
        reason_code="run.cancelled.orchestrator",
        reason_summary="task application cancelled before lease",
        source=source,
        actor=actor,
        columns={"ended_at": now},
        now=now,
    )


def _existing(conn: Connection, run_id: str) -> dict[str, Any]:
    row = lock_row(conn, schedule_runs, id=run_id)
    if row is None:
        raise NotFoundError("there is no such task")
    return row


def _leased(conn: Connection, run_id: str, worker_id: str, lease_expires_at: float) -> dict[str, Any] | None:
    """The locked row while this very lease holds it."""
    row = _existing(conn, run_id)
    lease = (row["status"], row["leased_by"], row["lease_expires_at"])
    return row if lease == ("running", worker_id, lease_expires_at) else None


_lease = {"run_id": check_text, "worker_id": check_text, "lease_expires_at": finite_number}


@takes(lease_seconds=lease_length, now=optional(finite_number), **_lease)
def renew_task(
    conn: Connection,
    /,
    run_id: str,
    *,
    worker_id: str,
    lease_expires_at: float,
    lease_seconds: float = LEASE_SECONDS,
    now: float | None = None,
) -> float | None:
    """Let a lease last from now on; when it then expires, None if it is not held any more."""
    if _leased(conn, run_id, worker_id, lease_expires_at) is None:
        return None
    now = time.time() if now is None else now
    update_rows(conn, schedule_runs, {"id": run_id}, {"lease_expires_at": now + lease_seconds, "updated_at": now})
    return now + lease_seconds


@takes(
    status=words(_ENDS),
    exit_code=optional(whole(-(2**31))),
    error_detail=optional(check_text),
    reason_code=optional(words(REASON_CODES)),
    reason_summary=check_text,
    evidence_refs=optional(references),
    **_lease,
)
def finish_task(
    conn: Connection,
    /,
    run_id: str,
    *,
    worker_id: str,
    lease_expires_at: float,
    status: str,
    exit_code: int | None = None,
    error_detail: str | None = None,
    reason_code: str | None = None,
    reason_summary: str = "",
    evidence_refs: Sequence[Mapping[str, Any]] | None = None,
) -> bool:
    """End a task under its lease; False, nothing written, if the lease is not held any more."""
    row = _leased(conn, run_id, worker_id, lease_expires_at)
    if row is None:
        return False
    code = "run.failed.exit_nonzero" if status == "failed" and exit_code else _ENDS[status]
    now = time.time()
    return write_status(
        conn,
        RUN,
        row,
        status,
        reason_code=reason_code or code,
        reason_summary=reason_summary,
        evidence_refs=evidence_refs or [],
        source="system",
        actor=worker_id,
        columns={"ended_at": now, "exit_code": exit_code, "error_detail": error_detail},
        now=now,
    )


_of_queue: tuple[ColumnElement[bool], ...] = (_run.schedule_id.is_(None), _run.queued_at.is_not(None))
_filters = {
    "status": optional(statuses),
    "action_kind": optional(check_text),
    "concurrency_key": optional(check_text),
    "leased_by": optional(check_text),
}


def _conditions(status: str | Sequence[str] | None) -> list[ColumnElement[bool]]:
    wanted = list(_of_queue)
    if status:
        wanted.append(_run.status.in_(status))
        if set(status) <= set(_WAITING):
            wanted.append(is_status(_run.status, *_WAITING))
    return wanted


@takes(limit=page_limit, offset=page_offset, **_filters)
def list_tasks(
    conn: Connection,
    /,
    *,
    status: str | Sequence[str] | None = None,
    action_kind: str | None = None,
    concurrency_key: str | None = None,
    leased_by: str | None = None,
    limit: int = 100,
    offset: int = 0,
) -> list[dict[str, Any]]:
    """A page of tasks, in the order of the queue."""
    equals = {"action_kind": action_kind, "concurrency_key": concurrency_key, "leased_by": leased_by}
    found: Select[Any] = filtered(select(schedule_runs), schedule_runs, **equals).where(*_conditions(status))
    return all_rows(conn, page(found.order_by(_run.queued_at, _run.id), limit, offset))


@takes(**_filters)
def count_tasks(
    conn: Connection,
    /,
    *,
    status: str | Sequence[str] | None = None,
    action_kind: str | None = None,
    concurrency_key: str | None = None,
    leased_by: str | None = None,
) -> int:
    """How many tasks match."""
    equals = {"action_kind": action_kind, "concurrency_key": concurrency_key, "leased_by": leased_by}
    return count_rows(conn, schedule_runs, *_conditions(status), **equals)
