"""A daemon that is killed again and again under load, with and without a migration; used by e2e and by soak."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence

from lionstate import StateClient, StateDB
from lionstate.migration import MigrationStatus, StopReason, VerificationOutcome
from tests.demo.processes import DaemonProcess
from tests.support.load import Load, orders_in

__all__ = ["finish_migration", "kill_under_load", "verify_all"]


async def _prepare(target: str, count: int, size: int) -> dict[str, list[str]]:
    before = {f"p{number:02d}": [f"old-{number}-{place}" for place in range(size)] for number in range(count)}
    async with StateClient(target) as client:
        for progression, ids in before.items():
            await client.create_progression(progression, ids)
    return before


async def finish_migration(target: str) -> MigrationStatus:
    """Migrate the rest as fast as it goes."""
    async with StateClient(target) as client:
        while True:
            step = await client.migration.step(max_items=100_000, max_seconds=5.0)
            if step.stop_reason in (StopReason.DONE, StopReason.NOTHING_TO_DO):
                return await client.migration.status(limit=0)
            assert step.stop_reason is not StopReason.BLOCKED


async def verify_all(url: str, progressions: Sequence[str]) -> None:
    """Both representations and the digests that the cutovers recorded are equal."""
    async with StateDB(url=url) if "://" in url else StateDB(url) as state:
        for progression in progressions:
            found = await state.migration.verify(progression)
            assert VerificationOutcome.MATCH == found.outcome, (found.outcome, found.code)
            assert found.json_digest == found.items_digest is not None


async def kill_under_load(
    start: Callable[..., DaemonProcess], url: str, *, kills: int, migrating: bool, seed: int
) -> str:
    """Kill the daemon so often, each time after a random number of acknowledged appends; check what is there.

    Returns:
        A line of what was seen.
    """
    chance = random.Random(seed)
    flags = {"storage__lionagi_compatible": "true" if migrating else "false"}
    slow = {**flags, "maintenance__interval_seconds": "0.05", "maintenance__chunks_per_tick": "1"}
    daemon = start(url, **flags)
    progressions, size = (2 * kills, 2_500) if migrating else (4, 10)
    before = await _prepare(daemon.target, progressions, size)
    if migrating:
        daemon.stop()
        flags = {**slow, "maintenance__enabled": "true"}
        daemon = start(url, **flags)
    killed_while_migrating = 0
    load = Load(daemon.target, sorted(before))
    async with load.running():
        for _ in range(kills):
            await load.acknowledge(chance.randrange(20, 200))
            if migrating:
                async with StateClient(daemon.target) as client:
                    phases = (await client.migration.status(limit=0)).phases
                killed_while_migrating += phases["json"] + phases["dual"] > 0
            daemon.kill()
            daemon = await asyncio.to_thread(start, url, **flags)
        await load.acknowledge(50)
    status = await finish_migration(daemon.target) if migrating else None
    code = daemon.stop()
    assert code == 0, (code, daemon.log.read_text()[-2500:])
    found, phases_found = await orders_in(url)
    load.check(found, before)
    acknowledged = sum(len(writer.acknowledged) for writer in load.writers)
    unknown = sum(len(writer.unknown) for writer in load.writers)
    if status is not None:
        await verify_all(url, sorted(before))
        migrated = {phase: count for phase, count in status.phases.items() if count}
        assert {"items": len(before)} == migrated, (dict(status.phases), dict(status.blocked), dict(status.held))
        assert {"items"} == set(phases_found.values())
        # A run whose migration is over before the first kill shows nothing.
        assert killed_while_migrating > 0
    return (
        f"{kills} kills ({killed_while_migrating} of them mid-migration): {acknowledged} appends acknowledged,"
        f" {unknown} unknown and left so, none lost, none twice, none out of order"
    )
