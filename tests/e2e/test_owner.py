"""Two daemons on one PostgreSQL store: one migrates, the other serves and says who does (design decision 27)."""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from lionstate import StateClient
from tests.e2e.conftest import Daemons, lionstate
from tests.e2e.test_pause import fill, gauge, until
from tests.support.eventually import eventually

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(180)]

FLAGS = {
    "storage__lionagi_compatible": "true",
    "maintenance__enabled": "true",
    "maintenance__interval_seconds": "0.05",
    "maintenance__lease_seconds": "3",
}


async def owner_of(client: StateClient) -> Any:
    return (await client.migration.status(limit=0)).owner


async def owns(client: StateClient) -> bool:
    return bool((await owner_of(client)).is_self)


@pytest.mark.parametrize("store_url", ["postgresql"], indirect=True)
async def test_a_second_daemon_serves_and_takes_over_from_a_dead_one(
    daemons: Daemons, store_url: str, folder: Path
) -> None:
    """fault 15: SIGKILL the owner; within its time the other migrates, without manual work, and nothing is lost."""
    first = daemons(store_url, **FLAGS)
    async with StateClient(first.target) as client:
        await eventually(lambda: owns(client))
        await client.migration.hold_all(reason="one at a time")
        await fill(client, 3, 200)
        name = (await owner_of(client)).owner
    second = await asyncio.to_thread(daemons, store_url, listen__socket=str(folder / "second.sock"), **FLAGS)
    async with StateClient(second.target) as client:
        await client.append_to_progression("p0", "served")
        step = await client.migration.step()
        assert ("not_owner", False) == (step.stop_reason.value, step.did_work)
        seen = await owner_of(client)
        assert (name, False) == (seen.owner, seen.is_self)
        said = await asyncio.to_thread(
            lionstate, "progression-migrate", "status", "--daemon", second.target, COLUMNS="200"
        )
        assert f"owner: {name}, for " in said.stdout
        refused = await asyncio.to_thread(lionstate, "progression-migrate", "step", "--daemon", second.target)
        assert 5 == refused.returncode
        await eventually(lambda: gauge(second, 'lionstate_migration_paused{reason="owner"}'))
        assert 0.0 == await gauge(second, "lionstate_migration_owner")
        assert 1.0 == await gauge(first, "lionstate_migration_owner")
        first.kill()
        began = time.monotonic()
        await eventually(lambda: owns(client))
        taken = time.monotonic() - began
        assert seen.epoch + 1 == (await owner_of(client)).epoch
        await client.migration.release_all()
        await until(client, "items", 3)
        assert [*(f"m{place}" for place in range(200)), "served"] == await client.get_progression("p0")
    lines = [json.loads(line) for line in second.log.read_text("utf-8").splitlines()]
    told = [(line["owner"] == name, line["is_self"]) for line in lines if line["event"] == "migration_owner"]
    assert [(True, False), (False, True)] == told
    # Its three seconds, and a tick; the rest is a busy machine's.
    assert taken < 20


@pytest.mark.parametrize("store_url", ["postgresql"], indirect=True)
async def test_a_daemon_that_ends_hands_over_at_once(daemons: Daemons, store_url: str, folder: Path) -> None:
    flags = {**FLAGS, "maintenance__lease_seconds": "3600"}
    first = daemons(store_url, **flags)
    async with StateClient(first.target) as client:
        await eventually(lambda: owns(client))
    second = await asyncio.to_thread(daemons, store_url, listen__socket=str(folder / "second.sock"), **flags)
    assert 0 == await asyncio.to_thread(first.stop)
    async with StateClient(second.target) as client:
        await eventually(lambda: owns(client))


@pytest.mark.parametrize("store_url", ["postgresql"], indirect=True)
async def test_four_clients_over_two_daemons_lose_and_double_nothing(
    daemons: Daemons, store_url: str, folder: Path
) -> None:
    """Both serve the same progression while one of them migrates it: each id once, each client's in its order."""
    first = daemons(store_url, **FLAGS)
    second = await asyncio.to_thread(daemons, store_url, listen__socket=str(folder / "second.sock"), **FLAGS)
    async with AsyncExitStack() as stack:
        clients = [
            await stack.enter_async_context(StateClient(daemon.target)) for daemon in (first, second, first, second)
        ]
        await fill(clients[0], 1, 50)

        async def write(number: int) -> None:
            for place in range(60):
                await clients[number].append_to_progression("p0", f"{number}-{place}")
                # The same id from all of them at about the same time.
                await clients[number].append_to_progression("p0", f"shared-{place}")

        await asyncio.gather(*(write(number) for number in range(4)))
        await until(clients[1], "items", 1)
        await clients[1].append_to_progression("p0", "last")
        found = await clients[0].get_progression("p0")
        items = await clients[0].list_progression_items("p0", limit=1000)
    mine = [[f"{number}-{place}" for place in range(60)] for number in range(4)]
    shared = [f"shared-{place}" for place in range(60)]
    assert [f"m{place}" for place in range(50)] == found[:50]
    assert sorted([*(name for names in mine for name in names), *shared, "last"]) == sorted(found[50:])
    assert mine == [[name for name in found if name.startswith(f"{number}-")] for number in range(4)]
    assert "last" == found[-1]
    assert list(enumerate(found)) == items
