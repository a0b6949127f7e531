"""Daemons that are stopped at any moment of their life, one after the other, in this process."""

from __future__ import annotations

import asyncio
import gc
import os
import random
from pathlib import Path

import anyio

from lionstated.assembly import assemble
from lionstated.process import Daemon
from tests.daemon.fakes import settings_for

__all__ = ["start_and_stop"]


async def start_and_stop(folder: Path, cycles: int, *, seed: int = 63) -> None:
    """Start and stop so often, each after 0 to 50 ms, with the maintenance timer on; nothing may be left over."""
    chance = random.Random(seed)
    settings = settings_for(
        folder,
        database__sqlite_module="stdlib",
        maintenance__enabled="true",
        maintenance__interval_seconds="0.001",
        storage__lionagi_compatible="true",
    )
    parts = assemble()
    for _ in range(cycles):
        daemon = Daemon(settings, operations=parts.operations, store_factory=parts.store_factory)
        with anyio.fail_after(20):
            async with anyio.create_task_group() as group:
                group.start_soon(daemon.run)
                await anyio.sleep(chance.uniform(0, 0.05))
                daemon.stop()
    # One whole life: what a start left that was stopped half-way is taken up by the next.
    daemon = Daemon(settings, operations=parts.operations, store_factory=parts.store_factory)
    async with anyio.create_task_group() as group:
        await group.start(daemon.run)
        daemon.stop()
    # A task that was destroyed while pending says so when it is collected.
    gc.collect()
    # The test's own task, and the one that anyio runs it in.
    assert len(asyncio.all_tasks()) <= 2
    left = set(os.listdir(folder))
    assert left <= {"state.db", "state.db.lionstated.lock"}, left
