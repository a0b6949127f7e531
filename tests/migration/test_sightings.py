"""PostgreSQL: another program's write of a dual progression is seen by its row version (decision 37)."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from lionstate.migration import ProgressionMigrationService, StopReason
from tests.support.backends import IN_PROCESS, Backend
from tests.support.migration import (
    WHOLE,
    Staged,
    assert_cut_over,
    foreign,
    make_ids,
    patient,
    service_of,
    state_of,
    until_done,
)
from tests.support.stores import open_backend, params_of

IDS = make_ids(20)
COMPACT = json.dumps(IDS, separators=(",", ":"))
TOUCH = "UPDATE progressions SET created_at = created_at WHERE id = 'p'"


@pytest.fixture(params=params_of([name for name in IN_PROCESS if "postgresql" in name]))
async def backend(request: pytest.FixtureRequest, empty_store: Path, tmp_path: Path) -> AsyncIterator[Backend]:
    """A backend whose rows carry versions."""
    async with open_backend(request, empty_store, tmp_path) as found:
        await patient(found)
        yield found


async def half_copied(backend: Backend) -> None:
    """A dual progression ``p`` with five of its elements copied."""
    await backend.put_progression("p", json.dumps(IDS))
    await service_of(backend).step(max_items=5, max_seconds=60)


async def sightings_of(backend: Backend) -> int:
    """Audit rows of sightings."""
    rows = await backend.rows("SELECT 1 AS one FROM admin_events WHERE action LIKE '%foreign_write_seen'")
    return len(rows)


@pytest.mark.parametrize("way", ["same value", "touch"])
async def test_a_write_of_others_holds_the_cutover(backend: Backend, way: str) -> None:
    """The length is the allocator's, the elements are the same: only the version of the row tells."""
    await half_copied(backend)
    async with foreign(backend) as other:
        await (other.replace("p", COMPACT) if way == "same value" else other.execute(TOUCH))
    service = service_of(backend)
    status = await service.status()
    assert (1, True) == (status.foreign_progressions, status.foreign_sighted_at is not None)
    assert StopReason.HELD == (await until_done(service))[-1].stop_reason
    row = await state_of(backend)
    assert ("dual", "foreign_writer") == (row["phase"], row["held_reason"])
    # Noted and brought up to date: the store waits, and the next write is seen again.
    status = await service.status()
    assert (0, True, {"foreign_writer": 1}) == (
        status.foreign_progressions,
        status.foreign_sighted_at is not None,
        status.held,
    )
    assert 1 == await sightings_of(backend)
    assert StopReason.HELD == (await service.step(**WHOLE)).stop_reason

    await service.set_accept_foreign_writers(True, reason="told them")
    assert StopReason.DONE == (await until_done(service))[-1].stop_reason
    await assert_cut_over(backend, IDS)


async def test_a_sighting_is_forgotten_after_a_day(backend: Backend) -> None:
    await half_copied(backend)
    async with foreign(backend) as other:
        await other.execute(TOUCH)
    assert StopReason.HELD == (await until_done(service_of(backend)))[-1].stop_reason
    await backend.execute(
        "UPDATE migration_control SET expires_at = :at WHERE key = 'foreign.sighted'", at=time.time() - 1
    )
    assert StopReason.DONE == (await until_done(service_of(backend)))[-1].stop_reason


async def test_an_own_append_over_it_keeps_the_sighting(backend: Backend, state: Any) -> None:
    await half_copied(backend)
    swapped = [*IDS[:-1], make_ids(1, first=700)[0]]
    async with foreign(backend) as other:
        await other.replace("p", json.dumps(swapped))
    await state.append_to_progression("p", "ours")
    assert "dual" == (await state_of(backend))["phase"]
    status = await service_of(backend).status()
    assert (0, True) == (status.foreign_progressions, status.foreign_sighted_at is not None)
    assert StopReason.HELD == (await until_done(service_of(backend)))[-1].stop_reason


async def test_an_own_replacement_over_it_keeps_the_sighting(backend: Backend, state: Any) -> None:
    await half_copied(backend)
    async with foreign(backend) as other:
        await other.execute(TOUCH)
    await state.set_progression("p", IDS)
    status = await service_of(backend).status()
    assert (0, True) == (status.foreign_progressions, status.foreign_sighted_at is not None)


async def test_a_write_between_the_look_and_the_lock_is_seen(backend: Backend) -> None:
    await backend.put_progression("first", "[]")
    await until_done(service_of(backend))
    await backend.put_progression("p", json.dumps(IDS))
    staged = Staged(backend)
    async with foreign(backend) as other:

        async def touch(name: str) -> None:
            if name == "cutover":
                await other.execute(TOUCH)

        staged.before = touch
        step = await ProgressionMigrationService(staged).step(**WHOLE)
    assert ({"foreign_writer": 1}, 0) == (step.held, step.cut_over)
    assert 1 == await sightings_of(backend)
    status = await service_of(backend).status()
    assert (0, True) == (status.foreign_progressions, status.foreign_sighted_at is not None)


async def test_own_writes_in_every_way_are_no_sighting(backend: Backend, state: Any) -> None:
    """Single, folded, from many tasks, in batches with and without refusals, replaced, rolled back and readmitted."""
    await half_copied(backend)
    for number in range(3):
        await state.append_to_progression("p", f"single-{number}")
    await asyncio.gather(*(state.append_to_progression("p", f"task-{number}") for number in range(50)))
    async with state.batch(atomic=True) as batch:
        batch.append_to_progression("p", "atomic-1")
        batch.set_progression("p", [*IDS, "replaced"])
        batch.append_to_progression("p", "atomic-2")
    async with state.batch(atomic=False) as batch:
        batch.append_to_progression("p", "loose-1")
        # Raises in its script, so that the whole batch is replayed in savepoints.
        batch.create_branch({"id": "b", "session_id": "missing", "progression_id": "p"})
        batch.append_to_progression("p", "loose-2")
    assert ["Written", "NotWritten", "Written"] == [type(result).__name__ for result in batch.results]
    assert 0 == (await service_of(backend).status()).foreign_progressions
    service = service_of(backend)
    await service.rollback("p", reason="test")
    await service.release("p", reason="test")
    await service.step(max_items=5, max_seconds=60)
    await state.append_to_progression("p", "after")
    for vacuum in ("VACUUM (FREEZE) progressions", "VACUUM FULL progressions"):
        async with foreign(backend) as other:
            await other.execute(vacuum)
        assert 0 == (await service.status()).foreign_progressions
    (last,) = (await until_done(service))[-1:]
    assert (StopReason.DONE, 0) == (last.stop_reason, await sightings_of(backend))
    await assert_cut_over(backend, await state.get_progression("p"))
