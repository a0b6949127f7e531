"""How far a migration is, and how long it will take: pure parts (faults 17, 21, 66)."""

from __future__ import annotations

import math
import random

import pytest

from lionstate.cli.tables import duration, percent
from lionstate.migration.progress import Activity, Amounts, KeptBack, held_back, progress_of
from lionstate.migration.report import StepTally, StopReason
from lionstate.migration.speed import Sample, Speed, SpeedKeeper, weight_of

NOW = 1_000_000.0


def phases(json: int = 0, dual: int = 0, items: int = 0, blocked: int = 0) -> dict[str, int]:
    return {"json": json, "dual": dual, "items": items, "blocked": blocked}


def speed(samples: int = 3, *, elapsed: float = 2.0, at: float = NOW) -> Speed:
    one = Sample(8_000, 1, 100, 1.0, elapsed, 40_000, 0.001, 0.002, 500)
    return Speed((one,) * samples, at)


def test_an_empty_store_is_done() -> None:
    """fault 17"""
    for found in (
        progress_of(phases(), Amounts(), Speed(), paused=False, now=NOW),
        progress_of(phases(items=3, blocked=2), Amounts(), speed(), paused=True, now=NOW),
    ):
        assert (Activity.DONE, 1.0, 0, 0, None) == (
            found.activity,
            found.fraction,
            found.left,
            found.left_bytes,
            found.eta_seconds,
        )


@pytest.mark.parametrize("seed", range(200))
def test_it_is_a_share_whatever_the_tables_say(seed: int) -> None:
    """fault 17: deletions and shrinking make the measured sizes say more, or less, than is there."""
    dice = random.Random(seed)
    sizes = [dice.choice((0, 1, 5, 10**6, 10**12)) for _ in range(6)]
    amounts = Amounts(sizes[0], sizes[1], sizes[2], sizes[3], float(sizes[4]), float(sizes[5] % 1000))
    counts = phases(*(dice.choice((0, 1, 7)) for _ in range(4)))
    found = progress_of(counts, amounts, speed(), paused=False, now=NOW)
    assert 0.0 <= found.fraction <= 1.0
    assert (found.fraction == 1.0) is (counts["json"] + counts["dual"] == 0)
    assert (percent(found.fraction) == "100.0 %") is (found.left == 0)
    assert found.left_bytes is None or found.left_bytes >= 0
    assert found.eta_seconds is None or (found.eta_seconds >= 0 and math.isfinite(found.eta_seconds))


def test_bytes_count_once_they_are_known() -> None:
    counts = phases(json=1, dual=1, items=2)
    half = Amounts(
        sized=1, json_bytes=6_000, dual_sized=1, dual_bytes=2_000, dual_copied_bytes=1_000.0, items_bytes=3_000
    )
    found = progress_of(counts, half, speed(), paused=False, now=NOW)
    left = weight_of(7_000, 2)
    assert (7_000, left / (left + weight_of(4_000, 2))) == (found.left_bytes, pytest.approx(1 - found.fraction))
    assert pytest.approx(left * 2.0 / 10_000) == found.eta_seconds


def test_a_new_progression_does_not_change_the_measure() -> None:
    """One that is not measured yet counts as the mean of the others; of nothing but those, progressions count."""
    known = Amounts(sized=1, json_bytes=9_000, items_bytes=1_000)
    before = progress_of(phases(json=1, items=1), known, speed(), paused=False, now=NOW)
    after = progress_of(phases(json=2, items=1), known, speed(), paused=False, now=NOW)
    left, done = weight_of(9_000 + 5_000, 2), weight_of(1_000, 1)
    assert pytest.approx(done / (left + done)) == after.fraction
    assert after.fraction < before.fraction < 0.25
    assert (None, None) == (after.left_bytes, after.eta_seconds)
    nothing = progress_of(phases(json=3, dual=1), Amounts(dual_copied=0.5), speed(), paused=False, now=NOW)
    assert 0.5 / 4 == nothing.fraction


@pytest.mark.parametrize(
    ("held", "kept_back", "activity"),
    [(False, 3, Activity.MOVING), (True, 0, Activity.WAITING), (False, 4, Activity.WAITING)],
    ids=["free", "held", "all-kept-back"],
)
def test_what_waits_does_not_move(held: bool, kept_back: int, activity: Activity) -> None:
    """fault 17: 34 ready ones under a hold are not 2 s from their end, and nothing moves at any rate."""
    kept, known = KeptBack(kept_back, kept_back, 6.0), Amounts(dual_sized=4, dual_bytes=9)
    found = progress_of(phases(dual=4), known, speed(), paused=False, now=NOW, kept_back=kept)
    told = held_back(found, held=held)
    moves = activity is Activity.MOVING
    assert (activity, moves, moves, kept_back) == (
        told.activity,
        told.eta_seconds is not None,
        told.items_per_second is not None,
        told.kept_back,
    )
    paused = progress_of(phases(dual=4), Amounts(dual_sized=4), speed(), paused=True, now=NOW)
    assert Activity.PAUSED is held_back(paused, held=True).activity


def test_the_time_left_is_of_what_can_move() -> None:
    """fault 17: what is excluded takes no time, and its size need not be known; it is left all the same."""
    counts, known = phases(json=3, dual=1), Amounts(2, 7_000, 1, 2_000, 1_000.0)
    found = progress_of(counts, known, speed(), paused=False, now=NOW, kept_back=KeptBack(3, 2, 6_000.0))
    assert (4, 3, None) == (found.left, found.kept_back, found.left_bytes)
    assert pytest.approx(weight_of(2_000, 1) * 2.0 / 10_000) == found.eta_seconds
    found = progress_of(counts, known, speed(), paused=False, now=NOW, kept_back=KeptBack(3, 3, 6_000.0))
    assert found.eta_seconds is None


@pytest.mark.parametrize(
    ("seen", "paused"),
    [
        (Speed(), False),
        (speed(2, elapsed=20.0), False),
        (speed(3, elapsed=1.0), False),
        (speed(at=NOW - 31), False),
        (speed(at=NOW + 3_600), False),
        (speed(), True),
    ],
    ids=["never", "few", "young", "stale", "clock", "paused"],
)
def test_the_time_left_is_unknown_when_it_was_not_measured(seen: Speed, paused: bool) -> None:
    """faults 17, 66: never 0, never due."""
    sized = Amounts(sized=1, json_bytes=100)
    assert progress_of(phases(json=1), sized, seen, paused=paused, now=NOW).eta_seconds is None
    assert progress_of(phases(json=1), sized, speed(), paused=False, now=NOW).eta_seconds is not None


def test_what_was_not_measured_is_none() -> None:
    """fault 21"""
    assert (None,) * 6 == (
        Speed().work_seconds(5),
        Speed().items_per_second,
        Speed().growth_bytes(5),
        Speed().chunk_lock_seconds,
        Speed().cutover_lock_seconds,
        Speed().log_bytes,
    )
    seen = speed()
    assert (0.5, 50.0, 50.0, 0.001, 0.002, 500) == (
        seen.work_seconds(5_000),
        seen.items_per_second,
        seen.growth_bytes(10),
        seen.chunk_lock_seconds,
        seen.cutover_lock_seconds,
        seen.log_bytes,
    )


def test_steps_that_move_nothing_are_no_samples() -> None:
    keeper = SpeedKeeper()
    keeper.note(StepTally().step(StopReason.HELD, 1.0), 0)
    assert keeper.due("test", NOW) is None
    keeper.note(StepTally(items=3, chunks=1).step(StopReason.DONE, 0.5), None)
    assert keeper.due("test", NOW) is not None
    keeper.note(StepTally(cut_over=1).step(StopReason.DONE, 0.5), None)
    assert keeper.due("test", NOW) is None, "not two writes within two seconds"


def test_short_steps_add_up_to_one_sample() -> None:
    """Or the samples kept of steps of some milliseconds would never be a time that can be told from."""
    one = Sample(100, 1, 10, 0.5, 0.6, 4096, 0.001, 0.0, None)
    both = one.and_then(Sample(50, 0, 5, 0.25, 0.3, 0, 0.002, 0.003, 7))
    assert Sample(150, 1, 15, 0.75, pytest.approx(0.9), 4096, 0.002, 0.003, 7) == both


def test_noting_sizes_is_no_work() -> None:
    """A store of 150,000 values takes a while to be measured, once; what is left does not take as long each."""
    keeper = SpeedKeeper()
    keeper.note(StepTally(items=10, chunks=1, sizing_seconds=15.0).step(StopReason.DONE, 16.0), None)
    assert keeper._waiting is not None
    assert (1.0, 1.0) == (keeper._waiting.seconds, keeper._waiting.elapsed_seconds)


def test_words() -> None:
    assert ["0.0 %", "99.9 %", "100.0 %"] == [percent(share) for share in (0.0, 0.99999, 1.0)]
    assert ["unknown", "about 1 s", "about 119 s", "about 2 min", "about 3 h", "about 2 d"] == [
        duration(seconds) for seconds in (None, 0.2, 119, 120, 3 * 3600, 48 * 3600)
    ]
