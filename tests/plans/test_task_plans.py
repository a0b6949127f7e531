"""What a claim and a reaper send seeks in the partial indexes of runs: cost follows the queue, not the history."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sqlalchemy import Connection, event, insert

from lionstate.records.task_claims import claim_tasks, reap_expired_leases
from lionstate.records.tasks import cancel_task, list_tasks, submit_task
from lionstate.schema.scheduling import schedule_runs
from tests.support.backends import Backend
from tests.support.phases import run

HISTORY = 3_000
WAITING = 300


def _seed(conn: Connection) -> None:
    """A long history, a queue with keys of which some are held, and leases that ran out."""
    fixed = {"action_kind": "agent", "trigger_context": {}, "action_args": {}, "fired_at": 1.0, "created_at": 1.0}
    blank = {"concurrency_key": None, "leased_by": None, "lease_expires_at": None, "required_capabilities": ["x"]}
    rows: list[dict[str, Any]] = [
        {"id": f"h{number:04d}", "status": "completed", "queued_at": float(number), **fixed, **blank}
        for number in range(HISTORY)
    ]
    for number in range(WAITING):
        key = f"k{number % 50}" if number % 3 == 0 else None
        queued = {"id": f"q{number:05d}", "status": "queued", "queued_at": float(HISTORY + number)}
        rows.append({**queued, **fixed, **blank, "concurrency_key": key})
    for number in range(10):
        lease = {"concurrency_key": f"k{number}", "leased_by": "v", "lease_expires_at": 5.0}
        rows.append({"id": f"r{number}", "status": "running", "queued_at": 0.0, **fixed, **blank, **lease})
    conn.execute(insert(schedule_runs), rows)


async def _plans(backend: Backend, call: Callable[[Connection], Any]) -> list[str]:
    """The plans of the queries on runs that a call sends."""

    explain = "EXPLAIN " if backend.is_postgresql else "EXPLAIN QUERY PLAN "

    def script(conn: Connection) -> list[str]:
        sent: list[tuple[str, Any]] = []

        def note(_conn: Any, _cursor: Any, statement: str, parameters: Any, *_rest: Any) -> None:
            if "FROM schedule_runs" in statement:
                sent.append((statement, parameters))

        # On the cursor: before it, what the partial indexes want as a literal is none yet.
        event.listen(conn, "before_cursor_execute", note)
        try:
            call(conn)
        finally:
            event.remove(conn, "before_cursor_execute", note)
        plans = []
        for statement, parameters in sent:
            rows = conn.exec_driver_sql(explain + statement, parameters)
            plans.append("\n".join(str(row[-1]) for row in rows))
        return plans

    found: list[str] = await run(backend.direct, script)
    return found


def _reads_all(line: str) -> bool:
    """Whether a line of a plan goes through every run, or through every run without a schedule."""
    scan = "Seq Scan on schedule_runs" in line or ("SCAN schedule_runs" in line and "INDEX" not in line)
    return scan or "SEARCH schedule_runs USING INDEX idx_sched_runs_schedule" in line


@pytest.mark.parametrize("statistics", ["none", "fresh"])
async def test_claims_and_reapers_seek(backend: Backend, statistics: str) -> None:
    await run(backend.direct, _seed)
    if statistics == "fresh":
        await backend.execute("ANALYZE schedule_runs")
    elif backend.is_postgresql:
        await backend.execute("DELETE FROM pg_statistic WHERE starelid = CAST('schedule_runs' AS regclass)")
        await backend.execute("UPDATE pg_class SET reltuples = -1 WHERE relname = 'schedule_runs'")
    calls: dict[str, Callable[[Connection], Any]] = {
        "claim": lambda conn: claim_tasks(conn, worker_id="w", advertised_capabilities=["x"], now=2.0),
        "reap": lambda conn: reap_expired_leases(conn, now=9.0),
        "submit": lambda conn: submit_task(
            conn, action_kind="agent", args={}, execution_target="host", concurrency_key="k20"
        ),
        "list": lambda conn: list_tasks(conn, status=["queued"]),
        "cancel": lambda conn: cancel_task(conn, "q00299", actor="a"),
    }
    for name, call in calls.items():
        plans = await _plans(backend, call)
        assert plans, name
        for plan in plans:
            scans = [line for line in plan.splitlines() if _reads_all(line)]
            assert [] == scans, f"{name}:\n{plan}"
