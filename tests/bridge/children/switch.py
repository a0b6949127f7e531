"""One conversation on whatever store it is, and what LionAGI says of it. Runs in the bridge's environment.

    python -I switch.py URL MODE NAME

Starts the session NAME, or goes on with it when it exists; prints the ids of its branch, the errors of what was refused
and whether this process is bridged.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import sys
import time
from typing import Any

from lionagi.state.db import StateDB

url, mode, name = sys.argv[1:4]


def message(number: int) -> dict[str, Any]:
    """A message of the conversation."""
    content = {"instruction": f"said {number}"}
    return {"id": f"{name}-{number}", "created_at": time.time(), "role": "user", "content": content}


async def talk(db: StateDB) -> dict[str, Any]:
    """Five more messages."""
    for part in ("whole", "part"):
        await db.create_progression(f"{name}-{part}")
    await db.create_session({"id": name, "progression_id": f"{name}-whole", "status": "running"})
    await db.create_branch({"id": f"{name}-branch", "session_id": name, "progression_id": f"{name}-part"})
    known = len(await db.get_progression(f"{name}-part"))
    errors = []
    for number in range(known, known + 5):
        try:
            await db._persist_live_message(
                message(number),
                session_id=name,
                branch_progression_id=f"{name}-part",
                session_progression_id=f"{name}-whole",
            )
        except Exception as error:
            errors.append(f"{type(error).__name__}: {getattr(error, 'orig', error)}")
    ids = await db.get_progression(f"{name}-part")
    stored = await db.get_messages([f"{name}-{number}" for number in range(known, known + 5)])
    return {"known": known, "errors": errors, "ids": ids, "stored": len(stored)}


async def main() -> None:
    """Bridge if asked to, talk, say."""
    bridge = None
    if mode != "plain":
        bridge = importlib.import_module("lionstate.lionagi")
        bridge.install(daemon=None if mode == "bridge" else mode)
    async with StateDB() as db:
        try:
            found = await talk(db)
        except Exception as error:
            found = {"failed": f"{type(error).__name__}: {error}"}
    if bridge is not None:
        bridge.uninstall()
    found["own code again"] = "lionagi/state/" in StateDB.create_progression.__code__.co_filename
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    asyncio.run(main())
