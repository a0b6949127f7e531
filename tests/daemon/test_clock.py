"""A wall clock that is stepped while the daemon serves and migrates."""

from __future__ import annotations

import itertools
import json
import time
from pathlib import Path

import anyio
import pytest

from lionstate import StateClient, StateDB
from lionstated.assembly import assemble
from lionstated.process import Daemon
from tests.daemon.fakes import settings_for
from tests.support.backends import Backend
from tests.support.eventually import eventually
from tests.support.migration import patient

pytestmark = pytest.mark.anyio

_HOUR, _DAY = 3_600.0, 86_400.0


async def test_a_clock_that_jumps_stops_neither_timer_nor_gauges(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """fault 66: a day on, a second back again and again, an hour back for good; everything is done in its time."""
    async with StateDB(folder / "state.db") as state:
        backend = Backend("sqlite", state, state)
        await patient(backend)
        for number in range(3):
            await backend.put_progression(f"p{number}", json.dumps([f"m{n}" for n in range(200)]))
    real, steps, shift = time.time, itertools.cycle((0.0, -1.0)), _DAY
    monkeypatch.setattr(time, "time", lambda: real() + shift + next(steps))
    settings = settings_for(
        folder,
        database__sqlite_module="stdlib",
        maintenance__enabled="true",
        maintenance__interval_seconds="0.01",
        maintenance__max_items="50",
        # Its findings would refresh the gauges whatever the clock says.
        maintenance__scrub_items_per_second="0",
    )
    parts = assemble()
    daemon = Daemon(settings, operations=parts.operations, store_factory=parts.store_factory)

    def told(count: int) -> bool:
        return f'lionstate_migration_progressions{{phase="items"}} {count}.0' in daemon.metrics.exposition()[0].decode()

    async with anyio.create_task_group() as group:
        await group.start(daemon.run)
        async with StateClient(f"unix:{folder / 'd.sock'}") as client:
            for number in range(20):
                await client.append_to_progression("p0", f"new-{number}")
            await eventually(lambda: told(3))
            assert 220 == await client.count_progression_items("p0")
            shift = -_HOUR
            # Born in items: nothing to migrate, so that only the timer tells of it.
            await client.create_progression("p3", ["m"])
            await eventually(lambda: told(4))
            await client.append_to_progression("p3", "n")
            assert ["m", "n"] == await client.get_progression("p3")
        daemon.stop()
