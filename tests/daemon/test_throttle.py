"""The daemon's throttle and knobs: metrics from memory, the API, settings as defaults."""

from __future__ import annotations

import json
from pathlib import Path

import anyio
import pytest

from lionstate import StateDB
from lionstate.errors import InvalidInputError
from lionstate.migration import KNOBS
from lionstated.assembly import open_store
from lionstated.metrics import Metrics
from tests.daemon.fakes import settings_for
from tests.support.backends import serve_daemon
from tests.support.eventually import eventually

pytestmark = pytest.mark.anyio


async def put(path: Path) -> None:
    """A progression that could be migrated."""
    async with StateDB(path) as state, state.transaction() as transaction:
        await transaction.execute(
            "INSERT INTO progressions (id, created_at, collection) VALUES ('p', 1.0, :ids)", {"ids": json.dumps(["a"])}
        )


async def test_a_tripped_signal_is_in_the_metrics_with_its_limit(folder: Path) -> None:
    """faults 7, 46: the timer waits, is healthy all the while, and says why; a knob lets it go on."""
    await put(folder / "state.db")
    metrics = Metrics()
    settings = settings_for(
        folder,
        database__sqlite_module="stdlib",
        maintenance__enabled="true",
        maintenance__interval_seconds="0.01",
        maintenance__free_disk_floor_bytes=str(10**15),
    )
    parts = await open_store(settings, metrics)
    try:
        status = parts.verbs["status"].call
        finish, ticks, moved = anyio.Event(), 0, anyio.Event()

        def healthy() -> None:
            nonlocal ticks
            ticks += 1
            if ticks == 3:
                moved.set()

        async with anyio.create_task_group() as group:
            assert parts.maintenance is not None
            group.start_soon(parts.maintenance, finish, healthy)
            await moved.wait()
            text = metrics.exposition()[0].decode()
            found = await status(limit=0)
            (disk,) = found.throttle.tripped
            assert ("free_disk", 1e15, "under_floor") == (disk.signal, disk.limit, disk.reason)
            assert 1 == found.phases["json"]
            for line in (
                'lionstate_migration_throttle_limit{signal="free_disk"} 1e+15',
                'lionstate_migration_paused{reason="pressure"} 1.0',
                'lionstate_migration_paused{reason="error_budget"} 0.0',
                "lionstate_migration_starved 0.0",
            ):
                assert line + "\n" in text
            value = [line for line in text.splitlines() if 'throttle_value{signal="free_disk"}' in line]
            assert 0 < float(value[0].split()[1]) < 1e15
            await parts.verbs["set-knob"].call(name="free_disk_floor_bytes", value=0)

            async def moved_on() -> bool:
                return bool((await status(limit=0)).phases["items"] == 1)

            await eventually(moved_on)
            finish.set()
        await parts.verbs["pause"].call()
        text = metrics.exposition()[0].decode()
        assert 'lionstate_migration_paused{reason="pressure"} 0.0\n' in text
        assert 'lionstate_migration_paused{reason="operator"} 1.0\n' in text
        (total,) = [line for line in text.splitlines() if 'throttled_seconds_total{signal="free_disk"}' in line]
        assert float(total.split()[1]) > 0
    finally:
        await parts.drain(1.0)
        await parts.close()


async def test_knobs_over_the_api(folder: Path) -> None:
    async with serve_daemon(str(folder / "state.db"), folder / "d.sock", **{"maintenance.nice_ratio": "0.2"}) as client:
        service = client.migration
        knobs = {one.name: one for one in await service.knobs()}
        assert list(KNOBS) == list(knobs)
        assert (0.2, 0.2, None) == (
            knobs["nice_ratio"].value,
            knobs["nice_ratio"].default,
            knobs["nice_ratio"].actor,
        )
        found = await service.set_knob("nice_ratio", 0.75, reason="night")
        assert (0.75, 0.2, "night") == (found.value, found.default, found.reason)
        assert 0.2 == (await service.set_knob("nice_ratio", None)).value
        with pytest.raises(InvalidInputError, match=r"nice_ratio must be a number from 0.01 to 1"):
            await service.set_knob("nice_ratio", 2)
        with pytest.raises(InvalidInputError, match="no such knob"):
            await service.set_knob("nicest", 2)
        throttle = (await service.status(limit=0)).throttle
        assert (False, False, 500) == (throttle.throttled, throttle.starved, throttle.chunk_items)
        assert {"lock_wait", "queue_depth", "queue_age", "parity", "free_disk"} <= {
            one.signal for one in throttle.signals
        }
