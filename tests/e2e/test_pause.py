"""Pause and resume: at once, across SIGKILL, on every surface alike, and under many commands at a time."""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import time
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from lionstate import StateClient
from lionstate.errors import PhaseConflictError
from tests.demo.processes import DaemonProcess
from tests.e2e.conftest import Daemons, lionstate

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(180)]

SLOW = {
    "storage__lionagi_compatible": "true",
    "maintenance__enabled": "true",
    "maintenance__interval_seconds": "0.02",
    "maintenance__chunks_per_tick": "1",
}


async def fill(client: StateClient, count: int, size: int = 2_500) -> None:
    for number in range(count):
        await client.create_progression(f"p{number}", [f"m{place}" for place in range(size)])


async def until(client: StateClient, phase: str, count: int) -> None:
    while (await client.migration.status(limit=0)).phases[phase] < count:  # noqa: ASYNC110 another process does it
        await asyncio.sleep(0.02)


async def gauge(daemon: DaemonProcess, name: str) -> float:
    async with aiohttp.ClientSession() as http:
        text = await (await http.get(f"http://{daemon.ops}/metrics")).text()
    return next(float(line.split()[-1]) for line in text.splitlines() if line.startswith(name + " "))


async def test_a_pause_holds_across_a_kill(daemons: Daemons, store_url: str) -> None:
    """faults 9 and 13: after at most one chunk; by whom and why; CLI, HTTP and metrics agree; resumes where it was."""
    daemon = daemons(store_url, **SLOW)
    async with StateClient(daemon.target) as client:
        await client.migration.pause(reason="filling")
        await fill(client, 4)
        await client.migration.resume()
        await until(client, "dual", 1)
        began = time.monotonic()
        await client.migration.pause(reason="lunch")
        assert time.monotonic() - began < 5
        first = await client.migration.status(limit=0)
        await asyncio.sleep(0.3)
        second = await client.migration.status(limit=0)
        # The chunk that was under way when the pause came is committed before the answer; none follows.
        assert (first.remaining_admitted_items, first.phases) == (second.remaining_admitted_items, second.phases)
        assert 1.0 == await gauge(daemon, 'lionstate_migration_paused{reason="operator"}')
    daemon.kill()
    daemon = await asyncio.to_thread(daemons, store_url, **SLOW)
    async with StateClient(daemon.target) as client:
        status = await client.migration.status(limit=0)
        assert status.pause is not None
        assert ("lunch", None) == (status.pause.reason, status.pause.expires_at)
        assert first.remaining_admitted_items == status.remaining_admitted_items
        where = ["--daemon", daemon.target]
        human = await asyncio.to_thread(lionstate, "progression-migrate", "status", *where)
        assert human.stdout.splitlines()[0].startswith("migration: PAUSED by ")
        machine = await asyncio.to_thread(lionstate, "progression-migrate", "status", "--json", *where)
        assert dict(status.phases) == json.loads(machine.stdout)["phases"]
        for phase, count in status.phases.items():
            assert count == await gauge(daemon, f'lionstate_migration_progressions{{phase="{phase}"}}')
        await client.migration.resume()
        assert 0.0 == await gauge(daemon, 'lionstate_migration_paused{reason="operator"}')
        await until(client, "items", 4)
        assert await client.get_progression("p3") == [f"m{place}" for place in range(2_500)]


async def test_commands_in_parallel(daemons: Daemons, folder: Path) -> None:
    """fault 14: 200 random commands during a backfill: every one is answered, the last acknowledged one holds."""
    daemon = daemons(folder / "state.db", **SLOW)
    chance = random.Random(14)
    answered = 0
    async with StateClient(daemon.target) as client:
        await fill(client, 6, 1_500)
        migration = client.migration
        commands: list[Any] = [
            lambda: migration.step(max_items=500),
            lambda: migration.status(limit=3),
            lambda: migration.verify(f"p{chance.randrange(6)}"),
            lambda: migration.set_maintenance_enabled(chance.random() < 0.5),
            lambda: migration.set_compat_read_everywhere(chance.random() < 0.5),
            lambda: migration.exclude(f"p{chance.randrange(6)}", clear=chance.random() < 0.7),
            lambda: migration.prioritize(f"p{chance.randrange(6)}", clear=chance.random() < 0.5),
            lambda: migration.cutover_all_ready(max_seconds=0.2),
            lambda: commanded(f"p{chance.randrange(6)}"),
            lambda: client.append_to_progression(f"p{chance.randrange(6)}", f"new-{chance.random()}"),
        ]

        async def commanded(progression_id: str) -> None:
            # In another phase it is refused by name, which is an answer.
            with contextlib.suppress(PhaseConflictError):
                await migration.cutover(progression_id, max_seconds=0.2)

        async def others() -> None:
            nonlocal answered
            for _ in range(25):
                await chance.choice(commands)()
                answered += 1

        async def switch() -> str:
            nonlocal answered
            last = "resume"
            for _ in range(25):
                last = chance.choice(["pause", "stop", "resume"])
                await getattr(migration, last)(reason="random")
                answered += 1
            return last

        async def hold() -> bool:
            nonlocal answered
            held = False
            for _ in range(25):
                held = chance.random() < 0.5
                await (migration.hold_all(reason="random") if held else migration.release_all())
                answered += 1
            return held

        last, held, *_ = await asyncio.gather(switch(), hold(), *(others() for _ in range(6)))
        assert 200 == answered
        status = await migration.status(limit=0)
        assert {"pause": False, "stop": True, "resume": None}[last] == (status.pause and status.pause.stopped)
        assert held == (status.orders.hold_all is not None)
        await migration.resume()
        await migration.release_all()
        for number in range(6):
            await migration.exclude(f"p{number}", clear=True)
        await migration.set_maintenance_enabled(True)
        await until(client, "items", 6)
        assert {} == dict((await migration.status(limit=0)).blocked)
