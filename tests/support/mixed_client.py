"""One client process that works on all record families for a while, and keeps book.

    python -m tests.support.mixed_client TARGET NAME SECONDS

Prints one JSON object: ``written`` (for each acknowledged write the table, a column and its value there), ``numbers``
(what the shared session's signals and the shared definition got), the ``longest_seconds`` of one call, how many
``calls`` were made, and ``errors`` by code.
"""

from __future__ import annotations

import asyncio
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

from lionstate import StateClient
from lionstate.errors import StateError

__all__ = ["SHARED"]

# The session, its progression and the definition that all clients work on.
SHARED = "shared"


class Worker:
    """The acts of one client; every act is a few calls on one family."""

    def __init__(self, client: StateClient, name: str) -> None:
        self.client = client
        self.name = name
        self.written: list[tuple[str, str, str]] = []
        self.numbers: dict[str, list[int]] = {"signals": [], "versions": []}
        self.calls = 0
        self.longest_seconds = 0.0
        self._turn = 0

    def _id(self, kind: str) -> str:
        self._turn += 1
        return f"{self.name}-{kind}-{self._turn}"

    async def _done(self, call: Awaitable[Any], *rows: tuple[str, str, str]) -> Any:
        """Await a call; its rows are there from now on."""
        began = time.monotonic()
        try:
            result = await call
        finally:
            self.longest_seconds = max(self.longest_seconds, time.monotonic() - began)
            self.calls += 1
        self.written += rows
        return result

    async def start(self) -> None:
        """A session, a branch and their progressions of its own."""
        own = self.name
        await self._done(self.client.create_progression(own), ("progressions", "id", own))
        session = {"id": own, "progression_id": own, "status": "running"}
        await self._done(self.client.create_session(session), ("sessions", "id", own))
        branch = {"id": own, "session_id": own, "progression_id": own}
        await self._done(self.client.create_branch(branch), ("branches", "id", own))

    async def conversation(self) -> None:
        """A live message on its own and the shared progression."""
        mid = self._id("message")
        message = {"id": mid, "created_at": time.time(), "role": "user", "content": {"text": "x" * 200}}
        rows = (("messages", "id", mid), ("progression_items", "message_id", mid))
        await self._done(self.client.record_message(message, self.name, self.name, SHARED), *rows)
        await self._done(self.client.list_progression_items(self.name, newest_first=True, limit=10))

    async def execution(self) -> None:
        """An invocation that ends, a show with a play."""
        invocation, show, play = self._id("invocation"), self._id("show"), self._id("play")
        row = {"id": invocation, "skill": "s", "started_at": time.time()}
        await self._done(self.client.create_invocation(row), ("invocations", "id", invocation))
        change = self.client.update_status(
            "invocation", invocation, new_status="completed", reason_code="run.completed.ok"
        )
        await self._done(change, ("status_transitions", "entity_id", invocation))
        topic = {"id": show, "topic": show, "show_dir": "/"}
        await self._done(self.client.create_show(topic), ("shows", "id", show))
        await self._done(self.client.create_play({"id": play, "show_id": show, "name": "n"}), ("plays", "id", play))
        await self._done(self.client.list_invocations(limit=20))

    async def team(self) -> None:
        """A team with a message that is read."""
        team, message = self._id("team"), self._id("team-message")
        await self._done(self.client.create_team({"id": team, "name": team}), ("teams", "id", team))
        said = {"id": message, "team_id": team, "sender": "a", "content": "hallo"}
        await self._done(self.client.create_team_message(said), ("team_messages", "id", message))
        await self._done(self.client.mark_team_messages_read(team, "b"))

    async def control(self) -> None:
        """A signal of the shared session, a control, a tag, a project, a run of an engine."""
        signal = self.client.insert_session_signal(
            session_id=SHARED, kind="k", ts=time.time(), payload={"by": self.name}
        )
        self.numbers["signals"].append(await self._done(signal))
        control = await self._done(self.client.insert_session_control(session_id=self.name, verb="pause"))
        await self._done(self.client.mark_session_control_applying(control), ("session_controls", "id", control))
        tag, project, run = self._id("tag"), self._id("project"), self._id("run")
        await self._done(self.client.create_run_tag(self.name, tag), ("run_tags", "tag", tag))
        await self._done(self.client.register_project(project, "git_remote"), ("projects", "name", project))
        engine = self.client.insert_engine_run(run_id=run, kind="k", spec_json={}, started_at=time.time())
        await self._done(engine, ("engine_runs", "id", run))

    async def definitions(self) -> None:
        """A version of the shared definition and an engine of its own."""
        engine = self._id("engine")
        saved = self.client.save_definition(kind="agent", name=SHARED, path="", content=self.name)
        self.numbers["versions"].append(await self._done(saved))
        row = {"id": engine, "name": engine, "kind": "k"}
        await self._done(self.client.create_engine_def(row), ("engine_defs", "id", engine))

    async def evidence(self) -> None:
        """An artifact, an event, an approval with its link of the one chain."""
        artifact = await self._done(
            self.client.insert_artifact(kind="k", name=self._id("artifact"), content={}, session_id=self.name)
        )
        event = await self._done(self.client.insert_admin_event(action="soak", details={"by": self.name}))
        approval = await self._done(self.client.create_approval(action_kind="a", params={"by": self.name}))
        await self._done(self.client.grant_approval(approval["id"]), ("approvals", "id", approval["id"]))
        self.written += [("artifacts", "id", artifact), ("admin_events", "id", event)]

    async def scheduling(self) -> None:
        """A schedule with a run, and a task in the queue."""
        schedule, run = self._id("schedule"), self._id("schedule-run")
        row = {"id": schedule, "name": schedule, "trigger_type": "interval", "action_kind": "agent"}
        await self._done(self.client.create_schedule(row), ("schedules", "id", schedule))
        fired = {"id": run, "schedule_id": schedule, "trigger_context": {}, "action_kind": "agent", "action_args": {}}
        create = self.client.create_schedule_run({**fired, "fired_at": time.time()})
        await self._done(create, ("schedule_runs", "id", run))
        task = await self._done(self.client.submit_task(action_kind="agent", args={}, execution_target="host"))
        self.written.append(("schedule_runs", "id", task))

    async def delivery(self) -> None:
        """A dispatch, and a look at what is due."""
        dispatch = await self._done(self.client.enqueue_dispatch(kind="k", deliver_to=self.name))
        self.written.append(("dispatch_outbox", "id", dispatch))
        await self._done(self.client.list_dispatches(limit=10))

    @property
    def acts(self) -> list[Callable[[], Awaitable[None]]]:
        """One per family."""
        conversation = [self.conversation, self.execution, self.team, self.control]
        return [*conversation, self.definitions, self.evidence, self.scheduling, self.delivery]


async def _work(target: str, name: str, seconds: float) -> dict[str, Any]:
    errors: Counter[str] = Counter()
    chance = random.Random(name)
    async with StateClient(target) as client:
        worker = Worker(client, name)
        await worker.start()
        end = time.monotonic() + seconds
        # At least once each, then in any order.
        waiting = worker.acts
        while waiting or time.monotonic() < end:
            act = waiting.pop() if waiting else chance.choice(worker.acts)
            try:
                await act()
            except StateError as error:
                errors[error.code] += 1
    return {
        "written": worker.written,
        "numbers": worker.numbers,
        "longest_seconds": worker.longest_seconds,
        "calls": worker.calls,
        "errors": dict(errors),
    }


def main() -> None:
    """Work until the time is over."""
    target, name, seconds = sys.argv[1:]
    print(json.dumps(asyncio.run(_work(target, name, float(seconds)))))


if __name__ == "__main__":
    main()
