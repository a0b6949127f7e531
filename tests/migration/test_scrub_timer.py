"""The daemon's slow loop: it scrubs by itself at its pace, counts, and compares reads in dual."""

from __future__ import annotations

import json
from typing import Any

import anyio
import pytest

from lionstate.errors import BackendBusyError
from lionstate.migration import MigrationStatus, Ownership, ProgressionMigrationService
from lionstated import maintenance
from lionstated.maintenance import MaintenanceTimer
from lionstated.metrics import Metrics
from lionstated.scrubbing import ScrubPace
from lionstated.settings.model import Maintenance
from tests.support.backends import Backend
from tests.support.eventually import eventually
from tests.support.migration import IDS, service_of, state_of, until_done


def settings(**given: Any) -> Maintenance:
    """Ticks as fast as they come."""
    return Maintenance(**{"interval_seconds": 0.01, "scrub_interval_seconds": 0.0, **given})


async def test_the_timer_scrubs_whether_it_migrates_or_not(
    backend: Backend, state: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A read from a dual JSON is compared; a row that goes missing is found; all of it is counted."""
    metrics = Metrics()
    service = service_of(backend)
    metrics.on_dual_read.append(service.shadow.offer)
    metrics.on_doubt.append(service.ask_scrub)
    monkeypatch.setattr(backend.direct.store, "observer", metrics)
    await backend.put_progression("p", json.dumps(IDS))
    await until_done(service)
    await backend.put_progression("q", json.dumps(IDS))
    await service.step(progression_id="q", max_items=10, max_seconds=60)
    value = metrics.registry.get_sample_value
    finish = anyio.Event()
    timer = MaintenanceTimer(service, settings(shadow_read_ratio=1.0), metrics)
    async with anyio.create_task_group() as group:
        group.start_soon(timer.run, finish, lambda: None)
        await eventually(lambda: (value("lionstate_scrub_last_pass_timestamp_seconds") or 0) > 1e9)
        assert (value("lionstate_scrub_items_total", {"outcome": "match"}) or 0) >= 20
        assert 0.0 == value("lionstate_scrub_items_total", {"outcome": "mismatch"})
        assert IDS == await state.get_progression("q")
        await eventually(lambda: value("lionstate_migration_parity_checks_total", {"outcome": "match"}) == 1.0)
        await backend.execute("DELETE FROM progression_items WHERE progression_id = 'p' AND ordinal = 5")
        await eventually(lambda: value("lionstate_migration_blocked", {"code": "count_mismatch"}) == 1.0)
        assert (value("lionstate_scrub_items_total", {"outcome": "mismatch"}) or 0) >= 1
        assert 0.0 == value("lionstate_migration_owner")
        finish.set()
    assert ("blocked", True) == (lambda row: (row["phase"], bool(row["compat_read"])))(await state_of(backend, "p"))
    assert IDS == await state.get_progression("p")


async def test_the_first_look_waits_for_no_work(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a scrape right after the start is told; a lock that another program holds keeps the work, not the look."""
    metrics, service = Metrics(), service_of(backend)
    looks, began, go_on = 0, anyio.Event(), anyio.Event()
    look = service.status

    async def own(seconds: float) -> Ownership:
        began.set()
        await go_on.wait()
        raise BackendBusyError("locked")

    async def count(**given: Any) -> MigrationStatus:
        nonlocal looks
        looks += 1
        return await look(**given)

    monkeypatch.setattr(service, "own", own)
    monkeypatch.setattr(service, "status", count)
    monkeypatch.setattr(maintenance, "_GAUGE_SECONDS", 0.0)
    timer = MaintenanceTimer(service, settings(enabled=True), metrics)
    async with anyio.create_task_group() as group:
        group.start_soon(timer.run, anyio.Event(), lambda: None)
        await began.wait()
        assert timer.standing is not None
        read = metrics.registry.get_sample_value("lionstate_migration_throttle_value", {"signal": "queue_depth"})
        group.cancel_scope.cancel()
    assert (0.0, 1) == (read, looks)
    # Nor do attempts that fail let the figures grow old.
    go_on.set()
    with pytest.raises(BackendBusyError):
        await timer.run(anyio.Event(), lambda: None)
    assert 2 == looks


async def last_pass(found: ProgressionMigrationService) -> float | None:
    return (await found.status()).proof.last_pass_at


async def test_it_does_not_when_it_is_off_or_paused(backend: Backend) -> None:
    await backend.put_progression("p", json.dumps(IDS))
    service = service_of(backend)
    await until_done(service)

    async def ticks(timer: MaintenanceTimer) -> None:
        finish, count = anyio.Event(), 0

        def healthy() -> None:
            nonlocal count
            count += 1
            if count == 5:
                finish.set()

        await timer.run(finish, healthy)

    await ticks(MaintenanceTimer(service, settings(scrub_items_per_second=0), Metrics()))
    assert await last_pass(service) is None
    await service.pause()
    await ticks(MaintenanceTimer(service, settings(scrub_items_per_second=100_000), Metrics()))
    assert await last_pass(service) is None
    await service.resume()
    await ticks(MaintenanceTimer(service, settings(scrub_items_per_second=100_000), Metrics()))
    assert await last_pass(service) is not None


async def test_only_the_process_that_migrates_goes_on_with_the_pass(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """decision 27: the other one looks at what its own reads have doubted, and at nothing else."""
    await backend.put_progression("p", json.dumps(IDS))
    owner = ProgressionMigrationService(backend.direct.store, actor="test", owner="a/1")
    await until_done(owner)
    await owner.own()
    other = ProgressionMigrationService(backend.direct.store, actor="test", owner="b/2")
    monkeypatch.setattr("lionstated.maintenance.ScrubPace.allowed", lambda pace, given: 100_000)
    for enabled in (True, False):
        timer = MaintenanceTimer(other, settings(enabled=enabled), Metrics())
        # The first one only learns who migrates, and when the last pass was.
        await timer._tick()
        await timer._tick()
    assert await last_pass(other) is None
    owning = MaintenanceTimer(owner, settings(enabled=True), Metrics())
    await owning._tick()
    await owning._tick()
    assert await last_pass(owner) is not None
    await backend.execute("DELETE FROM progression_items WHERE progression_id = 'p' AND ordinal = 5")
    other.ask_scrub("p")
    await timer._tick()
    assert "blocked" == (await state_of(backend, "p"))["phase"]


async def test_the_pace(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    """So many rows a second on the average, whatever was read at once; no pass before the pause is over."""
    now = 100.0
    monkeypatch.setattr("lionstated.scrubbing.time.monotonic", lambda: now)
    monkeypatch.setattr("lionstated.scrubbing.time.time", lambda: now)
    pace, given = ScrubPace(), settings(scrub_items_per_second=500, scrub_interval_seconds=10.0)
    assert 0 == pace.allowed(given)
    now += 1.0
    assert 500 == pace.allowed(given)
    now += 60.0
    assert 1000 == pace.allowed(given)
    pace.spend(2_000)
    now += 2.0
    assert 0 == pace.allowed(given)
    now += 1.0
    assert 500 == pace.allowed(given)
    assert 0 == pace.allowed(settings(scrub_items_per_second=0))
    status: MigrationStatus = await service_of(backend).status()
    assert not pace.may_begin(given)
    pace.learn(status)
    assert pace.may_begin(given)
