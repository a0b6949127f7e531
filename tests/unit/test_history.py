"""The hour behind the status page: bounded, closed slot by slot, right to a tenth."""

from __future__ import annotations

import pytest

from lionstated.history import SLOT_SECONDS, SLOTS, History, Slot


class Clock:
    now = 1_000.0

    def __call__(self) -> float:
        return self.now


def test_it_holds_an_hour_whatever_comes() -> None:
    clock = Clock()
    history = History(clock)
    for number in range(3 * SLOTS):
        history.lock_wait(number / 1000)
        history.wal(number)
        clock.now += SLOT_SECONDS
    found = history.read()
    assert SLOTS == len(found)
    assert 3600 == SLOTS * SLOT_SECONDS
    assert [*range(2 * SLOTS + 1, 3 * SLOTS), 3 * SLOTS - 1] == [slot.wal_frames for slot in found]
    assert (3 * SLOTS - 1) / 1000 == found[-2].lock_max_seconds
    assert found[-1].lock_max_seconds is None, "nobody has asked in the running slot"


def test_a_slot_tells_percentile_and_longest() -> None:
    history = History(Clock())
    for number in range(100):
        history.lock_wait((number + 1) / 1000)
    (slot,) = history.read()
    assert 0.1 == slot.lock_max_seconds
    assert slot.lock_p95_seconds is not None
    assert 0.095 <= slot.lock_p95_seconds <= 0.095 * 1.1


@pytest.mark.parametrize("seconds", [0.0, 1e-9, 5e-6, 1_000.0])
def test_one_wait_is_its_own_percentile(seconds: float) -> None:
    history = History(Clock())
    history.lock_wait(seconds)
    assert [Slot(round(seconds, 6), round(seconds, 6), None)] == history.read()


def test_the_log_stays_where_it_was_and_waits_do_not() -> None:
    clock = Clock()
    history = History(clock)
    history.lock_wait(0.25)
    history.wal(700)
    history.wal(40)
    clock.now += 2 * SLOT_SECONDS
    assert [(0.25, 700), (None, 40), (None, 40)] == [(one.lock_max_seconds, one.wal_frames) for one in history.read()]


def test_a_day_asleep_is_an_hour_of_nothing() -> None:
    clock = Clock()
    history = History(clock)
    history.lock_wait(0.25)
    clock.now += 86_400
    assert [Slot()] * SLOTS == history.read()


def test_a_clock_that_goes_back_opens_no_slot() -> None:
    clock = Clock()
    history = History(clock)
    clock.now -= 500
    history.lock_wait(0.5)
    assert 1 == len(history.read())
