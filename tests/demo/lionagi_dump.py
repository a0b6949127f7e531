"""What LionAGI reads from a store, through its own methods. Runs in LionAGI's environment."""

from __future__ import annotations

from typing import Any

from lionagi.state import StateDB

__all__ = ["dump"]

TABLES = (
    "admin_events",
    "artifacts",
    "branches",
    "definitions",
    "invocations",
    "messages",
    "progressions",
    "sessions",
    "status_transitions",
)


async def _conversations(db: StateDB) -> dict[str, Any]:
    found: dict[str, Any] = {"sessions": {}, "branches": {}, "progressions": {}, "artifacts": {}}
    for session in await db.list_sessions(limit=1_000):
        found["sessions"][session["id"]] = session
        found["artifacts"][session["id"]] = await db.list_artifacts_for_session(session["id"])
        progressions = [session["progression_id"]]
        for branch in await db.list_branches(session["id"]):
            messages = await db.get_branch_messages(branch["id"])
            found["branches"][branch["id"]] = {"branch": branch, "messages": messages}
            progressions.append(branch["progression_id"])
        for progression in progressions:
            found["progressions"][progression] = await db.get_progression(progression)
    return found


async def dump(db: StateDB) -> dict[str, Any]:
    """Read every conversation in LionAGI's order, and the other records.

    Returns:
        ``counts`` by table; ``sessions``, ``branches`` (row and messages), ``progressions`` (ids) and ``artifacts``
        by id; ``definitions`` and ``admin_events`` as lists. All of it JSON.
    """
    counts = {}
    for table in TABLES:
        row = await db.fetch_one(f"SELECT COUNT(*) AS n FROM {table}")
        counts[table] = row["n"]
    latest = sorted(await db.list_latest_definition_versions(), key=lambda row: row["name"])
    return {
        "counts": counts,
        **await _conversations(db),
        "definitions": [await db.get_definition(row["kind"], row["name"]) for row in latest],
        "admin_events": await db.list_admin_events(action="demonstrated"),
    }
