"""A run of LionAGI without a network: agents talk, live persistence on. Runs in the bridge's environment.

    python -I talk.py URL MODE MESSAGES

MODE is ``plain``, ``bridge`` or a daemon's address. Prints one JSON object a line: at each checkpoint ``{"at": NAME}``,
after which it waits for a line on standard input, and at the end what it found.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import sys
from typing import Any

from lionagi import Branch
from lionagi.cli import _runs
from lionagi.state.db import StateDB

url, mode, total = sys.argv[1], sys.argv[2], int(sys.argv[3])
ON_SQLITE = "postgresql" not in url


def tell(what: dict[str, Any]) -> None:
    """Say one thing to the parent."""
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


async def checkpoint(name: str) -> None:
    """Wait until the parent says to go on."""
    tell({"at": name})
    await asyncio.to_thread(sys.stdin.readline)


async def say(branch: Branch, number: int, *, answer: bool) -> Any:
    """One message on a branch, persisted by LionAGI's own hooks."""
    if answer:
        return await branch.msgs.a_add_message(
            assistant_response=f"answer {number}", sender=branch.id, recipient="user"
        )
    return await branch.msgs.a_add_message(instruction=f"question {number}", sender="user", recipient=branch.id)


class Agents:
    """The branches of the run, each with a session of its own as ``li agent`` makes it."""

    def __init__(self) -> None:
        self.branches = {name: Branch(name=name, system=f"You are the {name}.") for name in NAMES}
        self.live: dict[str, dict[str, Any]] = {}
        self.statuses: dict[str, list[str]] = {name: [] for name in NAMES}

    async def begin(self, name: str) -> dict[str, Any]:
        """Start or resume one."""
        found = await _runs.setup_agent_persist(
            self.branches[name], agent_name=name, run_id=f"run-{name}", share_db=False, project="interop"
        )
        assert found is not None, "live persistence was refused"
        self.live[name] = found
        return found

    async def end(self, name: str) -> None:
        """Tear one down as ``li agent`` does."""
        # In a folder under git LionAGI asks for evidence of work: an answer that it finds in the progression.
        status = await _runs.teardown_agent_persist(self.live[name], status="completed", cwd=os.getcwd())
        self.statuses[name].append(status)


NAMES = ("lead", "helper", "silent", "late")
LONG_AGO = 1_000_000.0


class Ghost:
    """A session whose process died: what Studio's health report is about."""

    def __init__(self, db: StateDB) -> None:
        self.db = db

    async def begin(self) -> None:
        """Running for ever."""
        for part in ("whole", "part"):
            await self.db.create_progression(f"ghost-{part}")
        times = {"created_at": LONG_AGO, "started_at": LONG_AGO, "last_message_at": LONG_AGO}
        session = {"id": "ghost", "name": "ghost", "agent_name": "ghost", "progression_id": "ghost-whole"}
        await self.db.create_session({**session, **times, "status": "running", "updated_at": LONG_AGO})
        branch = {"id": "ghost-branch", "session_id": "ghost", "agent_name": "ghost", "progression_id": "ghost-part"}
        await self.db.create_branch(branch)

    async def say(self, number: int) -> None:
        """A message that comes too late to move its activity."""
        content = {"instruction": f"ghost {number}"}
        await self.db._persist_live_message(
            {"id": f"ghost-{number}", "created_at": LONG_AGO + number, "role": "user", "content": content},
            session_id="ghost",
            branch_progression_id="ghost-part",
            session_progression_id="ghost-whole",
            activity_at=LONG_AGO,
        )


async def talk(agents: Agents) -> dict[str, Any]:
    """Messages before, during and after the migration; then everyone ends and the lead is resumed."""
    for name in NAMES:
        await agents.begin(name)
    ghost = Ghost(agents.live["lead"]["db"])
    await ghost.begin()
    await ghost.say(0)
    await say(agents.branches["silent"], 0, answer=False)
    await say(agents.branches["late"], 0, answer=False)
    first = None
    for number in range(total):
        if number == total // 3:
            await checkpoint("third")
        if number == 2 * total // 3:
            await checkpoint("two thirds")
            # Its only answer stands behind the cutover.
            await say(agents.branches["late"], 1, answer=True)
            await ghost.say(1)
        who = "helper" if number % 10 == 3 else "lead"
        message = await say(agents.branches[who], number, answer=bool(number % 2))
        first = first or message
    lost = {name: len(found["new_msg_ids"]) for name, found in agents.live.items()}
    for name in NAMES:
        await agents.end(name)
    resumed = await agents.begin("lead")
    known = len(resumed["existing_msg_ids"])
    # A provider that repeats a message of the tail, and one of the frozen prefix.
    for message in (first, agents.branches["lead"].messages[-1]):
        await agents.branches["lead"]._persist_via_bus(message)
    for number in range(total, total + 10):
        await say(agents.branches["lead"], number, answer=bool(number % 2))
    await agents.end("lead")
    return {"persisted": lost, "known_on_resume": known, "statuses": agents.statuses}


def said(row: dict[str, Any] | None) -> str:
    """What a stored message says, without what differs from run to run."""
    if row is None:
        return "missing"
    content = row["content"]
    return str(content.get("instruction") or content.get("assistant_response") or content.get("system_message"))


async def look(db: StateDB) -> dict[str, Any]:
    """What is stored, by agent."""
    found: dict[str, Any] = {}
    for session in sorted(await db.list_sessions(limit=100), key=lambda row: row["agent_name"]):
        ids = await db.get_progression(session["progression_id"])
        rows = await db.get_messages(ids)
        branches = await db.list_branches(session["id"])
        found[session["agent_name"]] = {
            "status": session["status"],
            "reason": session["status_reason_code"],
            "session": [said(rows.get(message)) for message in ids],
            "branches": [[said(row) for row in await db.get_branch_messages(branch["id"])] for branch in branches],
            "first": said(await db.get_message(str(session["first_msg_id"]))),
            "last": said(await db.get_message(str(session["last_msg_id"]))),
        }
    return found


async def pages(db: StateDB) -> dict[str, Any]:
    """What Studio shows; it reads SQLite files only."""
    if not ON_SQLITE:
        return {}
    from lionagi.studio.services import admin, sessions

    listed = await sessions.list_sessions()
    details = [await sessions.get_session(row["id"]) for row in listed]
    streamed = [await sessions.get_session_messages_after(row["id"], 0.0) for row in listed]
    report = await admin.health_report()
    return {
        "listed": sorted([row["agent_name"], row["message_count"]] for row in listed),
        "details": sorted(
            [branch["agent_name"], branch["message_total"], [message["role"] for message in branch["messages"]]]
            for detail in details
            for branch in detail["branches"]
        ),
        "streamed": sorted(len(found) for found in streamed),
        "unhealthy": sorted([row["agent_name"], row["message_count"]] for row in report["sessions"]["unhealthy"]),
    }


async def main() -> None:
    """Talk, then look."""
    if mode != "plain":
        # After the import on purpose: what is loaded already is served too.
        importlib.import_module("lionstate.lionagi").install(daemon=None if mode == "bridge" else mode)
    found = await talk(Agents()) if total else {}
    async with StateDB() as db:
        found["stored"] = await look(db)
        found["pages"] = await pages(db)
        for table in ("messages", "progressions", "sessions", "branches"):
            row = await db.fetch_one(f"SELECT COUNT(*) AS n FROM {table}")
            found[table] = row["n"]
    tell(found)


if __name__ == "__main__":
    asyncio.run(main())
