"""The delivery runner on a real store: success, failure, limits, faults, the end of the daemon."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from lionstate import StateClient
from lionstated.assembly import assemble
from lionstated.delivery import DeliveryRunner
from lionstated.process import Daemon
from tests.daemon.fakes import settings_for
from tests.support.eventually import eventually

pytestmark = pytest.mark.anyio

# Writes what it was given into the folder of its first argument and ends as the body of the payload says.
_RECORD = """
import json, os, pathlib, sys, time
payload = json.load(sys.stdin)
env = {name: value for name, value in os.environ.items() if name.startswith("LIONSTATE")}
found = pathlib.Path(sys.argv[1], payload["dispatch_id"] + "." + env["LIONSTATE_DISPATCH_ATTEMPT"])
found.with_suffix(".tmp").write_text(json.dumps({"payload": payload, "argv": sys.argv[2:], "env": env}))
found.with_suffix(".tmp").rename(found)
while payload["body"].get("until") and not os.path.exists(payload["body"]["until"]):
    time.sleep(0.01)
sys.stderr.write(payload["body"].get("says", ""))
sys.exit(payload["body"].get("code", 0))
"""


class Delivering:
    """A daemon that delivers, its client, and what its command left."""

    def __init__(self, daemon: Daemon, state: StateClient, calls: Path) -> None:
        self.daemon = daemon
        self.state = state
        self.calls = calls

    async def enqueue(self, **columns: Any) -> str:
        return await self.state.enqueue_dispatch(**{"kind": "k", "deliver_to": "d", **columns})

    async def until(self, dispatch_id: str, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The row as soon as something holds for it."""

        async def look() -> dict[str, Any] | None:
            row = await self.state.get_dispatch(dispatch_id) or {}
            return row if holds(row) else None

        return await eventually(look) or {}

    async def ended(self, dispatch_id: str, *statuses: str) -> dict[str, Any]:
        return await self.until(dispatch_id, lambda row: row["status"] in statuses)

    async def called(self, dispatch_id: str, attempt: int = 1) -> dict[str, Any]:
        file = self.calls / f"{dispatch_id}.{attempt}"
        await eventually(file.exists)
        found: dict[str, Any] = json.loads(file.read_text())
        return found

    def metric(self, line: str) -> float:
        text = self.daemon.metrics.exposition()[0].decode()
        return float(next(found for found in text.splitlines() if found.startswith(line + " ")).split()[-1])


@contextlib.asynccontextmanager
async def _delivering(folder: Path, **flags: str) -> AsyncIterator[Delivering]:
    calls = folder / "calls"
    calls.mkdir(exist_ok=True)
    command = [sys.executable, "-c", _RECORD, str(calls), "{deliver_to}", "{payload}", "{other}"]
    given = {
        "storage__lionagi_compatible": "true",
        "database__sqlite_module": "stdlib",
        "delivery__enabled": "true",
        "delivery__command": json.dumps(command),
        "delivery__interval_seconds": "0.05",
        **flags,
    }
    parts = assemble()
    settings = settings_for(folder, **given)
    daemon = Daemon(settings, operations=parts.operations, store_factory=parts.store_factory)
    async with anyio.create_task_group() as group:
        await group.start(daemon.run)
        async with StateClient(f"unix:{folder / 'd.sock'}") as state:
            yield Delivering(daemon, state, calls)
        if not daemon._stop.is_set():
            daemon.stop()


async def test_the_command_gets_payload_destination_and_environment(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LIONSTATE_DATABASE__URL", "postgresql://user:secret@nowhere/db")
    # A minute between two looks: the entry itself wakes the runner.
    async with _delivering(folder, delivery__interval_seconds="60") as given:
        found = await given.enqueue(deliver_to="a b;$(x)", body={"ü": [None]})
        row = await given.ended(found, "delivered")
        assert (1, None) == (row["attempt"], row["last_error"])
        call = await given.called(found)
        assert row["payload"] == call["payload"]
        assert ["a b;$(x)", row["payload"], "{other}"] == [
            call["argv"][0],
            json.loads(call["argv"][1]),
            call["argv"][2],
        ]
        assert {
            "LIONSTATE_DISPATCH_ID": found,
            "LIONSTATE_DISPATCH_KIND": "k",
            "LIONSTATE_DISPATCH_ATTEMPT": "1",
        } == call["env"]
        assert 1.0 == given.metric('lionstate_deliveries_total{outcome="delivered"}')
        entries = await given.state.list_status_transitions("dispatch", found)
        assert ["lionstated", "lionstated"] == [entry["actor"] for entry in entries[:2]]


async def test_failures_are_retried_and_some_are_final(folder: Path) -> None:
    async with _delivering(folder, delivery__permanent_exit_codes="[100, 101]") as given:
        retried = await given.enqueue(body={"code": 7, "says": "no such door"})
        final = await given.enqueue(body={"code": 101})
        last = await given.enqueue(body={"code": 1}, max_attempts=1)
        acked = await given.enqueue(ack_required=True)
        row = await given.until(retried, lambda row: row["last_error"] is not None)
        assert ("pending", 1, "no such door") == (row["status"], row["attempt"], row["last_error"])
        assert 60 == round(row["next_attempt_at"] - row["updated_at"])
        assert "exit 101" == (await given.ended(final, "dead_letter"))["last_error"]
        assert 1 == (await given.ended(last, "dead_letter"))["attempt"]
        token = (await given.called(acked))["payload"]["ack_token"]
        await given.until(acked, lambda row: row["status"] == "pending" and row["attempt"] == 1)
        assert await given.state.ack_dispatch(acked, token)
        counts = {name: given.metric(f'lionstate_deliveries_total{{outcome="{name}"}}') for name in ("retried", "sent")}
        assert {"retried": 1.0, "sent": 1.0} == counts
        assert 2.0 == given.metric('lionstate_deliveries_total{outcome="dead_letter"}')


async def test_the_time_of_a_command_is_limited(folder: Path) -> None:
    async with _delivering(folder, delivery__timeout_seconds="0.5", delivery__kill_seconds="0.2") as given:
        found = await given.enqueue(body={"until": str(folder / "never")})
        row = await given.until(found, lambda row: row["last_error"] is not None)
        assert ("pending", "timed out after 0.5 s") == (row["status"], row["last_error"])


async def test_no_more_commands_than_allowed_run_at_once(folder: Path) -> None:
    gate = folder / "gate"
    async with _delivering(folder, delivery__concurrency="2") as given:
        ids = [await given.enqueue(body={"until": str(gate)}) for _ in range(5)]
        first = {found: asyncio.create_task(given.called(found)) for found in ids}
        await eventually(lambda: sum(task.done() for task in first.values()) == 2)
        assert 2.0 == given.metric("lionstate_deliveries_running")
        assert 3 == await given.state.count_dispatches(status="pending")
        gate.touch()
        for found in ids:
            await given.ended(found, "delivered")
        await asyncio.gather(*first.values())
        assert 0.0 == given.metric("lionstate_deliveries_running")


async def test_a_command_that_cannot_start_degrades_the_service(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It stays so while nothing is due, or nobody would be told; a command that starts ends it."""
    monkeypatch.setattr("lionstated.supervision._RETRY_SECONDS", (0.05, 0.05))
    program, turns, turn = folder / "deliver", 0, DeliveryRunner._start_due

    async def counted(self: DeliveryRunner) -> float:
        nonlocal turns
        turns += 1
        return await turn(self)

    monkeypatch.setattr(DeliveryRunner, "_start_due", counted)
    async with _delivering(folder, delivery__command=json.dumps([str(program)])) as given:
        found = await given.enqueue()
        row = await given.until(found, lambda row: row["last_error"] is not None)
        assert "the command could not be started: No such file or directory" == row["last_error"]
        degraded = 'lionstate_service_degraded{service="delivery"}'
        await eventually(lambda: given.metric(degraded) == 1.0)
        before = turns
        await eventually(lambda: turns > before + 2)
        assert 1.0 == given.metric(degraded)
        assert 'lionstate_service_degraded{service="maintenance"} 0.0' in given.daemon.metrics.exposition()[0].decode()
        program.write_text("#!/bin/sh\n")
        program.chmod(0o700)
        await given.ended(await given.enqueue(), "delivered")
        await eventually(lambda: given.metric(degraded) == 0.0)


async def test_nothing_runs_unless_enabled(folder: Path) -> None:
    async with _delivering(folder, delivery__enabled="false", delivery__interval_seconds="0.01") as given:
        found = await given.enqueue()
        for _ in range(20):
            await given.state.get_dispatch(found)
        assert "pending" == (await given.state.get_dispatch(found) or {})["status"]
        given.daemon._parts.reload(settings_for(folder, delivery__enabled="true", delivery__command='["true"]'))  # type: ignore[union-attr]
        await given.ended(found, "delivered")


async def test_the_end_of_the_daemon_settles_what_runs(folder: Path) -> None:
    async with _delivering(folder, shutdown__drain_seconds="4", delivery__kill_seconds="1") as given:
        slow = await given.enqueue(body={"until": str(folder / "never")})
        quick = await given.enqueue(body={"until": str(folder / "gate")})
        await asyncio.gather(given.called(slow), given.called(quick))
        given.daemon.stop()
        (folder / "gate").touch()
    async with _delivering(folder, delivery__enabled="false") as given:
        row = await given.state.get_dispatch(slow) or {}
        assert ("pending", "the daemon stopped", 1) == (row["status"], row["last_error"], row["attempt"])
        assert "delivered" == (await given.state.get_dispatch(quick) or {})["status"]
