"""What one live message costs through LionAGI's own API, by length of history. Runs in the bridge's environment.

    python -I bridge_cost.py URL

Makes two sessions, of 1,000 and of 100,000 messages, measures, says ``{"at": "json"}`` and waits for a line while its
parent migrates; then it installs the bridge, measures again and prints both. Sizes take turns, message by message.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import sys
import time
import uuid
from typing import Any

from lionagi.state.db import StateDB

SIZES = (1_000, 100_000)
WARM_UP, BEFORE, AFTER = 5, 40, 400


def message() -> dict[str, Any]:
    """A message row as the live path builds it."""
    content = {"instruction": "how late is it?"}
    metadata = {"lion_class": "lionagi.protocols.messages.instruction.Instruction"}
    now = time.time()
    return {"id": str(uuid.uuid4()), "created_at": now, "role": "user", "content": content, "node_metadata": metadata}


async def make(db: StateDB, size: int) -> None:
    """A session and a branch with this many ids each; their messages are of no account here."""
    ids = [str(uuid.uuid4()) for _ in range(size)]
    for kind in ("session", "branch"):
        await db.create_progression(f"{kind}-progression-{size}", ids)
    now = time.time() - 100_000
    session = {"id": f"session-{size}", "progression_id": f"session-progression-{size}", "status": "running"}
    await db.create_session({**session, "started_at": now, "last_message_at": now})
    await db.create_branch(
        {"id": f"branch-{size}", "session_id": f"session-{size}", "progression_id": f"branch-progression-{size}"}
    )


async def one(db: StateDB, size: int) -> float:
    """Seconds of one live message."""
    row = message()
    started = time.perf_counter()
    await db._persist_live_message(
        row,
        session_id=f"session-{size}",
        branch_progression_id=f"branch-progression-{size}",
        session_progression_id=f"session-progression-{size}",
        activity_at=row["created_at"],
    )
    return time.perf_counter() - started


async def measure(db: StateDB, count: int) -> dict[int, list[float]]:
    """Costs by size."""
    costs: dict[int, list[float]] = {size: [] for size in SIZES}
    for number in range(WARM_UP + count):
        for size in SIZES:
            cost = await one(db, size)
            if number >= WARM_UP:
                costs[size].append(cost)
    return costs


async def main() -> None:
    """Measure, wait for the migration, measure."""
    async with StateDB(url=sys.argv[1]) as db:
        for size in SIZES:
            await make(db, size)
        before = await measure(db, BEFORE)
        sys.stdout.write(json.dumps({"at": "json"}) + "\n")
        sys.stdout.flush()
        await asyncio.to_thread(sys.stdin.readline)
        importlib.import_module("lionstate.lionagi").install()
        after = await measure(db, AFTER)
        lengths = {size: len(await db.get_progression(f"branch-progression-{size}")) for size in SIZES}
        sys.stdout.write(json.dumps({"before": before, "after": after, "lengths": lengths}) + "\n")


if __name__ == "__main__":
    asyncio.run(main())
