"""A Prometheus and an Alertmanager with the shipped rules beside a daemon that migrates: panels and alerts for real.

Conditions are caused and removed; only durations and thresholds are made smaller, in a generated copy of the rules.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import signal
import sqlite3
import subprocess
import tempfile
import time
import urllib.parse
import urllib.request
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from lionstate import StateClient
from lionstate.errors import StateError
from tests.demo.processes import DaemonProcess, free_port
from tests.support.deployment import DEPLOY, run, tool
from tests.support.eventually import eventually

pytestmark = pytest.mark.anyio

# Shorter, and nothing else: windows, `for:`, and what takes a disk or an hour to reach.
SHORTER = (
    (r"\[5m\]", "[10s]"),
    (r"\[15m\]", "[10s]"),
    (r"for: \w+", "for: 2s"),
    (r"> 10000$", "> 100"),
    (r"> 86400$", "> 3"),
)
ALERTS = re.findall(r"alert: (\w+)", (DEPLOY / "prometheus/lionstate.rules.yml").read_text())


def _running_test() -> str:
    """Its name in words: tests are called after what they cause."""
    return os.environ["PYTEST_CURRENT_TEST"].split("::test_")[1].split(" ")[0].replace("_", " ")


class Monitoring:
    """One Prometheus, one Alertmanager, one daemon."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port, self.alerts_port = free_port(), free_port()
        self.fired: dict[str, float] = {}
        self.resolved: dict[str, float] = {}
        self.causes: dict[str, str] = {}
        self.processes: list[subprocess.Popen[bytes]] = []
        self.daemon = self.start_daemon()
        self.daemon.wait_until_ready()

    def start_daemon(self, **flags: str) -> DaemonProcess:
        """A daemon that migrates and scrubs fast, with a small queue."""
        return DaemonProcess(
            str(self.folder / "state.db"),
            self.folder,
            storage__lionagi_compatible="true",
            maintenance__enabled="true",
            maintenance__interval_seconds="0.2",
            maintenance__scrub_interval_seconds="0",
            maintenance__wal_pinned_limit_seconds="3",
            maintenance__starved_after_seconds="2",
            delivery__enabled="true",
            delivery__command=json.dumps([str(self.folder / "deliver")]),
            queue__max_operations="64",
            **flags,
        )

    def start(self, program: str, *arguments: str) -> None:
        """Start a program whose log goes into the folder."""
        with (self.folder / f"{Path(program).name}.log").open("ab") as log:
            self.processes.append(subprocess.Popen([program, *arguments], stdout=log, stderr=log))

    def start_monitoring(self) -> None:
        """The shipped rules, shortened, and both programs."""
        rules = (DEPLOY / "prometheus/lionstate.rules.yml").read_text()
        for pattern, short in SHORTER:
            rules, count = re.subn(pattern, short, rules, flags=re.MULTILINE)
            assert count, pattern
        (self.folder / "rules.yml").write_text(rules)
        config = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": ["rules.yml"],
            "alerting": {"alertmanagers": [{"static_configs": [{"targets": [f"127.0.0.1:{self.alerts_port}"]}]}]},
            "scrape_configs": [{"job_name": "lionstate", "static_configs": [{"targets": [self.daemon.ops]}]}],
        }
        (self.folder / "prometheus.yml").write_text(json.dumps(config))
        assert 0 == run(tool("promtool"), "check", "config", self.folder / "prometheus.yml")[0]
        (self.folder / "alertmanager.yml").write_text(
            json.dumps({"route": {"receiver": "none"}, "receivers": [{"name": "none"}]})
        )
        self.start(
            tool("prometheus-alertmanager"),
            f"--config.file={self.folder}/alertmanager.yml",
            f"--storage.path={self.folder}/alerts",
            f"--web.listen-address=127.0.0.1:{self.alerts_port}",
            "--cluster.listen-address=",
        )
        self.start(
            tool("prometheus"),
            f"--config.file={self.folder}/prometheus.yml",
            f"--storage.tsdb.path={self.folder}/data",
            f"--web.listen-address=127.0.0.1:{self.port}",
            "--enable-feature=exemplar-storage",
        )

    def ask(self, path: str, **query: str) -> Any:
        """The data of one answer of Prometheus."""
        url = f"http://127.0.0.1:{self.port}/api/v1/{path}?{urllib.parse.urlencode(query)}"
        with urllib.request.urlopen(url, timeout=10) as answer:
            return json.load(answer)["data"]

    def firing(self) -> set[str]:
        """Names of the alerts that fire now."""
        try:
            alerts = self.ask("alerts")["alerts"]
        except OSError:
            return set()
        return {one["labels"]["alertname"] for one in alerts if one["state"] == "firing"}

    def heard(self) -> set[str]:
        """Names of the alerts that the Alertmanager has."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.alerts_port}/api/v2/alerts", timeout=10) as answer:
            return {one["labels"]["alertname"] for one in json.load(answer)}

    async def until(self, alert: str, *, fires: bool, seconds: float = 60) -> None:
        """Wait until an alert fires, or no longer does, and note how long that took."""
        began = time.monotonic()
        while fires != (alert in await asyncio.to_thread(self.firing)):
            assert time.monotonic() - began < seconds, f"{alert} {'does not fire' if fires else 'fires on'}"
            await asyncio.sleep(0.3)
        (self.fired if fires else self.resolved)[alert] = time.monotonic() - began
        self.causes.setdefault(alert, _running_test())

    def end(self) -> None:
        """End what was started."""
        self.daemon.kill()
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            process.wait(20)


@pytest.fixture(scope="module")
def monitoring() -> Iterator[Monitoring]:
    for name in ("prometheus", "promtool", "prometheus-alertmanager"):
        tool(name)
    folder = Path(tempfile.mkdtemp(prefix="lsprom"))
    found = Monitoring(folder)
    try:
        found.start_monitoring()
        yield found
    finally:
        found.end()
        shutil.rmtree(folder, ignore_errors=True)


async def _load(client: StateClient, end: asyncio.Event) -> None:
    number = 0
    while not end.is_set():
        number += 1
        with suppress(StateError):
            await client.append_to_progression(f"p{number % 20}", f"tail-{number}")
        await asyncio.sleep(0.01)


async def test_every_panel_returns_data(monitoring: Monitoring) -> None:
    async with StateClient(monitoring.daemon.target) as client:
        for number in range(20):
            await client.create_progression(f"p{number}", [f"m{place}" for place in range(3_000)])
        end = asyncio.Event()
        load = asyncio.create_task(_load(client, end))
        await asyncio.sleep(20)
        seen: list[tuple[str, str, int]] = []
        for panel in json.loads((DEPLOY / "grafana/lionstate.json").read_text())["panels"]:
            for target in panel.get("targets", []):
                text = target["expr"].replace("$__rate_interval", "30s")
                text = text.replace("$job", ".*").replace("$instance", ".*")
                found = await asyncio.to_thread(monitoring.ask, "query", query=text)
                values = [one["value"][1] for one in found["result"] if one["value"][1] != "NaN"]
                assert values, (panel["title"], text)
                seen.append((panel["title"], text, len(values)))
        now = time.time()
        exemplars = [
            one
            for name in ("lionstate_write_lock_wait_seconds", "lionstate_commit_seconds")
            for one in await asyncio.to_thread(
                monitoring.ask, "query_exemplars", query=f"{name}_bucket", start=str(now - 60), end=str(now)
            )
        ]
        end.set()
        await load
    for title, text, count in seen:
        print(f"{count:4d} series  {title}: {text}")
    print(
        f"{len({title for title, _, _ in seen})} panels, {len(seen)} expressions, {sum(n for _, _, n in seen)} series"
    )
    lanes = {one["labels"]["lane"] for found in exemplars for one in found["exemplars"]}
    assert lanes <= {"request", "maintenance"}
    assert "request" in lanes


async def _caused(
    monitoring: Monitoring, alert: str, cause: Callable[[], Awaitable[Any]], cure: Callable[[], Awaitable[Any]]
) -> None:
    await cause()
    try:
        await monitoring.until(alert, fires=True)
    finally:
        await cure()
    await monitoring.until(alert, fires=False)


async def test_a_scrubber_that_stands_still(monitoring: Monitoring) -> None:
    """A pause stops it."""
    async with StateClient(monitoring.daemon.target) as client:
        await _caused(
            monitoring,
            "LionstateScrubStale",
            lambda: client.migration.pause(reason="test"),
            lambda: client.migration.resume(reason="test"),
        )


async def test_a_reader_that_stays(monitoring: Monitoring) -> None:
    """The log grows, and what is still to be migrated waits without any progress."""
    async with StateClient(monitoring.daemon.target) as client:
        end = asyncio.Event()
        load = asyncio.create_task(_load(client, end))
        reader = sqlite3.connect(monitoring.folder / "state.db", isolation_level=None)
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM progressions").fetchone()
        await monitoring.until("LionstateWalGrows", fires=True)
        await client.create_progression("late", [f"m{place}" for place in range(3_000)])
        await monitoring.until("LionstateStarved", fires=True)
        reader.close()
        await asyncio.gather(*(monitoring.until(f"Lionstate{name}", fires=False) for name in ("WalGrows", "Starved")))
        end.set()
        await load


async def _crowd(socket: Path, over: asyncio.Event) -> None:
    """Two hundred requests at once, each on its own: the client of lionstate would put them into one."""
    connector = aiohttp.UnixConnector(str(socket), limit=0)
    async with aiohttp.ClientSession("http://lionstate", connector=connector) as http:

        async def append(number: int) -> None:
            body = {"progression_id": "p0", "message_id": f"x-{time.time_ns()}-{number}"}
            async with http.post("/v1/ops/append_to_progression", json=body) as answer:
                await answer.read()

        while not over.is_set():
            await asyncio.gather(*(append(number) for number in range(200)))
            await asyncio.sleep(0.05)


async def _hold_the_lock(path: Path, over: asyncio.Event) -> None:
    foreign = sqlite3.connect(path, isolation_level=None)
    while not over.is_set():
        with suppress(sqlite3.OperationalError):
            foreign.execute("BEGIN IMMEDIATE")
            await asyncio.sleep(1.0)
            foreign.execute("ROLLBACK")
        await asyncio.sleep(0.2)
    foreign.close()


async def test_another_process_that_holds_the_lock(monitoring: Monitoring) -> None:
    """Writes wait, and the queue is full."""
    over = asyncio.Event()
    holding = asyncio.create_task(_hold_the_lock(monitoring.folder / "state.db", over))
    crowding = asyncio.create_task(_crowd(monitoring.daemon.socket, over))
    for fires in (True, False):
        await asyncio.gather(
            *(monitoring.until(f"Lionstate{name}", fires=fires) for name in ("LockLatency", "Refuses"))
        )
        over.set()
        await asyncio.gather(holding, crowding)


def _inject(fault: str, pid: int) -> subprocess.Popen[bytes]:
    calls = "fsync,fdatasync"
    options = ("-e", f"trace={calls}", "-e", f"inject={calls}:{fault}", "-p", str(pid))
    return subprocess.Popen([tool("strace"), "-f", "-qq", "-o", "/dev/null", *options])


@pytest.mark.parametrize(
    ("alert", "fault"),
    [("LionstateCommitLatency", "delay_enter=150000"), ("LionstateUnknownOutcome", "error=EIO")],
    ids=["slow", "failing"],
)
async def test_a_disk(monitoring: Monitoring, alert: str, fault: str) -> None:
    """Every fsync of the daemon takes 150 ms longer; every one fails, as in fault 34."""
    end = asyncio.Event()
    async with StateClient(monitoring.daemon.target) as client:
        load = asyncio.create_task(_load(client, end))
        tracer = _inject(fault, monitoring.daemon.process.pid)

        async def begun() -> None:
            return None

        async def ended() -> None:
            tracer.terminate()
            await asyncio.to_thread(tracer.wait)

        await _caused(monitoring, alert, begun, ended)
        end.set()
        await load


async def test_a_program_that_is_not_there(monitoring: Monitoring) -> None:
    """The one that delivers; no other dispatch comes after the first."""
    async with StateClient(monitoring.daemon.target) as client:

        async def enter() -> None:
            await client.enqueue_dispatch(kind="k", deliver_to="d")

        async def install() -> None:
            program = monitoring.folder / "deliver"
            program.write_text("#!/bin/sh\n")
            program.chmod(0o700)
            await enter()

        await _caused(monitoring, "LionstateDegraded", enter, install)


def _change(path: Path, statement: str) -> None:
    """Another program writes the store."""
    conn = sqlite3.connect(path, isolation_level=None, timeout=20)
    assert 1 == conn.execute(statement).rowcount
    conn.close()


async def test_a_value_that_is_no_array(monitoring: Monitoring) -> None:
    path = monitoring.folder / "state.db"
    async with StateClient(monitoring.daemon.target) as client:

        async def spoil() -> None:
            _change(path, "INSERT INTO progressions (id, created_at, collection) VALUES ('worse', 0, '{}')")

        async def repair() -> None:
            await client.set_progression("worse", ["m"])
            await client.migration.retry("worse")

        await _caused(monitoring, "LionstateBlocked", spoil, repair)


async def test_a_row_that_is_altered_behind_our_back(monitoring: Monitoring) -> None:
    """The scrubber finds it."""
    text = "UPDATE progression_items SET message_id = 'z' WHERE ordinal = 5 AND progression_id = 'p3'"
    async with StateClient(monitoring.daemon.target) as client:

        async def alter() -> None:
            _change(monitoring.folder / "state.db", text)

        async def unblock() -> None:
            _change(monitoring.folder / "state.db", text.replace("'z'", "'m5'"))
            await client.migration.unblock("p3", reason="test")

        await _caused(monitoring, "LionstateParityMismatch", alter, unblock)


async def test_a_daemon_that_is_gone(monitoring: Monitoring) -> None:
    """The Alertmanager hears of it."""
    monitoring.daemon.process.send_signal(signal.SIGKILL)
    monitoring.daemon.process.wait()
    await monitoring.until("LionstateDown", fires=True)
    await eventually(lambda: "LionstateDown" in monitoring.heard())
    ops = monitoring.daemon.ops
    monitoring.daemon = monitoring.start_daemon(listen__ops=ops)
    monitoring.daemon.ops = ops
    await monitoring.until("LionstateDown", fires=False)


def test_every_alert_was_seen(monitoring: Monitoring) -> None:
    print("\n| alert | caused by | seconds to fire | seconds to resolve |\n|---|---|---|---|")
    for alert, seconds in monitoring.fired.items():
        print(f"| {alert} | {monitoring.causes[alert]} | {seconds:.1f} | {monitoring.resolved[alert]:.1f} |")
    assert set(ALERTS) == set(monitoring.fired) == set(monitoring.resolved)
