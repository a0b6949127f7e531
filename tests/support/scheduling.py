"""Schedules and runs as the tests of their families make them."""

from __future__ import annotations

from typing import Any

__all__ = ["run", "schedule", "task"]


def schedule(schedule_id: str, **columns: Any) -> dict[str, Any]:
    """A schedule by interval."""
    return {
        "id": schedule_id,
        "name": f"name-{schedule_id}",
        "trigger_type": "interval",
        "action_kind": "agent",
        **columns,
    }


def run(run_id: str, schedule_id: str | None = None, **columns: Any) -> dict[str, Any]:
    """A run of an agent."""
    fixed = {"trigger_context": {"t": 1}, "action_kind": "agent", "action_args": {"a": [None]}, "fired_at": 1.0}
    return {"id": run_id, "schedule_id": schedule_id, **fixed, **columns}


def task(**columns: Any) -> dict[str, Any]:
    """The arguments of a submission that any worker on a host can serve."""
    return {"action_kind": "agent", "args": {}, "execution_target": "host", **columns}
