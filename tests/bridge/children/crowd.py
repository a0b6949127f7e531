"""One of several agents that write one store at the same time, for a while. Runs in the bridge's environment.

    python -I crowd.py URL MODE SECONDS NUMBER

Waits for a line on standard input when it is ready. Prints what was acknowledged, in order, and every error.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import sys
import time
from collections import Counter
from typing import Any

from lionagi.state.db import StateDB

url, mode, seconds, number = sys.argv[1], sys.argv[2], float(sys.argv[3]), sys.argv[4]
SHARED = "shared"


def message(name: str) -> dict[str, Any]:
    """A message row as the live path builds it."""
    content = {"instruction": f"said by {number}"}
    return {"id": name, "created_at": time.time(), "role": "user", "content": content}


async def write(db: StateDB) -> dict[str, Any]:
    """Live messages for a while; every twentieth time a change of the session, which is LionAGI's own statement."""
    session, part = f"session-{number}", f"part-{number}"
    acknowledged: list[str] = []
    errors: Counter[str] = Counter()
    tried = 0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        tried += 1
        name = f"{number}-{tried:06d}"
        try:
            await db._persist_live_message(
                message(name), session_id=session, branch_progression_id=part, session_progression_id=SHARED
            )
            acknowledged.append(name)
            if tried % 20 == 0:
                await db.update_session(session, num_turns=tried)
        except Exception as error:
            errors[f"{type(error).__name__}: {error}"[:200]] += 1
    return {"acknowledged": acknowledged, "errors": dict(errors)}


async def main() -> None:
    """Make a session of its own, wait, write."""
    if mode != "plain":
        importlib.import_module("lionstate.lionagi").install(daemon=None if mode == "bridge" else mode)
    async with StateDB(url=url) as db:
        await db.create_progression(SHARED)
        await db.create_progression(f"part-{number}")
        await db.create_session({"id": f"session-{number}", "progression_id": SHARED, "status": "running"})
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        await asyncio.to_thread(sys.stdin.readline)
        found = await write(db)
        sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    asyncio.run(main())
