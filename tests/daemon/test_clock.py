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
    """fault 66: an hour back, a day on, a second back, again and again; everything is still done in its time."""
    async with StateDB(folder / "state.db") as state:
        backend = Backend("sqlite", state, state)
        await patient(backend)
        for number in range(3):
            await backend.put_progression(f"p{number}", json.dumps([f"m{n}" for n in range(200)]))
    real, shifts = time.time, itertools.cycle((0.0, -_HOUR, -_HOUR + _DAY, -_HOUR + _DAY - 1.0, 2 * _DAY, -2 * _DAY))
    monkeypatch.setattr(time, "time", lambda: real() + next(shifts))
    settings = settings_for(
        folder,
        database__sqlite_module="stdlib",
        maintenance__enabled="true",
        maintenance__interval_seconds="0.01",
        maintenance__max_items="50",
    )
    parts = assemble()
    daemon = Daemon(settings, operations=parts.operations, store_factory=parts.store_factory)

    def cut_over() -> bool:
        return 'lionstate_migration_progressions{phase="items"} 3.0' in daemon.metrics.exposition()[0].decode()

    async with anyio.create_task_group() as group:
        await group.start(daemon.run)
        async with StateClient(f"unix:{folder / 'd.sock'}") as client:
            for number in range(20):
                await client.append_to_progression("p0", f"new-{number}")
            await eventually(cut_over)
            assert 220 == await client.count_progression_items("p0")
        daemon.stop()
