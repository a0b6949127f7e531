"""Requests that wait for items: what they cost, how they end, and that they outlive the daemon."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import threading
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import pytest

from lionstate import StateClient
from lionstate.engine.reader import SqliteReader
from lionstated.assembly import assemble
from lionstated.process import Daemon
from tests.daemon.fakes import settings_for
from tests.support.eventually import eventually

pytestmark = pytest.mark.anyio

FOLLOWERS = 1_000
PROGRESSIONS = 50


@contextlib.asynccontextmanager
async def _serving(folder: Path) -> AsyncIterator[Daemon]:
    settings = settings_for(
        folder,
        database__sqlite_module="stdlib",
        shutdown__drain_seconds="30",
        # Its pass would be among the reads that are counted.
        maintenance__scrub_items_per_second="0",
    )
    parts = assemble()
    daemon = Daemon(settings, operations=parts.operations, store_factory=parts.store_factory)
    async with anyio.create_task_group() as group:
        await group.start(daemon.run)
        yield daemon
        if not daemon._stop.is_set():
            daemon.stop()


def _client(folder: Path) -> StateClient:
    return StateClient(f"unix:{folder / 'd.sock'}")


def _http(folder: Path) -> aiohttp.ClientSession:
    return aiohttp.ClientSession("http://d", connector=aiohttp.UnixConnector(str(folder / "d.sock")))


def _waiting(daemon: Daemon) -> int:
    text = daemon.metrics.exposition()[0].decode()
    return int(float(next(line for line in text.splitlines() if line.startswith("lionstate_followers ")).split()[1]))


@pytest.fixture
def many_files() -> Iterator[None]:
    """Room for both ends of every connection."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2 * FOLLOWERS + 200
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, wanted)), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("many_files")
async def test_a_thousand_waiting_followers_cost_no_threads_and_no_reads(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = 0
    real = SqliteReader.run

    async def run(self: SqliteReader, script: Any) -> Any:
        nonlocal reads
        reads += 1
        return await real(self, script)

    monkeypatch.setattr(SqliteReader, "run", run)
    async with _serving(folder) as daemon, _client(folder) as client:
        for number in range(PROGRESSIONS):
            await client.create_progression(f"p{number}", ["first"])
        before = threading.active_count()
        followings = [
            client.follow_progression(f"p{number % PROGRESSIONS}", after_ordinal=0, wait_seconds=60)
            for number in range(FOLLOWERS)
        ]
        coming = [asyncio.ensure_future(anext(following)) for following in followings]
        await eventually(lambda: _waiting(daemon) == FOLLOWERS and reads >= 2 * FOLLOWERS, seconds=40)
        # The readers' threads were made by the first reads.
        assert threading.active_count() - before <= 8
        assert reads < 2 * FOLLOWERS + 100
        # The looks at the store's file are made on one thread that stays.
        await asyncio.to_thread(lambda: None)
        reads, threads = 0, threading.active_count()
        # The maintenance timer reads its own control row; followers read two things each.
        await asyncio.sleep(2.5)
        assert reads < 10, reads
        assert threads == threading.active_count()
        await client.append_to_progression("p7", "news")
        woken = coming[7::PROGRESSIONS]
        assert {(1, "news")} == set(await asyncio.gather(*woken))
        assert FOLLOWERS // PROGRESSIONS * 2 <= reads < FOLLOWERS // PROGRESSIONS * 2 + 10
        await eventually(lambda: _waiting(daemon) == FOLLOWERS - len(woken))
        began = time.monotonic()
        daemon.stop()
        await eventually(lambda: daemon.health.state == "stopped")
        assert time.monotonic() - began < 10
        await client.close()
        await asyncio.gather(*coming, return_exceptions=True)
    assert 0 == _waiting(daemon)


async def test_a_wait_ends_with_its_time_its_caller_and_the_daemon(folder: Path) -> None:
    async with _serving(folder) as daemon, _http(folder) as http:
        began = time.monotonic()
        response = await http.get("/v1/progressions/p/items?wait_seconds=0.3")
        assert (200, []) == (response.status, await response.json())
        assert 0.3 <= time.monotonic() - began < 10
        for bad in ("61", "-1", "x", "nan", ""):
            response = await http.get(f"/v1/progressions/p/items?wait_seconds={bad}")
            assert (400, "invalid_input") == (response.status, (await response.json())["code"])
        gone = asyncio.ensure_future(http.get("/v1/progressions/p/items?wait_seconds=60"))
        await eventually(lambda: _waiting(daemon) == 1)
        gone.cancel()
        await eventually(lambda: _waiting(daemon) == 0)
        last = asyncio.ensure_future(http.get("/v1/progressions/p/items?wait_seconds=60"))
        await eventually(lambda: _waiting(daemon) == 1)
        began = time.monotonic()
        daemon.stop()
        response = await last
        assert (503, "closed") == (response.status, (await response.json())["code"])
        assert time.monotonic() - began < 10


async def test_following_goes_on_over_a_restart(folder: Path) -> None:
    found: list[Any] = []

    async def follow(client: StateClient) -> None:
        async for item in client.follow_progression("p", wait_seconds=60):
            found.append(item)
            if len(found) == 6:
                return

    async with _client(folder) as client:
        following = asyncio.create_task(follow(client))
        for round_number in range(3):
            async with _serving(folder) as daemon, _client(folder) as writer:
                if round_number == 0:
                    await writer.create_progression("p")
                for number in range(2):
                    await writer.append_to_progression("p", f"m{round_number}.{number}")
                if round_number == 1:
                    # This time it is cut off in the middle of a wait.
                    await eventually(lambda: len(found) == 4 and _waiting(daemon) == 1)
                if round_number == 2:
                    # The follower asks again within five seconds.
                    await asyncio.wait_for(following, 20)
    assert [(2 * r + n, f"m{r}.{n}") for r in range(3) for n in range(2)] == found
