"""When a SQLite writer leaves the lock to other processes (design §2.2)."""

from __future__ import annotations

import pytest

from lionstate.engine import lock_debt
from lionstate.engine.lock_debt import LONGEST_POLL_SECONDS, LockDebt


class _Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> _Clock:
    clock = _Clock()
    monkeypatch.setattr(lock_debt, "time", clock)
    return clock


def _pauses(clock: _Clock, held: float, free: float, turns: int) -> list[float]:
    debt, pauses = LockDebt(), []
    for _ in range(turns):
        if wait := debt.pause():
            pauses.append(wait)
            clock.now += wait
        debt.take()
        clock.now += held
        debt.release()
        clock.now += free
    return pauses


def test_back_to_back_holds_pause_after_half_a_second(clock: _Clock) -> None:
    """25 ms each: twenty of them are owed a pause, and the pause pays for all of it."""
    assert [pytest.approx(LONGEST_POLL_SECONDS)] * 4 == _pauses(clock, held=0.025, free=0.0, turns=99)


def test_a_lock_that_is_free_half_of_the_time_owes_nothing(clock: _Clock) -> None:
    """Who polls it gets it after a few looks; a pause would only delay every caller."""
    assert [] == _pauses(clock, held=0.004, free=0.004, turns=1_000)


def test_a_lock_that_is_held_most_of_the_time_pauses_now_and_then(clock: _Clock) -> None:
    """3 ms held and 1 ms free: 2 ms owed a turn, a pause after 250 turns, shortened by the time it is free anyway."""
    assert [pytest.approx(LONGEST_POLL_SECONDS - 0.001)] * 3 == _pauses(clock, held=0.003, free=0.001, turns=1_000)


def test_a_long_rest_pays_everything(clock: _Clock) -> None:
    """Longer than anybody sleeps between two looks: whoever waited had a turn."""
    debt = LockDebt()
    debt.take()
    clock.now += 30.0
    assert pytest.approx(30.0) == debt.release()
    assert pytest.approx(30.0) == debt._seconds
    clock.now += LONGEST_POLL_SECONDS + 1e-6
    debt.take()
    assert (0.0, True) == (debt._seconds, debt._held_since > 0)
    debt.release()
    assert (0.0, 0.0) == (debt._seconds, debt.pause())


def test_a_release_without_a_hold_counts_nothing(clock: _Clock) -> None:
    """A transaction that never began ends as well."""
    debt = LockDebt()
    assert debt.release() is None
    assert (0.0, False) == (debt._seconds, debt._held_since > 0)
