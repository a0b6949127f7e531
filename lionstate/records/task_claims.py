"""Claims of tasks: the longest waiting ones that a worker can serve, each under a lease that one worker holds.

The database orders and filters. A claim never waits for a row that another one has: it takes the next. Only tasks with
a concurrency key are claimed one worker after the other.

Contract: ADR-0055 D1; reference §2.3 (ADR-0071 as LionAGI 0.36.0 has it).
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import ColumnElement, Connection, Select, func, not_, or_, select, tuple_

from lionstate.dialects import dialect_of
from lionstate.errors import InvalidInputError
from lionstate.records.arguments import above, optional, page_limit, takes, texts, whole
from lionstate.records.dispatches import enqueue_dispatch
from lionstate.records.rows import all_rows, get_row
from lionstate.records.schedule_runs import RUN
from lionstate.records.status import write_status
from lionstate.records.task_admission import (
    CAP_EXCEEDED,
    HEARTBEAT_SECONDS,
    LEASE_SECONDS,
    MOST_ATTEMPTS,
    MOST_WAITERS,
    TOO_LONG,
    admits_parking,
    notice_asked_by,
    outlasts,
    servable,
)
from lionstate.records.tasks import KEYS_WORD, is_status, lease_length
from lionstate.records.values import check_text, finite_number
from lionstate.records.workers import DEFAULT_TARGETS
from lionstate.schema.scheduling import schedule_runs, workers

__all__ = ["claim_tasks", "reap_expired_leases"]

MOST_CLAIMED = 20
_MOST_SCANNED = 1_000
_MOST_SKIPPED = 50
_run = schedule_runs.c


_in_queue = (
    is_status(_run.status, "queued", "retry_wait"),
    is_status(_run.status, "queued"),
    _run.schedule_id.is_(None),
    _run.queued_at.is_not(None),
)
_place = (_run.queued_at, _run.id)


@dataclass(frozen=True, slots=True)
class _Claim:
    """Who claims, what it can serve, and on which terms."""

    worker_id: str
    capabilities: Sequence[str]
    targets: Sequence[str]
    lease_seconds: float
    now: float
    notices: list[dict[str, Any]] = field(default_factory=list)

    def servable(self, conn: Connection) -> tuple[ColumnElement[bool], ...]:
        """The tests that a task is one for this worker."""
        return (
            _run.action_kind != "workflow",
            or_(_run.execution_target.is_(None), _run.execution_target.in_(self.targets)),
            dialect_of(conn).array_within(_run.required_capabilities, servable(self.capabilities)),
        )


def _locked(conn: Connection, statement: Select[Any]) -> list[dict[str, Any]]:
    """The rows of a query under their locks, without those that another transaction has."""
    return all_rows(conn, statement.with_for_update(key_share=True, skip_locked=True))


def _held_keys() -> Select[Any]:
    """The runs that hold the concurrency key of the row outside."""
    holder = schedule_runs.alias("holder").c
    indexed = is_status(holder.status, "queued", "running", "retry_wait")
    return select(holder.id).where(
        holder.concurrency_key == _run.concurrency_key, indexed, is_status(holder.status, "running")
    )


def _skip(conn: Connection, row: Mapping[str, Any], claim: _Claim, code: str, why: str) -> None:
    """A task that is not admitted ends unclaimed; who submitted it is told, where it asks for that."""
    write_status(
        conn,
        RUN,
        row,
        "skipped",
        reason_code=code,
        reason_summary=why,
        source="system",
        actor="task_admission",
        columns={"ended_at": claim.now},
        now=claim.now,
    )
    asked = notice_asked_by(row["action_args"])
    if asked is not None:
        body = {"schedule_run_id": row["id"], "reason_code": code, "reason_summary": why}
        claim.notices.append({**asked, "body": body, "schedule_run_id": row["id"]})


def _tell(conn: Connection, notices: Sequence[Mapping[str, Any]]) -> None:
    """Enter the notices of skipped tasks, keys in one order, so that two claims do not wait crosswise."""
    for notice in sorted(notices, key=lambda notice: str(notice.get("dedup_key", ""))):
        # What cannot be delivered to (blank, NUL) is no reason not to claim.
        with suppress(InvalidInputError):
            enqueue_dispatch(conn, **notice)


def _take(conn: Connection, row: Mapping[str, Any], claim: _Claim) -> None:
    write_status(
        conn,
        RUN,
        row,
        "running",
        reason_code="run.started.ok",
        reason_summary=f"claimed by worker {claim.worker_id}",
        source="system",
        actor=claim.worker_id,
        columns={
            "leased_by": claim.worker_id,
            "lease_expires_at": claim.now + claim.lease_seconds,
            "lease_attempts": row["lease_attempts"] + 1,
        },
        now=claim.now,
    )


def _claim_waiting(conn: Connection, claim: _Claim, limit: int) -> list[str]:
    """Claim what waits, longest first; the ids."""
    dialect = dialect_of(conn)
    waits = (*_in_queue, not_(_held_keys().exists()), *claim.servable(conn))
    look = select(*_place, _run.concurrency_key).where(*waits).order_by(*_place)
    # By id: with the tests of the queue's index some planners read the queue from its head instead.
    still = (_run.status == "queued", not_(_held_keys().exists()))
    take = select(schedule_runs).where(dialect.among(_run.id, "ids"), *still).order_by(*_place)
    claimed: list[str] = []
    scanned, behind, alone = 0, look, False
    while len(claimed) < limit and scanned < _MOST_SCANNED:
        wanted = limit - len(claimed)
        seen = conn.execute(behind.limit(wanted)).all()
        if not alone and any(row.concurrency_key is not None for row in seen):
            # Before the rows are locked: then who comes first also takes the first of a key.
            dialect.lock_word(conn, KEYS_WORD)
            alone = True
        taken: set[str | None] = set()
        for row in _locked(conn, take.params(ids=dialect.bind_ids([row.id for row in seen]))) if seen else ():
            too_long = outlasts(row["action_args"], claim.lease_seconds)
            if too_long is not None:
                _skip(conn, row, claim, TOO_LONG, too_long)
            elif row["concurrency_key"] not in taken:
                _take(conn, row, claim)
                claimed.append(row["id"])
                taken |= {row["concurrency_key"]} - {None}
        if len(seen) < wanted:
            break
        scanned += len(seen)
        behind = look.where(tuple_(*_place) > tuple_(seen[-1].queued_at, seen[-1].id))
    return claimed


def _skip_crowds(conn: Connection, claim: _Claim) -> None:
    """End the tasks that have too many before them at a held key, unless they park."""
    dialect = dialect_of(conn)
    held = select(_run.concurrency_key).where(is_status(_run.status, "running"), _run.concurrency_key.is_not(None))
    keys = conn.execute(held.distinct()).scalars().all()
    if not keys:
        return
    place = func.row_number().over(partition_by=_run.concurrency_key, order_by=_place).label("place")
    indexed = is_status(_run.status, "queued", "running", "retry_wait")
    waits = (dialect.among(_run.concurrency_key, "keys"), indexed, is_status(_run.status, "queued", "retry_wait"))
    waiting = select(_run.id, _run.schedule_id, place).where(*waits).subquery()
    # Tested in here: outside, some planners take it for a seek and read all runs without a schedule.
    crowded = select(waiting.c.id).where(waiting.c.place > MOST_WAITERS, waiting.c.schedule_id.is_(None))
    still = (_run.status == "queued", *claim.servable(conn))
    found = select(schedule_runs).where(_run.id.in_(crowded), *still).order_by(*_place)
    found = found.params(keys=dialect.bind_ids(keys))
    for row in _locked(conn, found.limit(_MOST_SKIPPED)):
        if not admits_parking(row["action_args"]):
            _skip(conn, row, claim, CAP_EXCEEDED, f"{MOST_WAITERS} tasks wait for the concurrency key before it")


@takes(
    worker_id=check_text,
    limit=whole(1, MOST_CLAIMED),
    lease_seconds=lease_length,
    advertised_capabilities=optional(texts),
    execution_targets=optional(texts),
    heartbeat_seconds=above(0),
    now=optional(finite_number),
)
def claim_tasks(
    conn: Connection,
    /,
    *,
    worker_id: str,
    limit: int = MOST_CLAIMED,
    lease_seconds: float = LEASE_SECONDS,
    advertised_capabilities: Sequence[str] | None = None,
    execution_targets: Sequence[str] | None = None,
    heartbeat_seconds: float = HEARTBEAT_SECONDS,
    now: float | None = None,
) -> list[dict[str, Any]]:
    """Lease the longest waiting tasks that a worker can serve; the rows."""
    now = time.time() if now is None else now
    worker = get_row(conn, workers, worker_id=worker_id)
    if worker is not None and now - worker["last_heartbeat_at"] > heartbeat_seconds:
        return []
    known = worker or {"advertised_capabilities": [], "execution_targets": DEFAULT_TARGETS}
    claim = _Claim(
        worker_id,
        known["advertised_capabilities"] if advertised_capabilities is None else advertised_capabilities,
        known["execution_targets"] if execution_targets is None else execution_targets,
        lease_seconds,
        now,
    )
    claimed = _claim_waiting(conn, claim, limit)
    _skip_crowds(conn, claim)
    _tell(conn, claim.notices)
    if not claimed:
        return []
    dialect = dialect_of(conn)
    found = select(schedule_runs).where(dialect.among(_run.id, "ids")).order_by(*_place)
    return all_rows(conn, found.params(ids=dialect.bind_ids(claimed)))


@takes(now=optional(finite_number), limit=page_limit)
def reap_expired_leases(conn: Connection, /, *, now: float | None = None, limit: int = 100) -> dict[str, int]:
    """Give tasks of expired leases back to the queue, or end them after three leases; how many of each."""
    now = time.time() if now is None else now
    expired = select(schedule_runs).where(is_status(_run.status, "running"), _run.lease_expires_at < now)
    counts = {"requeued": 0, "failed": 0}
    for row in _locked(conn, expired.order_by(_run.lease_expires_at, _run.id).limit(limit)):
        spent = row["lease_attempts"] >= MOST_ATTEMPTS
        write_status(
            conn,
            RUN,
            row,
            "failed" if spent else "queued",
            reason_code="run.failed.lease_attempts_exhausted" if spent else "run.queued.lease_expired",
            reason_summary=f"the lease expired, attempt {row['lease_attempts']} of {MOST_ATTEMPTS}",
            source="system",
            actor="task_worker_reaper",
            columns={"ended_at": now} if spent else {"leased_by": None, "lease_expires_at": None},
            now=now,
        )
        counts["failed" if spent else "requeued"] += 1
    return counts
