"""The write queue through the real daemon: deadlines, bounds, the three outcomes, callers that go away."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.demo.processes import DaemonProcess
from tests.e2e.conftest import Daemons

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

APPEND = "/v1/ops/append_to_progression"


@pytest.fixture
def daemon(daemons: Daemons, folder: Path) -> DaemonProcess:
    """A daemon with a small queue and a progression ``p``."""
    return daemons(folder / "state.db", queue__max_operations="6", database__busy_timeout_ms="20000")


@pytest.fixture
def foreign(daemon: DaemonProcess, folder: Path) -> Iterator[sqlite3.Connection]:
    """Another process of the store; ``BEGIN IMMEDIATE`` stops the daemon's writer."""
    conn = sqlite3.connect(folder / "state.db", isolation_level=None)
    yield conn
    conn.close()


@pytest.fixture
async def http(daemon: DaemonProcess) -> AsyncIterator[aiohttp.ClientSession]:
    """Plain HTTP to the daemon, with a progression to append to."""
    connector = aiohttp.UnixConnector(str(daemon.socket), limit=0)
    async with aiohttp.ClientSession("http://d", connector=connector) as session:
        made = await session.post("/v1/ops/create_progression", json={"progression_id": "p", "collection": []})
        assert made.status == 200, await made.text()
        yield session


async def append(http: aiohttp.ClientSession, message_id: str, deadline_ms: int = 10_000) -> tuple[int, Any]:
    body = {"progression_id": "p", "message_id": message_id}
    response = await http.post(APPEND, json=body, headers={"Lionstate-Deadline-Ms": str(deadline_ms)})
    return response.status, await response.json(content_type=None)


async def members(http: aiohttp.ClientSession) -> list[str]:
    found: list[str] = await (await http.get("/v1/progressions/p")).json()
    return found


async def test_deadlines_and_overload(http: aiohttp.ClientSession, foreign: sqlite3.Connection) -> None:
    """A late write is not written (504), one too many is refused at the door (503); neither appears afterwards."""
    foreign.execute("BEGIN IMMEDIATE")
    late = [asyncio.create_task(append(http, f"late-{number}", 400)) for number in range(2)]
    patient = asyncio.create_task(append(http, "patient"))
    for status, problem in await asyncio.gather(*late):
        assert (504, "deadline_exceeded", "not_written") == (status, problem["code"], problem["outcome"])
    crowd = [asyncio.create_task(append(http, f"crowd-{number}")) for number in range(20)]
    refused = [task for task in (await asyncio.wait(crowd, timeout=2))[0]]
    assert 12 <= len(refused) <= 16
    for task in refused:
        status, problem = task.result()
        assert (503, "overloaded", "not_written") == (status, problem["code"], problem["outcome"])
        assert problem["retry_after_seconds"] > 0
    foreign.execute("ROLLBACK")
    waiting = [task for task in crowd if task not in refused]
    assert {200} == {status for status, _ in await asyncio.gather(patient, *waiting)}
    taken = {f"crowd-{crowd.index(task)}" for task in waiting}
    assert {"patient"} | taken == set(await members(http))


async def test_batches_on_the_wire(http: aiohttp.ClientSession) -> None:
    """fault 67: multi-operation work that fails half-way: whole, or one outcome each."""

    def call(message_id: str, progression_id: str = "p") -> dict[str, Any]:
        params = {"progression_id": progression_id, "message_id": message_id}
        return {"operation": "append_to_progression", "params": params}

    async def batch(*calls: dict[str, Any], atomic: bool) -> list[dict[str, Any]]:
        response = await http.post("/v1/batch", json={"operations": calls, "atomic": atomic})
        found: list[dict[str, Any]] = (await response.json())["results"]
        return found

    results = await batch(call("a"), call(""), call("b"), atomic=False)
    assert ["written", "not_written", "written"] == [result["outcome"] for result in results]
    assert results[1]["error"]["code"] == "invalid_input"
    results = await batch(call("c"), call(""), call("d"), atomic=True)
    assert ["not_written"] * 3 == [result["outcome"] for result in results]
    results = await batch(call("e"), call("f"), call("e"), atomic=True)
    assert ["written"] * 3 == [result["outcome"] for result in results]
    assert ["a", "b", "e", "f"] == await members(http)


async def test_a_caller_that_goes_away_drops_its_tickets(
    http: aiohttp.ClientSession, foreign: sqlite3.Connection, daemon: DaemonProcess
) -> None:
    """Design §2.2: it drops its ticket, never a transaction; a batch drops all of its tickets."""
    foreign.execute("BEGIN IMMEDIATE")
    stays = asyncio.create_task(append(http, "stays"))
    calls = [
        {"operation": "append_to_progression", "params": {"progression_id": "p", "message_id": f"gone-{number}"}}
        for number in range(3)
    ]
    async with aiohttp.ClientSession("http://d", connector=aiohttp.UnixConnector(str(daemon.socket))) as leaving:
        gone = [asyncio.create_task(append(leaving, "gone"))]
        gone.append(asyncio.create_task(leaving.post("/v1/batch", json={"operations": calls})))  # type: ignore[arg-type]
        await asyncio.wait(gone, timeout=0.5)
        for task in gone:
            task.cancel()
        await asyncio.wait(gone)
    # Only when the daemon has seen it: its queue is shorter then.
    foreign.execute("ROLLBACK")
    assert (await stays)[0] == 200
    assert (await append(http, "after"))[0] == 200
    assert ["stays", "after"] == await members(http)


@pytest.mark.timeout(180)
async def test_thirteen_processes_write_at_once(daemons: Daemons, folder: Path) -> None:
    """fault 68: no lock error reaches a client, and nobody is starved for more than five seconds."""
    daemon = daemons(folder / "state.db")
    command = [sys.executable, "-m", "tests.support.appender", daemon.target]
    started = [await asyncio.create_subprocess_exec(*command, f"c{n}", "10", stdout=PIPE) for n in range(13)]
    reports = [json.loads((await process.communicate())[0]) for process in started]
    assert [{}] * 13 == [report["errors"] for report in reports]
    assert max(report["longest_seconds"] for report in reports) < 5
    assert all(report["acknowledged"] > 0 for report in reports)
    assert daemon.stop() == 0
    conn = sqlite3.connect(folder / "state.db")
    (count,) = conn.execute("SELECT count(*) FROM progression_items WHERE progression_id = 'shared'").fetchone()
    conn.close()
    assert sum(report["acknowledged"] for report in reports) == count
    print(f"13 processes: {count} appends, slowest {max(report['longest_seconds'] for report in reports):.2f} s")
