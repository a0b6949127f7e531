"""What the runs of schedules add up to: counts, streaks, evidence of health, spend.

Contract: ADR-0055 D1; reference §2.3.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Row, and_, case, func, select

from lionstate.dialects import dialect_of
from lionstate.records.arguments import optional, takes, texts, whole
from lionstate.records.rows import all_rows, count_rows, first_of_each
from lionstate.records.schedule_runs import statuses as _statuses
from lionstate.records.status_vocabulary import ENTITIES
from lionstate.records.values import check_text, finite_number
from lionstate.schema.conversation import sessions
from lionstate.schema.scheduling import schedule_runs

__all__ = [
    "count_schedule_runs",
    "count_schedule_runs_batch",
    "schedule_health_evidence",
    "schedule_run_streak",
    "schedule_run_streaks",
    "sum_schedule_spend",
    "unreported",
]

FINISHED: Final = ("completed", "failed", "cancelled", "timed_out")
_EXECUTED = ("running", *FINISHED)
_STREAK_RUNS = 50
_run = schedule_runs.c
_newest = (_run.fired_at.desc(), _run.id.desc())
_counted = {"chain_depth": whole(), "statuses": _statuses}
unreported = and_(sessions.c.total_cost_usd.is_(None), sessions.c.status.in_(sorted(ENTITIES["session"].terminal)))


@takes(schedule_id=check_text, fired_after=optional(finite_number), **_counted)
def count_schedule_runs(
    conn: Connection,
    /,
    schedule_id: str,
    *,
    chain_depth: int = 0,
    statuses: Sequence[str] = FINISHED,
    fired_after: float | None = None,
) -> int:
    """How many runs of a schedule have one of these statuses."""
    conditions: list[ColumnElement[bool]] = [_run.status.in_(statuses)]
    if fired_after is not None:
        conditions.append(_run.fired_at >= fired_after)
    return count_rows(conn, schedule_runs, *conditions, schedule_id=schedule_id, chain_depth=chain_depth)


@takes(schedule_ids=texts, **_counted)
def count_schedule_runs_batch(
    conn: Connection,
    /,
    schedule_ids: Sequence[str],
    *,
    chain_depth: int = 0,
    statuses: Sequence[str] = FINISHED,
) -> dict[str, int]:
    """The same for several schedules, 0 for those without runs."""
    dialect = dialect_of(conn)
    found = select(_run.schedule_id, func.count()).where(dialect.among(_run.schedule_id, "ids"))
    found = found.where(_run.chain_depth == chain_depth, _run.status.in_(statuses)).group_by(_run.schedule_id)
    counted: dict[str, int] = {
        row[0]: int(row[1]) for row in conn.execute(found, {"ids": dialect.bind_ids(schedule_ids)})
    }
    return {schedule_id: counted.get(schedule_id, 0) for schedule_id in schedule_ids}


def _streak(newest: Sequence[str]) -> tuple[int, str | None]:
    """Failures until a run ended well or was cancelled, and the last status."""
    failures = 0
    for status in newest:
        if status in ("completed", "cancelled"):
            break
        failures += status == "failed"
    return failures, newest[0] if newest else None


@takes(schedule_id=check_text)
def schedule_run_streak(conn: Connection, /, schedule_id: str) -> tuple[int, str | None]:
    """How many of the newest 50 top-level runs failed since one ended otherwise, and the last status."""
    found = select(_run.status).where(_run.schedule_id == schedule_id, _run.chain_depth == 0)
    return _streak(list(conn.execute(found.order_by(*_newest).limit(_STREAK_RUNS)).scalars()))


def _newest_runs(conn: Connection, schedule_ids: Sequence[str], limit: int, *conditions: Any) -> Sequence[Row[Any]]:
    """Schedule, status and time of the newest top-level runs of each schedule, newest first."""
    columns = (_run.schedule_id, _run.status, _run.fired_at)
    top = _run.chain_depth == 0
    found = first_of_each(conn, columns, _run.schedule_id, schedule_ids, top, *conditions, order=_newest, limit=limit)
    return conn.execute(found).all()


@takes(schedule_ids=texts)
def schedule_run_streaks(conn: Connection, /, schedule_ids: Sequence[str]) -> dict[str, tuple[int, str | None]]:
    """The same for several schedules."""
    newest: dict[str, list[str]] = {schedule_id: [] for schedule_id in schedule_ids}
    for row in _newest_runs(conn, schedule_ids, _STREAK_RUNS):
        newest[row.schedule_id].append(row.status)
    return {schedule_id: _streak(found) for schedule_id, found in newest.items()}


@takes(schedule_ids=texts)
def schedule_health_evidence(conn: Connection, /, schedule_ids: Sequence[str]) -> dict[str, dict[str, Any]]:
    """When each schedule last recorded and last executed a top-level run, and how that one stands."""
    recorded = {row.schedule_id: row for row in _newest_runs(conn, schedule_ids, 1)}
    executed = {row.schedule_id: row for row in _newest_runs(conn, schedule_ids, 1, _run.status.in_(_EXECUTED))}
    return {
        schedule_id: {
            "last_recorded_run_at": getattr(recorded.get(schedule_id), "fired_at", None),
            "last_executed_status": getattr(executed.get(schedule_id), "status", None),
            "last_executed_run_at": getattr(executed.get(schedule_id), "fired_at", None),
        }
        for schedule_id in schedule_ids
    }


@takes(schedule_id=check_text)
def sum_schedule_spend(conn: Connection, /, schedule_id: str) -> dict[str, Any]:
    """What the sessions of a schedule's runs report to have spent, each session once."""
    invocations = select(_run.invocation_id).where(_run.schedule_id == schedule_id, _run.invocation_id.is_not(None))
    sums = select(
        func.sum(sessions.c.total_cost_usd).label("cost_usd"),
        func.sum(sessions.c.input_tokens).label("input_tokens"),
        func.sum(sessions.c.output_tokens).label("output_tokens"),
        func.sum(case((unreported, 1), else_=0)).label("unreported_sessions"),
    )
    (row,) = all_rows(conn, sums.where(sessions.c.invocation_id.in_(invocations)))
    return {
        "cost_usd": float(row["cost_usd"] or 0),
        "tokens": int(row["input_tokens"] or 0) + int(row["output_tokens"] or 0),
        "unreported_sessions": int(row["unreported_sessions"] or 0),
    }
