"""Write a store with LionAGI itself and print what LionAGI reads back. Runs in LionAGI's environment.

    python -I lionagi_write.py URL

Nothing of lionstate is imported here. Four sessions: live messages of two branches, a mirrored transcript of 2,500
messages, an imported run whose progression names ids twice and one id without a message, and one without messages.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
import uuid
from pathlib import Path
from typing import Any

from lionagi import Branch, Session
from lionagi.protocols.messages import AssistantResponse, Instruction
from lionagi.protocols.messages.manager import MessageManager
from lionagi.state import StateDB
from lionagi.state._mirror_common import write_mirrored_messages

# The sibling is found after everything installed, or `lionagi` would be the driver's module of this folder.
sys.path.append(str(Path(__file__).parent))
from lionagi_dump import dump

MIRRORED = 2_500
ROUNDS = 15


async def _session(db: StateDB, session: Session, collection: list[str] | None = None) -> str:
    """Create a session's row and its progression; returns the progression."""
    progression = str(uuid.uuid4())
    await db.create_progression(progression, collection)
    row = session.to_dict(mode="db")
    await db.create_session(
        {
            "id": row["id"],
            "created_at": row["created_at"],
            "node_metadata": row["node_metadata"],
            "name": row["name"],
            "progression_id": progression,
            "status": "running",
            "started_at": time.time(),
            "invocation_kind": "agent",
        }
    )
    return progression


async def _branch(db: StateDB, session: Session, branch: Branch, collection: list[str] | None = None) -> str:
    """Create a branch's row and its progression; returns the progression."""
    progression = str(uuid.uuid4())
    await db.create_progression(progression, collection)
    row = branch.to_dict(mode="db")
    await db.create_branch(
        {
            "id": row["id"],
            "created_at": row["created_at"],
            "node_metadata": row["node_metadata"],
            "user": row.get("user"),
            "name": row.get("name"),
            "session_id": str(session.id),
            "progression_id": progression,
            "agent_name": "demonstration",
        }
    )
    return progression


def _turn(branch: Branch, number: int) -> list[Any]:
    """One turn of a conversation: an instruction, a tool's use and result, an answer."""
    who = branch.id
    add = branch.msgs.add_message
    asked = add(instruction=f"Frage {number}: wie spät ist es?", sender="user", recipient=who)
    use = add(action_function="clock", action_arguments={"zone": "CET", "n": number}, sender=who, recipient=who)
    result = add(action_request=use, action_output={"time": "12:00", "parts": [12, 0, None, 1.5]})
    answer = add(assistant_response=f"Es ist zwölf. 🦁 {number}", sender=who, recipient="user")
    return [asked, use, result, answer]


async def _live(db: StateDB) -> None:
    session = Session(name="live")
    branches = [session.new_branch(name=name, system=f"You are the {name}.") for name in ("lead", "helper")]
    whole = await _session(db, session)
    parts = {branch.id: await _branch(db, session, branch) for branch in branches}

    async def persist(branch: Branch, message: Any) -> None:
        row = message.to_dict(mode="db")
        await db._persist_live_message(
            row,
            session_id=str(session.id),
            branch_progression_id=parts[branch.id],
            session_progression_id=whole,
            system_branch_id=str(branch.id) if row["role"] == "system" else None,
            activity_at=row["created_at"],
        )

    for branch in branches:
        await persist(branch, branch.system)
    for number in range(ROUNDS):
        turns = [_turn(branch, number) for branch in branches]
        for messages in zip(*turns, strict=True):
            for branch, message in zip(branches, messages, strict=True):
                await persist(branch, message)
        # A retry, as the queue of failed messages makes it: it must not take a second place.
        await persist(branches[0], turns[0][-1])


def _said(branch: Branch, number: int) -> dict[str, Any]:
    """A message row as the transcript mirrors build it."""
    message: Instruction | AssistantResponse
    if number % 2:
        message = MessageManager.create_assistant_response(
            assistant_response=f"answer {number}", sender=branch.id, recipient="user"
        )
    else:
        message = MessageManager.create_instruction(
            instruction=f"question {number}", sender="user", recipient=branch.id
        )
    row: dict[str, Any] = message.to_dict(mode="db")
    if number % 100 == 0:
        row["embedding"] = [0.5, -1.25, float(number)]
    return row


async def _mirrored(db: StateDB) -> None:
    session, branch = Session(name="mirrored"), Branch(name="transcript")
    whole = await _session(db, session)
    part = await _branch(db, session, branch)
    rows = [_said(branch, number) for number in range(MIRRORED)]
    await write_mirrored_messages(
        db,
        rows,
        progression_ids=(part, whole),
        session_id=str(session.id),
        activity_at=rows[-1]["created_at"],
    )


async def _imported(db: StateDB) -> None:
    session, branch = Session(name="imported"), Branch(name="old run")
    rows = [_said(branch, number) for number in range(40)]
    await db.insert_messages(rows)
    ids = [row["id"] for row in rows]
    # As a release before duplicate checks left it; the last id's message was pruned.
    listed = [*ids[:20], ids[3], *ids[20:], ids[3], ids[39], str(uuid.uuid4())]
    whole = await _session(db, session, ids)
    await db.set_progression(whole, listed)
    await _branch(db, session, branch, listed)


async def _idle(db: StateDB) -> None:
    session, branch = Session(name="idle"), Branch(name="nothing said")
    await _session(db, session)
    await _branch(db, session, branch)


async def _other_records(db: StateDB) -> None:
    for text in ("first", "second"):
        await db.save_definition(kind="agent", name="clock", path="agents/clock.md", content=text, message=text)
    await db.save_definition(kind="skill", name="time", path="skills/time.md", content="kept by 0.36.0 only")
    (session,) = [row for row in await db.list_sessions() if row["name"] == "live"]
    invocation = str(uuid.uuid4())
    await db.create_invocation({"id": invocation, "skill": "clock", "started_at": time.time()})
    await db.insert_artifact(
        kind="report", name="times", content={"zones": ["CET"], "ok": True}, session_id=session["id"]
    )
    await db.insert_artifact(kind="log", name="run", content={"lines": 3}, invocation_id=invocation)
    await db.insert_admin_event(action="demonstrated", details={"by": "0.36.0"}, target_id=session["id"])


async def main() -> None:
    """Write the store that the only argument names."""
    async with StateDB(url=sys.argv[1]) as db:
        for part in (_live, _mirrored, _imported, _idle, _other_records):
            await part(db)
        sys.stdout.write(json.dumps(await dump(db)) + "\n")


if __name__ == "__main__":
    asyncio.run(main())
