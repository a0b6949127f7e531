"""The metrics of the real daemon: documented names, values that move, promtool, a constant number of series."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import subprocess
import time
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families

from lionstate import StateClient
from lionstate.operations import OPERATIONS
from lionstated.metrics import Metrics
from tests.demo.processes import DaemonProcess
from tests.e2e.conftest import Daemons
from tests.support.missing import missing

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(180)]

# Design §6, without what belongs to parts that do not exist yet; then those of delivery and following.
DOCUMENTED: dict[str, set[str]] = {
    "build_info": {"version"},
    "write_queue_depth": set(),
    "write_queue_bytes": set(),
    "write_queue_age_seconds": set(),
    "write_queue_wait_seconds": set(),
    "write_batch_operations": set(),
    "write_lock_wait_seconds": set(),
    "write_lock_hold_seconds": {"lane"},
    "commit_seconds": set(),
    "operations_total": {"operation", "outcome"},
    "wal_frames": {"state"},
    "wal_bytes": set(),
    "wal_bytes_written_total": set(),
    "checkpoint_seconds": set(),
    "checkpoints_total": {"mode", "outcome"},
    "pool_connections": {"state"},
    "migration_progressions": {"phase"},
    "migration_remaining_items": set(),
    "migration_step_seconds": set(),
    "migration_items_total": set(),
    "migration_bytes_total": set(),
    "migration_chunks_total": {"outcome"},
    "migration_parity_checks_total": {"outcome"},
    "migration_blocked": {"code"},
    "migration_cutover_lock_seconds": set(),
    "migration_paused": {"reason"},
    "migration_starved": set(),
    "migration_throttle_value": {"signal"},
    "migration_throttle_limit": {"signal"},
    "migration_throttled_seconds_total": {"signal"},
    "blocked_appends_total": {"authority"},
    "compat_reads_total": set(),
    "up": set(),
    "sqlite_info": {"version", "affected"},
    "migration_owner": set(),
    "migration_held": {"reason"},
    "write_pause_seconds_total": set(),
    "service_degraded": {"service"},
    "foreign_commits_total": set(),
    "deliveries_total": {"outcome"},
    "delivery_seconds": set(),
    "deliveries_running": set(),
    "followers": set(),
    "scrub_items_total": {"outcome"},
    "scrub_coverage_ratio": set(),
    "scrub_last_pass_timestamp_seconds": set(),
}


def test_the_documented_list_is_the_registry() -> None:
    """Names are API: nothing more, nothing less, and the label names too."""
    metrics = Metrics(OPERATIONS)
    metrics.set_sqlite("3.53.4", affected=False)
    found: dict[str, set[str]] = {}
    for family in metrics.registry.collect():
        name = family.name.removeprefix("lionstate_") + ("_total" if family.type == "counter" else "")
        found[name] = {label for sample in family.samples for label in sample.labels} - {"le"}
    assert DOCUMENTED == found


async def scrape(daemon: DaemonProcess) -> str:
    async with aiohttp.ClientSession() as http:
        return await (await http.get(f"http://{daemon.ops}/metrics")).text()


def values(text: str) -> dict[str, float]:
    """Every sample of the exposition by its name and labels."""
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = ",".join(f"{name}={value}" for name, value in sorted(sample.labels.items()))
            found[f"{sample.name.removeprefix('lionstate_')}{{{labels}}}"] = sample.value
    return found


def promtool(text: str) -> None:
    tool = shutil.which("promtool")
    if tool is None:
        missing("promtool is not installed")
    done = subprocess.run([tool, "check", "metrics"], input=text, capture_output=True, text=True, check=False)
    assert (0, "", "") == (done.returncode, done.stdout, done.stderr)


async def test_values_move(daemons: Daemons, store_url: str) -> None:
    """Issue A: lock latency, WAL growth and parity among them; fault 65: series do not grow with progressions."""
    daemon = daemons(store_url, storage__lionagi_compatible="true", maintenance__interval_seconds="3600")
    before = values(await scrape(daemon))
    async with StateClient(daemon.target) as client:
        for number in range(3):
            await client.create_progression(f"p{number}", [f"m{place}" for place in range(700)])
        await client.append_to_progression("p0", "tail")
        assert 701 == len(await client.get_progression("p0"))
        await asyncio.gather(*(client.create_progression(f"many-{number}", []) for number in range(5_000)))
        for number in range(400):
            # One transaction each: enough frames for a checkpoint.
            await client.create_progression(f"alone-{number}", [])
        for number in range(3):
            await client.migration.step(progression_id=f"p{number}", max_items=10_000, max_seconds=30.0)
        await client.migration.set_maintenance_enabled(True, reason="test")
        await client.migration.set_compat_read("p0", True)
        await client.get_progression("p0")
        await client.migration.pause(reason="test")
        text = await scrape(daemon)
        found = values(text)
    assert set(before) == set(found)
    grown = {name: found[name] - before[name] for name in found}
    for name in (
        "write_lock_wait_seconds_count{}",
        "write_lock_hold_seconds_count{lane=request}",
        "write_lock_hold_seconds_count{lane=maintenance}",
        "write_lock_hold_seconds_sum{lane=request}",
        "commit_seconds_count{}",
        "write_batch_operations_count{}",
        "write_queue_wait_seconds_count{}",
        "migration_step_seconds_count{}",
        "migration_bytes_total{}",
        "migration_cutover_lock_seconds_count{}",
    ):
        assert grown[name] > 0, name
    assert {
        "operations_total{operation=create_progression,outcome=written}": 5_403,
        "operations_total{operation=append_to_progression,outcome=written}": 1,
        "operations_total{operation=get_progression,outcome=read}": 2,
        "migration_items_total{}": 2_101,
        "migration_progressions{phase=items}": 3,
        "migration_progressions{phase=json}": 5_400,
        "migration_parity_checks_total{outcome=match}": 3,
        "migration_parity_checks_total{outcome=mismatch}": 0,
        "compat_reads_total{}": 1,
    }.items() <= grown.items()
    # Commanded steps give the lease back; the timer takes and keeps it at a tick, and none was due.
    assert 0 == found["migration_owner{}"]
    assert (0, 1) == (found["migration_paused{reason=disabled}"], found["migration_paused{reason=operator}"])
    if not store_url.startswith("postgresql"):
        # Frames and size shrink when the log begins anew; what was written to it only grows.
        assert found["wal_frames{state=log}"] > 0
        assert found["wal_bytes{}"] > 0
        assert grown["wal_bytes_written_total{}"] > 1_000_000
        assert grown["checkpoints_total{mode=passive,outcome=complete}"] > 0
        assert grown["checkpoint_seconds_count{}"] > 0
        assert 0 == found["checkpoints_total{mode=other,outcome=other}"]
    promtool(text)


async def test_scrapes_do_not_wait_for_the_store(daemons: Daemons, folder: Path) -> None:
    """fault 65: 1,000 scrapes during a migration that a foreign lock has stopped; median under 100 ms."""
    daemon = daemons(folder / "state.db", storage__lionagi_compatible="true", maintenance__interval_seconds="0.05")
    async with StateClient(daemon.target) as client:
        for number in range(4):
            await client.create_progression(f"p{number}", [f"m{place}" for place in range(5_000)])
        await client.migration.set_maintenance_enabled(True)
    foreign = sqlite3.connect(folder / "state.db", isolation_level=None)
    foreign.execute("BEGIN IMMEDIATE")
    times: list[float] = []
    async with aiohttp.ClientSession() as http:

        async def one() -> None:
            began = time.perf_counter()
            response: Any = await http.get(f"http://{daemon.ops}/metrics")
            assert "lionstate_up 1.0" in await response.text()
            times.append(time.perf_counter() - began)

        for _ in range(1_000):
            await one()
    foreign.close()
    times.sort()
    print(f"1,000 scrapes: median {times[500] * 1000:.1f} ms, worst {times[-1] * 1000:.1f} ms")
    assert times[500] < 0.1
