"""Open a migrated store with LionAGI itself, read it, and try all its writes. Runs in LionAGI's environment.

    python -I lionagi_read.py URL

Prints one JSON object: ``dump`` (see lionagi_dump), ``attempts`` on the progressions that were there, ``statements``
(the text of each changing statement on `progressions` as the driver got it), and the ``added`` conversation.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
import uuid
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from lionagi.state import StateDB
from sqlalchemy import event

# The sibling is found after everything installed, or `lionagi` would be the driver's module of this folder.
sys.path.append(str(Path(__file__).parent))
from lionagi_dump import dump

Attempt = Callable[[StateDB, str, str, str], Awaitable[None]]


def _message(message_id: str) -> dict[str, Any]:
    return {
        "id": message_id,
        "created_at": time.time(),
        "role": "user",
        "content": {"instruction": "said after the migration"},
        "node_metadata": {"lion_class": "lionagi.protocols.messages.instruction.Instruction"},
    }


async def _live(db: StateDB, session: str, progression: str, message_id: str) -> None:
    await db._persist_live_message(
        _message(message_id), session_id=session, branch_progression_id=progression, activity_at=time.time()
    )


async def _append(db: StateDB, session: str, progression: str, message_id: str) -> None:
    await db.append_to_progression(progression, message_id)


async def _extend(db: StateDB, session: str, progression: str, message_id: str) -> None:
    await db.insert_messages([_message(message_id)], progression_ids=[progression], session_id=session)


async def _replace(db: StateDB, session: str, progression: str, message_id: str) -> None:
    await db.set_progression(progression, [message_id])


# The rows of reference §3.1 that change the value of an existing progression.
ATTEMPTS: dict[str, Attempt] = {"live": _live, "append": _append, "extend": _extend, "replace": _replace}


async def _try(db: StateDB, how: str, session: str, progression: str) -> dict[str, Any]:
    """Try one way to change a progression; says the error and whether anything of it stayed."""
    before = await db.get_progression(progression)
    message_id = str(uuid.uuid4())
    error = says = None
    try:
        await ATTEMPTS[how](db, session, progression, message_id)
    except Exception as exc:
        error, says = type(exc).__name__, str(getattr(exc, "orig", exc))
    left = await db.get_message(message_id) is not None or await db.get_progression(progression) != before
    return {"how": how, "progression": progression, "error": error, "says": says, "left": left}


async def _retry(db: StateDB, session: str, progression: str) -> dict[str, Any] | None:
    """Send a live message again that the progression holds: as in every retry, nothing may happen."""
    before = await db.get_progression(progression)
    rows = await db.get_messages(before[:1])
    if not rows:
        return None
    error = None
    try:
        await db._persist_live_message(rows[before[0]], session_id=session, branch_progression_id=progression)
    except Exception as exc:
        error = type(exc).__name__
    same = await db.get_progression(progression) == before
    return {"how": "retry", "progression": progression, "error": error, "says": None, "left": not same}


async def _attempts(db: StateDB, found: dict[str, Any]) -> list[dict[str, Any]]:
    owners = {row["progression_id"]: session for session, row in found["sessions"].items()}
    for entry in found["branches"].values():
        owners[entry["branch"]["progression_id"]] = entry["branch"]["session_id"]
    made = []
    for progression, session in owners.items():
        made += [await _try(db, how, session, progression) for how in ATTEMPTS]
        made.append(await _retry(db, session, progression))
    return [attempt for attempt in made if attempt is not None]


async def _new_conversation(db: StateDB) -> dict[str, Any]:
    """Go on as LionAGI does: a new session has a progression of its own, which nobody has cut over."""
    session, branch, part, whole = (str(uuid.uuid4()) for _ in range(4))
    for progression in (part, whole):
        await db.create_progression(progression)
    await db.create_session({"id": session, "progression_id": whole, "name": "after", "status": "running"})
    await db.create_branch({"id": branch, "session_id": session, "progression_id": part, "name": "after"})
    sent = [str(uuid.uuid4()) for _ in range(5)]
    for message_id in sent:
        await db._persist_live_message(
            _message(message_id), session_id=session, branch_progression_id=part, session_progression_id=whole
        )
    messages = await db.get_branch_messages(branch)
    return {"session": session, "branch": branch, "progressions": [part, whole], "sent": sent, "messages": messages}


async def main() -> None:
    """Work on the store that the only argument names."""
    statements: set[str] = set()
    async with StateDB(url=sys.argv[1]) as db:

        @event.listens_for(db._engine.sync_engine, "before_cursor_execute")
        def note(_conn: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
            if statement.startswith("UPDATE progressions"):
                statements.add(statement)

        found = await dump(db)
        answer = {
            "dump": found,
            "attempts": await _attempts(db, found),
            "statements": sorted(statements),
            "added": await _new_conversation(db),
        }
        sys.stdout.write(json.dumps(answer) + "\n")


if __name__ == "__main__":
    asyncio.run(main())
