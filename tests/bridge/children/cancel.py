"""Callers that go away in the middle of a message. Runs in the bridge's environment.

    python -I cancel.py URL MODE ROUNDS

Goes on with the session ``cancelled``; prints what was acknowledged and what is stored.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import random
import sys
import time
from typing import Any

from lionagi.state.db import StateDB

url, mode, rounds = sys.argv[1], sys.argv[2], int(sys.argv[3])


async def talk(db: StateDB) -> dict[str, Any]:
    """Each message is cancelled at another moment, often before it is through."""
    for part in ("whole", "part"):
        await db.create_progression(part)
    await db.create_session({"id": "cancelled", "progression_id": "whole", "status": "running"})
    first = len(await db.get_progression("part"))
    acknowledged = []
    usual = 0.0
    for number in range(rounds):
        name = f"{first:06d}-{number:06d}"
        row = {"id": name, "created_at": time.time(), "role": "user", "content": {"instruction": name}}
        more = {"session_id": "cancelled", "branch_progression_id": "part", "session_progression_id": "whole"}
        started = time.monotonic()
        task = asyncio.create_task(db._persist_live_message(row, **more))
        if number < 5:
            # Nobody goes away yet: how long one takes here.
            await task
            usual = max(usual, time.monotonic() - started)
        else:
            await asyncio.sleep(random.random() * 1.5 * usual)
        task.cancel()
        try:
            await task
            acknowledged.append(name)
        except asyncio.CancelledError:
            pass
    found = [await db.get_progression(part) for part in ("part", "whole")]
    stored = [row["id"] for row in await db.fetch_all("SELECT id FROM messages ORDER BY id")]
    return {"acknowledged": acknowledged, "part": found[0], "whole": found[1], "stored": stored}


async def main() -> None:
    """Talk and say what is left."""
    if mode != "plain":
        importlib.import_module("lionstate.lionagi").install(daemon=None if mode == "bridge" else mode)
    async with StateDB() as db:
        sys.stdout.write(json.dumps(await talk(db)) + "\n")


if __name__ == "__main__":
    asyncio.run(main())
