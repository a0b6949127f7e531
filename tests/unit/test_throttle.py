"""The throttle's core: hysteresis, failing closed, starvation, the operator's minimum, the error budget."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace

import pytest

from lionstate.codes import ThrottleSignal
from lionstate.engine import SilentObserver
from lionstate.engine.load import Load, RecentMaximum
from lionstate.migration.governor import Governor
from lionstate.migration.knobs import Knobs
from lionstate.migration.throttle import Allowance, ErrorBudget, SignalStatus, Starvation, Throttle, reading

KNOBS = Knobs(
    lock_wait_limit_seconds=0.2,
    wal_frames_limit=1_000,
    free_disk_floor_bytes=100,
    starved_after_seconds=10.0,
    minimum_items_per_minute=60,
    error_budget=3,
    error_window_seconds=600.0,
)
LOCK, WAL, DISK = ThrottleSignal.LOCK_WAIT, ThrottleSignal.WAL_FRAMES, ThrottleSignal.FREE_DISK


@pytest.mark.parametrize(
    ("signal", "value", "text"),
    [
        ("free_disk", 536_871_000.0, "512.0 MiB"),
        ("free_disk", 57.25 * 1024**3, "57.2 GiB"),
        ("free_disk", 512.0, "0.5 KiB"),
        ("wal_rate", 67_108_864.0, "64.0 MiB/s"),
        ("lock_wait", 0.25, "0.25 s"),
        ("wal_frames", 20_001.0, "20,001"),
        ("wal_frames", 2_496_490.0, "2,496,490"),
        ("lock_wait", 99_999.96, "100,000 s"),
        ("of another version", 3.0, "3"),
        ("free_disk", None, "unknown"),
    ],
)
def test_a_reading_has_its_unit(signal: str, value: float | None, text: str) -> None:
    assert text == reading(signal, value)


class TestThrottle:
    def test_every_signal_has_a_limit(self) -> None:
        throttle = Throttle()
        throttle.observe(dict.fromkeys(ThrottleSignal, 0.0), KNOBS, 0.0)
        assert list(ThrottleSignal) == [one.signal for one in throttle.signals()]
        assert frozenset((DISK,)) == throttle.tripped

    @pytest.mark.parametrize(
        ("signal", "values", "tripped"),
        [
            (WAL, [999, 1_000, 700, 501, 500, 999], [False, True, True, True, False, False]),
            (DISK, [100, 99, 110, 124, 125, 100], [False, True, True, True, False, False]),
        ],
    )
    def test_it_clears_further_down_than_it_trips(
        self, signal: ThrottleSignal, values: list[float], tripped: list[bool]
    ) -> None:
        throttle, seen = Throttle(), []
        for now, value in enumerate(values):
            throttle.observe({signal: value}, KNOBS, float(now))
            seen.append(signal in throttle.tripped)
        assert tripped == seen

    @pytest.mark.parametrize("unread", [None, float("nan")])
    def test_a_signal_that_cannot_be_read_counts_as_tripped(self, unread: float | None) -> None:
        """Decision 24."""
        throttle = Throttle()
        throttle.observe({LOCK: unread, WAL: 0}, KNOBS, 5.0)
        throttle.observe({LOCK: unread, WAL: 0}, KNOBS, 7.0)
        assert frozenset((LOCK,)) == throttle.tripped
        (lock, wal) = throttle.signals()
        assert (True, "signal_unavailable" if unread is None else "over_limit", 2.0) == (
            lock.tripped,
            lock.reason,
            lock.age_seconds,
        )
        assert (False, None, None) == (wal.tripped, wal.reason, wal.age_seconds)

    def test_what_is_not_known_here_is_no_signal(self) -> None:
        throttle = Throttle()
        throttle.observe({LOCK: None}, KNOBS, 0.0)
        throttle.observe({}, KNOBS, 1.0)
        assert ((), frozenset()) == (throttle.signals(), throttle.tripped)

    def test_it_tells_value_limit_and_age_and_adds_up_the_time(self) -> None:
        throttle = Throttle()
        for now, value in ((0.0, 0.1), (1.0, 5.0), (4.0, 0.3), (6.0, 0.05), (9.0, 0.2), (10.0, 0.2)):
            throttle.observe({LOCK: value}, KNOBS, now)
        (lock,) = throttle.signals()
        assert ("lock_wait", 0.2, 0.2, "over_limit", 1.0) == (
            lock.signal,
            lock.value,
            lock.limit,
            lock.reason,
            lock.age_seconds,
        )
        assert (6.0, 0.0) == (throttle.seconds[LOCK], throttle.seconds[WAL])

    def test_a_clock_that_goes_back_takes_no_time_away(self) -> None:
        throttle = Throttle()
        for now in (10.0, 12.0, 5.0):
            throttle.observe({LOCK: 9.0}, KNOBS, now)
        assert (2.0, 0.0) == (throttle.seconds[LOCK], throttle.signals()[0].age_seconds)


class TestStarvation:
    def test_it_begins_with_the_first_refusal_and_is_told_once(self) -> None:
        """fault 7: throttled for three times the limit is starved, nothing else."""
        lane, news = Starvation(), []
        for now in range(31):
            lane.refused(float(now))
            if lane.is_news(float(now), KNOBS):
                news.append(now)
                lane.told()
        assert ([10], 30.0, True) == (news, lane.waited_seconds(30.0), lane.is_starved(30.0, KNOBS))

    def test_progress_ends_it(self) -> None:
        lane = Starvation()
        for now in range(12):
            lane.refused(float(now))
        lane.progressed()
        assert (None, False) == (lane.waited_seconds(12.0), lane.is_starved(12.0, KNOBS))
        lane.refused(13.0)
        assert 1.0 == lane.waited_seconds(14.0)

    def test_who_does_not_ask_does_not_starve(self) -> None:
        lane = Starvation()
        lane.refused(0.0)
        assert lane.waited_seconds(100.0) is None
        lane.refused(100.0)
        assert not lane.is_starved(100.0, KNOBS)


class TestAllowance:
    def test_so_many_elements_a_minute(self) -> None:
        allowance = Allowance()
        assert 60 == allowance.left(0.0, KNOBS)
        allowance.spend(50)
        allowance.spend(0)
        assert 9 == allowance.left(59.0, KNOBS)
        allowance.spend(500)
        assert 0 == allowance.left(59.9, KNOBS)
        assert 60 == allowance.left(60.0, KNOBS)

    def test_none_is_the_default(self) -> None:
        assert 0 == Allowance().left(0.0, Knobs())


class TestErrorBudget:
    def test_so_many_within_the_window(self) -> None:
        budget = ErrorBudget()
        for now in (0.0, 300.0, 601.0):
            budget.note(now)
        assert not budget.is_spent(601.0, KNOBS)
        budget.note(602.0)
        assert (True, 2) == (budget.is_spent(602.0, KNOBS), budget.per_minute(602.0))
        budget.clear()
        assert not budget.is_spent(602.0, KNOBS)


class TestLoad:
    def test_waits_are_forgotten_after_a_moment(self) -> None:
        now = [0.5]
        waits = RecentMaximum(lambda: now[0])
        waits.note(3.0)
        waits.note(1.0)
        seen = []
        for now[0] in (0.9, 1.9, 2.0, 5.0):
            seen.append(waits.value())
        assert [3.0, 3.0, 0.0, 0.0] == seen

    def test_it_passes_everything_on_and_remembers_the_log(self) -> None:
        told: list[tuple[object, ...]] = []

        class Recorder(SilentObserver):
            def commit(self, lane: str, seconds: float) -> None:
                told.append(("commit", lane, seconds))

            def wal(self, log_frames: int, checkpointed_frames: int, wal_bytes: int) -> None:
                told.append(("wal", log_frames, checkpointed_frames, wal_bytes))

            def lock_wait(self, lane: str, seconds: float) -> None:
                told.append(("lock_wait", lane, seconds))

            def lock_hold(self, lane: str, seconds: float) -> None:
                told.append(("lock_hold", lane, seconds))

            def checkpoint(self, mode: str, outcome: str, seconds: float) -> None:
                told.append(("checkpoint", mode, outcome, seconds))

        now = [100.0]
        load = Load(Recorder(), clock=lambda: now[0])
        assert {} == load.readings()
        load.commit("request", 0.1)
        load.lock_wait("request", 0.2)
        load.lock_hold("request", 0.3)
        load.lock_hold("maintenance", 0.4)
        load.checkpoint("PASSIVE", "partial", 0.5)
        load.wal(3_000, 500, 7)
        now[0] = 130.0
        load.checkpoint("PASSIVE", "busy", 0.5)
        assert (0.4, None) == (load.take_hold(), load.take_hold())
        assert (0.5, None) == (load.take_checkpoint(), load.take_checkpoint())
        assert {WAL: 2_500, ThrottleSignal.WAL_PINNED: 30.0} == load.readings()
        load.wal(3_000, 2_500, 7)
        assert {WAL: 500, ThrottleSignal.WAL_PINNED: 0.0} == load.readings()
        load.checkpoint("PASSIVE", "complete", 0.5)
        load.wal(3_000, 0, 7)
        assert {WAL: 3_000, ThrottleSignal.WAL_PINNED: 0.0} == load.readings()
        assert ["commit", "lock_wait", "lock_hold", "lock_hold", "checkpoint", "wal"] == [one[0] for one in told][:6]


def test_a_log_that_no_checkpoint_can_move_is_not_the_readers_fault() -> None:
    """fault 46: a full disk fails the checkpoint, and the log stays long."""
    now = 0.0
    load = Load(SilentObserver(), clock=lambda: now)
    dialect = SimpleNamespace(capabilities=SimpleNamespace(concurrent_writers=False))
    governor = Governor(SimpleNamespace(load=load, dialect=dialect))  # type: ignore[arg-type]
    pinned = SignalStatus("wal_pinned", 70.0, 60.0, True, "over_limit", 1.0)
    for outcome, reason in (("error", "checkpoint_fails"), ("partial", "over_limit")):
        load.checkpoint("passive", outcome, 0.1)
        assert reason == governor._explained(pinned).reason
    load.checkpoint("passive", "error", 0.1)
    assert "over_limit" == governor._explained(replace(pinned, signal="wal_frames")).reason


async def test_who_wakes_together_with_maintenance_goes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen: a fifth of the chunks began in the same turn of the loop as an append, which waited for all of them."""
    load = Load(SilentObserver())
    dialect = SimpleNamespace(capabilities=SimpleNamespace(concurrent_writers=False))
    governor = Governor(SimpleNamespace(load=load, dialect=dialect))  # type: ignore[arg-type]
    load.lock_hold("maintenance", 0.01)
    governor.ended(None, Knobs())
    loop, entered = asyncio.get_running_loop(), []
    due: asyncio.Future[None] = loop.create_future()

    async def call() -> None:
        entered.append("caller")

    async def caller() -> None:
        await due
        await asyncio.create_task(call())

    async def sleep(seconds: float) -> None:
        loop.call_soon(due.set_result, None)

    waiting = asyncio.create_task(caller())
    await asyncio.sleep(0)
    monkeypatch.setattr("lionstate.migration.governor._sleep", sleep)
    await governor.turn()
    assert ["caller"] == entered
    await waiting
