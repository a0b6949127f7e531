"""The metrics that threshold schedules watch, over the whole store.

Contract: ADR-0055 D1; reference §2.3.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from sqlalchemy import Connection, Text, case, func, literal, not_, select

from lionstate.dialects import dialect_of
from lionstate.records.arguments import takes, words
from lionstate.records.rows import count_rows
from lionstate.records.schedule_statistics import unreported
from lionstate.records.statistics import active_at
from lionstate.records.values import check_text, finite_number
from lionstate.schema.conversation import sessions
from lionstate.schema.execution import invocations
from lionstate.schema.scheduling import schedules

__all__ = ["metric_unreported_sessions", "metric_value"]

_polls = (schedules.c.trigger_type == "github_poll", schedules.c.enabled == 1)


def _failed_sessions(conn: Connection, window_start: float) -> float:
    """Causes, not sessions: those of one invocation that failed for one reason count once."""
    alone = literal("session:", Text) + sessions.c.id

    def shared(column: Any, prefix: str) -> Any:
        # A prefix each, so that no value of one kind equals a value of the other.
        return case((column.is_(None), alone), else_=literal(prefix, Text) + column)

    causes = select(
        shared(sessions.c.invocation_id, "invocation:").label("whose"),
        shared(sessions.c.status_reason_code, "reason:").label("why"),
    ).where(sessions.c.status.in_(("failed", "timed_out")), active_at >= window_start)
    return float(conn.execute(select(func.count()).select_from(causes.distinct().subquery())).scalar_one())


def _total_cost(conn: Connection, window_start: float) -> float:
    return float(conn.scalar(select(func.sum(sessions.c.total_cost_usd)).where(active_at >= window_start)) or 0)


def _consecutive_401(conn: Connection, _window_start: float) -> float:
    return float(conn.scalar(select(func.max(schedules.c.poller_consecutive_401)).where(*_polls)) or 0)


def _healthy_age(conn: Connection, _window_start: float) -> float:
    """0 while no poller was ever healthy: then there is nothing to be blind about."""
    last = conn.scalar(select(func.max(schedules.c.last_healthy_poll_at)).where(*_polls))
    return 0.0 if last is None else (time.time() - float(last)) / 60


def _p95_latency(conn: Connection, window_start: float) -> float:
    """Of the invocations that measured their own end: no cancellation, and none that a reaper ended."""
    row = invocations.c
    reaped = dialect_of(conn).array_has_object(row.status_evidence_refs, "kind", "invocation")
    measured = (row.started_at >= window_start, row.ended_at >= row.started_at, row.status != "cancelled", not_(reaped))
    count = count_rows(conn, invocations, *measured)
    if not count:
        return 0.0
    latency = row.ended_at - row.started_at
    rank = -(-95 * count // 100)
    found = select(latency).where(*measured).order_by(latency).limit(1).offset(rank - 1)
    return float(conn.execute(found).scalar_one()) * 1000


_METRICS: Final[Mapping[str, Callable[[Connection, float], float]]] = {
    "failed_sessions": _failed_sessions,
    "total_cost_usd": _total_cost,
    "github_poll_consecutive_401": _consecutive_401,
    "github_poll_healthy_age_minutes": _healthy_age,
    "p95_latency_ms": _p95_latency,
}


@takes(metric=words(_METRICS), window_start=finite_number)
def metric_value(conn: Connection, /, metric: str, window_start: float) -> float:
    """One metric from a time on."""
    return _METRICS[metric](conn, window_start)


@takes(metric=check_text, window_start=finite_number)
def metric_unreported_sessions(conn: Connection, /, metric: str, window_start: float) -> int:
    """How many ended sessions from a time on report no cost, for the metric of costs; 0 for any other."""
    if metric != "total_cost_usd":
        return 0
    return count_rows(conn, sessions, active_at >= window_start, unreported)
