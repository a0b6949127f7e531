"""Aggregates over sessions: activity and spend.

Contract: ADR-0055 D1; reference §2.1.
"""

from __future__ import annotations

import time
from typing import Any

from sqlalchemy import ColumnElement, Connection, case, func, inspect, select

from lionstate.dialects import dialect_of
from lionstate.errors import InvalidInputError
from lionstate.records.arguments import takes, whole, words
from lionstate.records.rows import all_rows
from lionstate.records.values import finite_number
from lionstate.schema import RECORD_TABLES
from lionstate.schema.conversation import messages, sessions
from lionstate.schema.own import progression_items

__all__ = ["active_at", "activity_stats", "spend_rollup", "spend_stats", "store_stats"]

_MOST_BUCKETS = 10_000
_MOST_GROUPS = 50
_DIMENSIONS = {
    "project": sessions.c.project,
    "agent": sessions.c.agent_name,
    "playbook": sessions.c.playbook_name,
}
active_at: ColumnElement[Any] = func.coalesce(sessions.c.ended_at, sessions.c.started_at, sessions.c.created_at)
_spend = func.sum(sessions.c.total_cost_usd)
_SUMS: tuple[ColumnElement[Any], ...] = (
    _spend.label("reported_usd"),
    func.count(sessions.c.total_cost_usd).label("reported_count"),
    func.sum(case((sessions.c.total_cost_usd.is_(None), 1), else_=0)).label("unreported_count"),
)


def _few_buckets(params: dict[str, Any]) -> dict[str, Any]:
    if (time.time() - params["window_start"]) / params["bucket_seconds"] > _MOST_BUCKETS:
        raise InvalidInputError(f"the window has more than {_MOST_BUCKETS} buckets")
    return params


@takes(_few_buckets, window_start=finite_number, bucket_seconds=whole(1))
def activity_stats(conn: Connection, /, *, window_start: float, bucket_seconds: int) -> list[dict[str, Any]]:
    """Sessions of a window counted by bucket and status, ascending."""
    start = (dialect_of(conn).whole_part(active_at / bucket_seconds) * bucket_seconds).label("bucket_start")
    found = select(start, sessions.c.status, func.count().label("n")).where(active_at >= window_start)
    return all_rows(conn, found.group_by(start, sessions.c.status).order_by(start, sessions.c.status))


def _numbers(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "unreported_count": int(row["unreported_count"] or 0)}


@takes(window_start=finite_number)
def spend_stats(conn: Connection, /, *, window_start: float) -> dict[str, Any]:
    """What the sessions of a window report to have spent, and how many report nothing."""
    (row,) = all_rows(conn, select(*_SUMS).where(active_at >= window_start))
    return _numbers(row)


@takes(window_start=finite_number, dimension=words(_DIMENSIONS), limit=whole(-(2**31)))
def spend_rollup(conn: Connection, /, *, window_start: float, dimension: str, limit: int = 20) -> list[dict[str, Any]]:
    """The same by project, agent or playbook, highest reported spend first, at most 50 rows."""
    column = _DIMENSIONS[dimension]
    found = select(column.label("key"), *_SUMS).where(active_at >= window_start).group_by(column)
    # An aggregate, not its label: PostgreSQL takes no label inside an expression.
    order = (case((_spend.is_(None), 1), else_=0), _spend.desc(), column)
    rows = all_rows(conn, found.order_by(*order).limit(max(1, min(limit, _MOST_GROUPS))))
    return [_numbers(row) for row in rows]


def _counted(conn: Connection, column: ColumnElement[Any]) -> dict[str, int]:
    rows = conn.execute(select(column, func.count()).group_by(column).order_by(column))
    return {"none" if word is None else str(word): int(count) for word, count in rows}


@takes()
def store_stats(conn: Connection, /) -> dict[str, Any]:
    """What a store holds: rows by table, sessions by status, messages by role, bytes on disk."""
    present = set(inspect(conn).get_table_names())
    tables = [table for table in (*RECORD_TABLES, progression_items) if table.name in present]
    return {
        "rows": {table.name: conn.execute(select(func.count()).select_from(table)).scalar_one() for table in tables},
        "sessions_by_status": _counted(conn, sessions.c.status),
        "messages_by_role": _counted(conn, messages.c.role),
        "bytes": dialect_of(conn).store_bytes(conn),
    }
