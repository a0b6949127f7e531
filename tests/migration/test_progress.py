"""How far a migration is, told by ``status()`` of a real store while it moves (faults 17, 21; ADR-0117 D5)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lionstate.cli.render import progress_lines
from lionstate.errors import BackendUnavailableError
from lionstate.migration import Activity, ProgressionMigrationService
from lionstate.migration.speed import load_speed
from tests.support.backends import Backend
from tests.support.migration import make_ids, service_of, until_done

IDS = make_ids(400)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Samples are written at once, and few seconds of them are enough."""
    monkeypatch.setattr("lionstate.migration.speed._FLUSH_SECONDS", 0.0)
    monkeypatch.setattr("lionstate.migration.speed._YOUNG_SECONDS", 0.0)


async def test_it_stays_a_share_while_progressions_shrink_and_vanish(backend: Backend, state: Any) -> None:
    """fault 17"""
    for number in range(6):
        await backend.put_progression(f"p{number}", json.dumps(IDS[: 60 * (number + 1)]))
    service = service_of(backend)
    seen = [(await service.status()).progress]
    for number in range(200):
        if number == 4:
            await state.delete_progression("p5")
        elif number == 6:
            await state.set_progression("p4", IDS[:3])
        elif number == 8:
            await backend.execute("DELETE FROM progressions WHERE id = 'p2'")
        step = await service.step(max_items=50, max_seconds=60)
        seen.append((await service.status()).progress)
        if not step.did_work:
            break
    assert [] == [one for one in seen if not 0.0 <= one.fraction <= 1.0]
    assert [] == [one for one in seen if (one.fraction == 1.0) is not (one.left == 0)]
    assert 1.0 == seen[-1].fraction and Activity.DONE is seen[-1].activity
    assert 4 < len({one.fraction for one in seen})
    assert any(one.under_way and one.under_way[0].copied < one.under_way[0].to_copy for one in seen)
    assert IDS[0] not in str(seen)


async def test_empty_progressions_are_done(backend: Backend) -> None:
    """fault 17"""
    for name in ("a", "b"):
        await backend.put_progression(name, "[]")
    service = service_of(backend)
    assert (0.0, Activity.WAITING) == (lambda one: (one.fraction, one.activity))((await service.status()).progress)
    await until_done(service)
    assert (1.0, Activity.DONE) == (lambda one: (one.fraction, one.activity))((await service.status()).progress)


async def test_the_time_left_comes_from_steps(backend: Backend, quick: None) -> None:
    """faults 17, 21: unknown until measured, and while paused; another process sees what was measured."""
    await backend.put_progression("p", json.dumps(IDS))
    service = service_of(backend)
    assert (await service.status()).progress.eta_seconds is None
    await service.own()
    # The first step measures sizes and copies; three of them are enough.
    for _ in range(3):
        assert (await service.status()).progress.eta_seconds is None
        await service.step(max_items=50, max_seconds=60)
    for found in ((await service.status()).progress, (await service_of(backend).status()).progress):
        assert (Activity.MOVING, 150, 400) == (
            found.activity,
            found.under_way[0].copied,
            found.under_way[0].to_copy,
        )
        assert found.eta_seconds is not None and found.eta_seconds > 0
        assert found.items_per_second is not None and found.items_per_second > 0
        assert found.left_bytes is not None and 0 < found.left_bytes < len(json.dumps(IDS))
    await service.pause(reason="test")
    paused = (await service.status()).progress
    assert (Activity.PAUSED, None, None) == (paused.activity, paused.eta_seconds, paused.items_per_second)
    kept = await backend.direct.store.read(load_speed)
    assert 3 == len(kept.samples)
    assert kept.growth_bytes(1_000) is not None
    assert kept.chunk_lock_seconds is not None and 0 < kept.chunk_lock_seconds < 60
    assert (kept.log_bytes is None) is backend.is_postgresql


async def test_what_cannot_move_has_no_time_left(backend: Backend, quick: None) -> None:
    """fault 17: excluded with and without a row of its own, held, ready for a command: left, but no work."""
    for name, ids in (("begun", IDS[:360]), ("held", IDS), ("other", IDS)):
        await backend.put_progression(name, json.dumps(ids))
    service = service_of(backend)
    await service.exclude("other")
    await service.hold("held")
    await service.own()
    for _ in range(3):
        await service.step(max_items=90, max_seconds=60)
    # The smallest is copied first, and excluded half-way.
    both = (await service.status()).progress
    await service.exclude("begun")
    one = (await service.status()).progress
    assert (1, 2) == (both.kept_back, one.kept_back)
    assert both.eta_seconds is not None and one.eta_seconds is not None and one.eta_seconds < both.eta_seconds
    await until_done(service)
    status = await service.status()
    found = status.progress
    assert (3, 3, Activity.WAITING, None, None) == (
        found.left,
        found.kept_back,
        found.activity,
        found.eta_seconds,
        found.items_per_second,
    )
    assert found.left_bytes is not None and found.left_bytes > len(json.dumps(IDS))
    told = progress_lines(status)
    assert "waiting: " in told[0] and told[1].endswith("3 of them held, excluded or waiting for a command")
    assert "time left: unknown" == told[2]
    assert told[3].startswith("nothing of that moves by itself: ")
    await service.exclude("other", clear=True)
    assert 3 == len(progress_lines(await service.status()))
    assert (2, Activity.MOVING) == (lambda one: (one.kept_back, one.activity))((await service.status()).progress)


async def test_what_nobody_moves_has_no_time_left(backend: Backend, quick: None) -> None:
    """fault 17: while steps fail, when it was disabled, and from the moment at which no process migrates any more."""
    await backend.put_progression("p", json.dumps(IDS))
    service, other = service_of(backend), service_of(backend)
    await service.own()
    for _ in range(3):
        await service.step(max_items=50, max_seconds=60)

    async def told(by: ProgressionMigrationService) -> tuple[Activity, bool]:
        found = (await by.status()).progress
        assert (found.eta_seconds is None) is (found.items_per_second is None)
        return found.activity, found.eta_seconds is not None

    moving, waiting = (Activity.MOVING, True), (Activity.WAITING, False)
    assert (moving, moving) == (await told(service), await told(other))
    service.automatic = False
    assert (waiting, moving) == (await told(service), await told(other))
    service.automatic = True
    for part, expected in (("step", waiting), ("lease", waiting), ("scrub", moving)):
        service._memory.lane.failed(part, BackendUnavailableError("gone", reason="store_moved"))
        assert expected == await told(service), part
        service._memory.lane.worked(part)
    assert moving == await told(service)
    await service.disown()
    assert (waiting, waiting) == (await told(service), await told(other))


async def test_what_another_version_kept_is_not_read(backend: Backend, quick: None) -> None:
    await backend.put_progression("p", json.dumps(IDS))
    await service_of(backend).step(max_items=50, max_seconds=60)
    await backend.execute("UPDATE migration_control SET value = '[[1, 2]]' WHERE key = 'speed'")
    assert () == (await backend.direct.store.read(load_speed)).samples
    await until_done(service_of(backend))
    assert () != (await backend.direct.store.read(load_speed)).samples
