"""What a status change does to the columns beside it: ends, durations, recorded cancellations; pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lionstate.records.status_vocabulary import Entity

__all__ = ["settle_change"]

_REASON = ("status_reason_code", "status_reason_summary", "status_evidence_refs")


def settle_change(
    entity: Entity, row: Mapping[str, Any], status: str, changes: Mapping[str, Any], *, now: float, override: bool
) -> dict[str, Any]:
    """The columns to write with a new status.

    Args:
        row: The stored row.
        changes: The reason's columns and what the caller changes as well.

    Contract: reference §2.8.
    """
    if entity.name == "session" and status in entity.terminal and row["status"] != status:
        return _ended_session(row, changes, now)
    if entity.name == "invocation" and status == "cancelled" and not override:
        return _observed_cancellation(row, changes)
    return dict(changes)


def _ended_session(row: Mapping[str, Any], changes: Mapping[str, Any], now: float) -> dict[str, Any]:
    """A session's end, whether it was measured, and the duration, which move together."""
    settled = dict(changes)
    ended_at = changes.get("ended_at", row["ended_at"])
    if ended_at is None or ("ended_at" not in changes and row["ended_at_is_approximate"]):
        # Nobody measured an end: this change is it, whatever the caller says about one it does not give.
        ended_at = now
        settled["ended_at_is_approximate"] = 0
    settled["ended_at"] = ended_at
    settled.setdefault("ended_at_is_approximate", 0)
    if settled["ended_at_is_approximate"]:
        settled["duration_ms"] = None
    elif "duration_ms" not in changes and row["started_at"] is not None:
        settled["duration_ms"] = max(0.0, (ended_at - row["started_at"]) * 1000)
    return settled


def _observed_cancellation(row: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Another cancellation of an invocation keeps the end, and of a cancelled one the reason, that are recorded."""
    kept = ["ended_at", *(_REASON if row["status"] == "cancelled" else ())]
    return {name: value for name, value in changes.items() if name not in kept or row[name] is None}
