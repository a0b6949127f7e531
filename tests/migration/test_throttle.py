"""Migration waits for the store and says for what; appends go on (faults 1, 5, 7, 35, 46; decisions 24, 25)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lionstate.cli.reasons import stuck_lines, why_stopped
from lionstate.codes import ThrottleSignal
from lionstate.errors import BackendError, BackendUnavailableError, NotFoundError
from lionstate.migration import ProgressionMigrationService, StopReason
from tests.support.backends import Backend
from tests.support.migration import (
    WHOLE,
    Staged,
    assert_cut_over,
    foreign,
    make_ids,
    state_of,
    until_done,
)

IDS = make_ids(100)


class Injected:
    """What the process knows of the store, told by the test.

    Attributes:
        values: The readings.
        now: The clock of the service.
    """

    def __init__(self) -> None:
        self.values: dict[ThrottleSignal, float | None] = {}
        self.now = 1_000.0

    def take_hold(self) -> float | None:
        return None

    def take_checkpoint(self) -> float | None:
        return None

    def readings(self) -> dict[ThrottleSignal, float | None]:
        return dict(self.values)


def injected(backend: Backend) -> tuple[ProgressionMigrationService, Injected, Staged]:
    """A service whose readings and clock are the test's."""
    staged, load = Staged(backend), Injected()
    staged.load = load  # type: ignore[assignment]
    service = ProgressionMigrationService(staged)
    service._governor.clock = lambda: load.now
    return service, load, staged


def decoded(value: Any) -> Any:
    """A JSON column as its driver gives it."""
    return json.loads(value) if isinstance(value, str) else value


async def events(backend: Backend, action: str) -> list[dict[str, Any]]:
    rows = await backend.rows(
        "SELECT actor, details FROM admin_events WHERE action = :action", action=f"progression_migrate.{action}"
    )
    return [{"actor": row["actor"], **decoded(row["details"])} for row in rows]


async def test_a_signal_held_high_is_throttled_and_starved_and_nothing_else(backend: Backend, state: Any) -> None:
    """fault 7: for three times the limit; never stuck, failed or blocked; resumes when it drops."""
    await backend.put_progression("p", json.dumps(IDS))
    service, load, staged = injected(backend)
    await service.set_knob("starved_after_seconds", 60)
    assert StopReason.CAP_ITEMS == (await service.step(max_items=10, max_seconds=60)).stop_reason
    load.values[ThrottleSignal.WAL_FRAMES] = 40_001.0
    stages = len(staged.stages)
    for second in range(180):
        load.now += 1
        step = await service.step(**WHOLE)
        assert (StopReason.THROTTLED, False) == (step.stop_reason, step.did_work)
        if second == 30:
            assert not (await service.status()).throttle.starved
    status = await service.status()
    throttle = status.throttle
    # Another process tells it too: the signal, its value, limit and age, and who waits.
    other = await ProgressionMigrationService(backend.direct.store, owner="b/2").status()
    (told,) = [line for line in stuck_lines(other) if "wal_frames 40,001, limit 40,000" in line]
    assert f"throttled in {service._lease.name}: " in told
    assert None is status.elsewhere
    line, starved = why_stopped(step, status)
    assert "throttled: wal_frames 40,001, limit 40,000, for 179 s (over_limit)" == line
    assert "STARVED" in starved
    (frames,) = throttle.tripped
    assert ("wal_frames", 40_001.0, 40_000, "over_limit", 179.0) == (
        frames.signal,
        frames.value,
        frames.limit,
        frames.reason,
        frames.age_seconds,
    )
    assert (True, 179.0) == (throttle.starved, throttle.waited_seconds)
    assert 179.0 == throttle.throttled_seconds["wal_frames"]
    (event,) = await events(backend, "starved")
    assert ("lionstated", ["wal_frames"]) == (event["actor"], event["signals"])
    assert ["waits", "starved"] == [name for name, _ in staged.stages[stages:]]
    await state.append_to_progression("p", "meanwhile")
    row = await state_of(backend)
    assert ("dual", 10, None, None) == (
        row["phase"],
        row["backfill_next"],
        row["blocked_reason"],
        row["held_reason"],
    )
    load.values[ThrottleSignal.WAL_FRAMES] = 10_000.0
    load.now += 1
    await until_done(service)
    await assert_cut_over(backend, [*IDS, "meanwhile"])
    assert (False, None, 180.0) == (
        lambda told: (told.starved, told.waited_seconds, told.throttled_seconds["wal_frames"])
    )((await service.status()).throttle)


async def test_what_fails_is_named_until_it_works(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    """fault 46: the part, the code, since when and how often; a caller's mistake and what waits is no failure."""
    await backend.put_progression("p", json.dumps(IDS))
    service, _, staged = injected(backend)
    real = staged.maintain

    async def full(name: str, script: Any, *, progressions: Any = ()) -> Any:
        raise BackendUnavailableError("the disk is full")

    with pytest.raises(NotFoundError):
        await service.scrub(progression_id="nope")
    assert () == (await service.status()).failing
    monkeypatch.setattr(staged, "maintain", full)
    for _ in range(3):
        with pytest.raises(BackendUnavailableError):
            await service.own()
        with pytest.raises(BackendUnavailableError):
            await service.step(**WHOLE)
    status = await service.status()
    assert [("lease", "backend_unavailable", 3), ("step", "backend_unavailable", 3)] == [
        (one.part, one.code, one.attempts) for one in status.failing
    ]
    assert all(0 < one.since <= one.last_at for one in status.failing)
    assert "FAILING: lease: backend_unavailable, 3 attempts since 0 s ago" in next(iter(stuck_lines(status)))
    monkeypatch.setattr(staged, "maintain", real)
    await service.own()
    await service.step(**WHOLE)
    assert () == (await service.status()).failing


async def test_a_signal_that_trips_between_chunks_ends_the_step(backend: Backend) -> None:
    await backend.put_progression("p", json.dumps(make_ids(2_000)))
    service, load, staged = injected(backend)

    async def after(name: str, _result: Any) -> None:
        if name == "chunk" and len(staged.results("chunk")) == 2:
            load.values[ThrottleSignal.QUEUE_AGE] = 1_000.0
            load.now += 1

    staged.after = after
    step = await service.step(**WHOLE)
    assert (StopReason.THROTTLED, 2, 1_000) == (step.stop_reason, step.chunks, step.items)


async def test_a_signal_that_cannot_be_read_stops_migration_and_not_appends(backend: Backend, state: Any) -> None:
    """Decision 24: ``signal_unavailable`` counts as tripped."""
    await backend.put_progression("p", json.dumps(IDS))
    service, load, _ = injected(backend)
    load.values[ThrottleSignal.FREE_DISK] = None
    assert StopReason.THROTTLED == (await service.step(**WHOLE)).stop_reason
    (disk,) = (await service.status()).throttle.tripped
    assert ("free_disk", None, "signal_unavailable") == (disk.signal, disk.value, disk.reason)
    await state.append_to_progression("p", "meanwhile")
    assert [*IDS, "meanwhile"] == await state.get_progression("p")
    load.values[ThrottleSignal.FREE_DISK] = 1e15
    load.now += 1
    await until_done(service)


async def test_the_operators_minimum_goes_on_but_not_on_a_full_disk(backend: Backend) -> None:
    """Decision 25; fault 46: below the disk floor nothing is copied, whatever the minimum says."""
    await backend.put_progression("p", json.dumps(IDS))
    service, load, _ = injected(backend)
    load.values[ThrottleSignal.LOCK_WAIT] = 1_000.0
    await service.set_knob("minimum_items_per_minute", 31)
    moved = []
    for _ in range(3):
        # Of the first minute the admission takes one.
        moved.append(sum([(await service.step(**WHOLE)).items for _ in range(3)]))
        load.now += 61
    assert [30, 31, 31] == moved
    assert not (await service.status()).throttle.starved
    await service.set_knob("free_disk_floor_bytes", 100)
    load.values[ThrottleSignal.FREE_DISK] = 99.0
    load.now += 1
    assert (StopReason.THROTTLED, 0) == (lambda step: (step.stop_reason, step.items))(await service.step(**WHOLE))
    load.values = {}
    load.now += 61
    await until_done(service)
    await assert_cut_over(backend, IDS)


async def test_too_many_errors_pause_the_lane_until_somebody_resumes(backend: Backend) -> None:
    """A persisted pause with actor and code; content that is no array is a finding and no error."""
    for number in range(5):
        await backend.put_progression(f"p{number}", json.dumps(IDS))
        await backend.put_progression(f"bad{number}", "{")
    service, _, staged = injected(backend)
    await service.set_knob("error_budget", 2)

    async def wrong(name: str, _result: Any) -> None:
        if name == "admit":
            # A shadow row that is not the element's: found by the chunk.
            await backend.execute(
                "INSERT INTO progression_items SELECT s.progression_id, 3, 'other' FROM progression_storage_state s"
                " WHERE s.phase = 'dual' AND s.backfill_next = 0"
                " AND NOT EXISTS (SELECT 1 FROM progression_items i WHERE i.progression_id = s.progression_id)"
            )

    staged.after = wrong
    step = await service.step(**WHOLE)
    assert (StopReason.PAUSED, 2) == (step.stop_reason, step.blocked["ordinal_collision"])
    staged.after = None
    again = ProgressionMigrationService(staged)
    pause = (await again.status()).pause
    assert pause is not None
    assert ("lionstated", "error_budget") == (pause.actor, pause.code)
    assert "2 errors" in (pause.reason or "")
    assert StopReason.PAUSED == (await again.step(**WHOLE)).stop_reason
    assert StopReason.PAUSED == (await service.step(**WHOLE)).stop_reason
    assert await service.resume()
    await until_done(service)
    status = await service.status()
    assert (None, 3, {"ordinal_collision": 2, "malformed_json": 5}) == (
        status.pause,
        status.phases["items"],
        status.blocked,
    )


async def test_what_the_server_does_not_say_stops_migration(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    """Decision 24, on the database's own readings: a library in our process has none."""
    await backend.put_progression("p", json.dumps(IDS))
    service, load, _ = injected(backend)
    dialect = backend.direct.store.dialect

    def fails(conn: object) -> None:
        raise BackendError("no permission")

    monkeypatch.setattr(type(dialect), "server_load", lambda self, conn: fails(conn))
    step = await service.step(**WHOLE)
    if not dialect.has_server:
        assert StopReason.DONE == step.stop_reason
        return
    assert StopReason.THROTTLED == step.stop_reason
    assert [("long_transaction", "signal_unavailable"), ("wal_rate", "signal_unavailable")] == [
        (one.signal, one.reason) for one in (await service.status()).throttle.tripped
    ]
    monkeypatch.undo()
    load.now += 2
    await until_done(service)
    await assert_cut_over(backend, IDS)


async def test_the_server_tells_of_long_transactions_and_its_log(backend: Backend) -> None:
    store = backend.direct.store
    async with foreign(backend) as other:
        await other.execute("BEGIN")
        await other.execute("SELECT count(*) FROM progressions")
        first = await store.read(store.dialect.server_load)
        second = await store.read(store.dialect.server_load)
        await other.execute("ROLLBACK")
    if not store.dialect.has_server:
        assert (None, None) == (first, second)
        return
    assert 0 < first.long_transaction_seconds < second.long_transaction_seconds < 600
    await backend.put_progression("p", json.dumps(IDS))
    assert second.wal_position < (await store.read(store.dialect.server_load)).wal_position


async def test_the_rate_of_the_log_is_what_was_written_since_the_last_look(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    service, load, _ = injected(backend)
    dialect = backend.direct.store.dialect
    if not dialect.has_server:
        assert ["parity"] == [one.signal for one in (await service.status()).throttle.signals]
        return
    from lionstate.dialects.server import ServerLoad

    positions = iter((1_000, 3_000))
    monkeypatch.setattr(type(dialect), "server_load", lambda self, conn: ServerLoad(0.0, next(positions)))
    assert "wal_rate" not in [one.signal for one in (await service.status()).throttle.signals]
    load.now += 4
    (rate,) = [one for one in (await service.status()).throttle.signals if one.signal == "wal_rate"]
    assert 500.0 == rate.value
