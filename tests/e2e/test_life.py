"""The real process ends: SIGTERM under load, a second signal, idle connections, the service manager's socket."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from lionstate import StateClient
from lionstate.errors import StateError
from tests.demo.processes import DaemonProcess
from tests.e2e.conftest import Daemons, clean_environment, idle_control
from tests.support.load import Load, orders_in

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]


def events(daemon: DaemonProcess) -> list[dict[str, Any]]:
    """The daemon's log, each line of which is one JSON object."""
    return [json.loads(line) for line in daemon.log.read_text(encoding="utf-8").splitlines()]


async def wait_for_event(daemon: DaemonProcess, event: str) -> None:
    while not any(line["event"] == event for line in events(daemon)):  # noqa: ASYNC110 another process writes it
        await asyncio.sleep(0.01)


async def ended(daemon: DaemonProcess) -> int:
    return await asyncio.to_thread(daemon.process.wait, 60)


async def test_sigterm_under_load_drains(daemons: Daemons, store_url: str) -> None:
    """fault 62: an append in flight, an idle keep-alive connection and a silent one, then SIGTERM."""
    daemon = daemons(store_url, shutdown__drain_seconds="10")
    load = Load(daemon.target, ["p0", "p1"])
    async with StateClient(daemon.target) as client:
        for progression in load.progressions:
            await client.create_progression(progression, [])
    connector = aiohttp.UnixConnector(str(daemon.socket))
    silent = socket.socket(socket.AF_UNIX)
    silent.connect(str(daemon.socket))
    async with aiohttp.ClientSession("http://d", connector=connector) as idle:
        assert (await idle.get("/openapi.json")).status == 200
        for writer in load.writers:
            writer.retries = False
        async with load.running():
            await load.acknowledge(200)
            began = time.monotonic()
            daemon.process.send_signal(signal.SIGTERM)
            assert await ended(daemon) == 0
            took = time.monotonic() - began
    silent.close()
    # Idle connections do not use up the budget.
    assert took < 7, daemon.log.read_text()
    codes = {code for writer in load.writers for code in writer.refused.values()}
    assert codes <= {"closed", "overloaded", "daemon_unreachable"}
    found, _ = await orders_in(store_url)
    load.check(found, {})
    last = events(daemon)[-1]
    assert ("stopped", "SIGTERM", False) == (last["event"], last["reason"], last["forced"])


async def test_a_second_signal_ends_at_once(daemons: Daemons, folder: Path) -> None:
    """fault 62: second signal while an append waits for a lock that another process holds."""
    daemon = daemons(folder / "state.db", database__busy_timeout_ms="30000")
    foreign = sqlite3.connect(folder / "state.db", isolation_level=None)
    foreign.execute("BEGIN IMMEDIATE")
    async with StateClient(daemon.target) as client:
        append = asyncio.create_task(client.create_progression("p", []))
        await wait_for_metric(daemon, "lionstate_write_queue_wait_seconds_count", at_least=0)
        daemon.process.send_signal(signal.SIGTERM)
        await wait_for_event(daemon, "draining")
        assert daemon.process.poll() is None
        control = await asyncio.to_thread(idle_control)
        began = time.monotonic()
        daemon.process.send_signal(signal.SIGINT)
        assert await ended(daemon) == 130
        took = time.monotonic() - began
        assert took < 1.0 + 2 * control, (took, control)
        with pytest.raises(StateError):
            await append
    foreign.close()
    last = events(daemon)[-1]
    assert ("stopped", "SIGTERM", True) == (last["event"], last["reason"], last["forced"])


async def wait_for_metric(daemon: DaemonProcess, name: str, *, at_least: float) -> None:
    async with aiohttp.ClientSession() as http:
        while True:
            text = await (await http.get(f"http://{daemon.ops}/metrics")).text()
            values = [float(line.split()[-1]) for line in text.splitlines() if line.split(" ")[0] == name]
            if values and values[0] >= at_least:
                return
            await asyncio.sleep(0.01)


async def test_a_drain_past_its_budget_refuses_what_waits(daemons: Daemons, folder: Path) -> None:
    """An append that cannot be started is answered as not written, inside the budget."""
    daemon = daemons(folder / "state.db", database__busy_timeout_ms="60000", shutdown__drain_seconds="1")
    foreign = sqlite3.connect(folder / "state.db", isolation_level=None)
    foreign.execute("BEGIN IMMEDIATE")
    async with StateClient(daemon.target) as client:
        append = asyncio.create_task(client.create_progression("p", []))
        await asyncio.sleep(0.2)
        began = time.monotonic()
        daemon.process.send_signal(signal.SIGTERM)
        assert await ended(daemon) == 0
        assert time.monotonic() - began < 9
        with pytest.raises(StateError) as caught:
            await append
    assert caught.value.code == "closed"
    foreign.execute("ROLLBACK")
    assert foreign.execute("SELECT count(*) FROM progressions").fetchone() == (0,)
    foreign.close()


_WEDGING = """
import sys, threading
from lionstate.operations.table import operation
from lionstated.command import leave, main
from lionstated.assembly import Assembly, assemble

def wedge(conn, /) -> None:
    threading.Event().wait()

def wedging() -> Assembly:
    real = assemble()
    return Assembly({**real.operations, "wedge": operation(wedge, writes=True)}, real.store_factory)

leave(main(assemble=wedging))
"""


def start_logged(command: list[str], log: Path, env: dict[str, str]) -> subprocess.Popen[bytes]:
    with log.open("wb") as out:
        return subprocess.Popen(command, stderr=out, env=env)


class Manager:
    """A service manager's notification socket."""

    def __init__(self, path: Path) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.sock.bind(str(path))

    async def lines(self, seconds: float) -> list[str]:
        """What comes within so many seconds; at once when READY or STOPPING comes."""
        self.sock.settimeout(seconds)
        found: list[str] = []
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self.sock.settimeout(left)
            try:
                data = await asyncio.to_thread(self.sock.recv, 4096)
            except TimeoutError:
                break
            found += [line for line in data.decode().splitlines() if not line.startswith("STATUS=")]
            if "READY=1" in found or "STOPPING=1" in found:
                break
        return found


async def test_the_watchdog_follows_the_writer(folder: Path) -> None:
    """fault 64: pings go on while a foreign process holds the lock, and stop when the writer thread is wedged."""
    manager = Manager(folder / "n.sock")
    log = folder / "log"
    flags = ["--database-url", str(folder / "state.db"), "--listen-socket", str(folder / "d.sock")]
    flags += ["--listen-ops", "", "--database-busy-timeout-ms", "3000", "--shutdown-drain-seconds", "1"]
    env = clean_environment(NOTIFY_SOCKET=str(folder / "n.sock"), WATCHDOG_USEC="1000000")
    process = start_logged([sys.executable, "-c", _WEDGING, *flags], log, env)
    try:
        first = await manager.lines(30)
        assert "READY=1" in first
        foreign = sqlite3.connect(folder / "state.db", isolation_level=None)
        foreign.execute("BEGIN IMMEDIATE")
        async with StateClient(f"unix:{folder}/d.sock") as client:
            waiting = asyncio.create_task(client.create_progression("p", []))
            pings = (await manager.lines(2.5)).count("WATCHDOG=1")
            assert pings >= 3, "a bounded wait for somebody else's lock is a sign of life"
            foreign.execute("ROLLBACK")
            foreign.close()
            await asyncio.wait([waiting])
        async with aiohttp.ClientSession("http://d", connector=aiohttp.UnixConnector(str(folder / "d.sock"))) as http:
            wedged = asyncio.create_task(http.post("/v1/ops/wedge", json={}))
            await manager.lines(1.5)
            assert [] == await manager.lines(1.5), "nobody pings for a wedged writer"
            process.send_signal(signal.SIGTERM)
            assert "STOPPING=1" in await manager.lines(5)
            process.send_signal(signal.SIGTERM)
            assert await asyncio.to_thread(process.wait, 10) == 130
            await asyncio.wait([wedged])
            assert wedged.exception() is not None
    finally:
        process.kill()
        process.wait()
        manager.sock.close()
