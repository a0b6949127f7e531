"""The harness's own judgement: it must be able to say no."""

from __future__ import annotations

from typing import Any

import pytest

from tests.bench.gate import judge as judge_gate
from tests.bench.measure import Samples, interleave, percentile, ratio
from tests.bench.report import Figure, Row
from tests.bench.rows.processes import judge as judge_writers


def _rounds(short: int, long: int) -> list[Samples]:
    return [{"1000": [short] * 100, "100000": [long] * 100} for _ in range(5)]


@pytest.mark.parametrize(
    ("attempts", "passed", "measured"),
    [([199], True, 1), ([201, 150], True, 2), ([201, 230], False, 2)],
)
async def test_gate_measures_once_more_and_then_fails(attempts: list[int], passed: bool, measured: int) -> None:
    left = [_rounds(100, long) for long in attempts]
    told: list[str] = []

    async def measure() -> list[Samples]:
        return left.pop(0)

    verdict = await judge_gate("case", measure, told.append)

    assert passed == verdict.passed
    assert measured == len(verdict.ratios)
    assert (measured == 2) == any("once more, because" in line for line in told)


def test_ratio_is_the_median_of_the_rounds_and_not_of_the_samples() -> None:
    rounds = [*_rounds(100, 100)[:2], {"1000": [100] * 100, "100000": [9_000] * 100}]

    assert 1.0 == ratio(rounds, "100000", "1000", 0.95)


def test_percentile_is_a_sample() -> None:
    assert 95 == percentile(list(range(100)), 0.95)
    assert 7 == percentile([7], 0.99)


async def test_interleaving_runs_every_arm_in_every_turn_and_drops_the_warm_ones() -> None:
    seen: list[tuple[str, int]] = []

    async def slow(turn: int) -> None:
        seen.append(("slow", turn))

    taken = await interleave({"slow": slow, "quick": lambda turn: seen.append(("quick", turn))}, 3, warm=1, first=10)

    assert {"slow": 3, "quick": 3} == {name: len(samples) for name, samples in taken.items()}
    assert [("slow", 10), ("quick", 10), ("quick", 11), ("slow", 11)] == seen[:4]


@pytest.mark.parametrize(
    ("value", "limit", "at_least", "passed"),
    [(1.2, 1.2, False, True), (1.21, 1.2, False, False), (0.4, 0.45, True, False), (None, 1.0, False, None)],
)
def test_a_figure_is_judged_by_its_limit(value: Any, limit: float, at_least: bool, passed: Any) -> None:
    assert passed == Figure("x", value, limit, at_least).passed


def test_a_row_that_misses_one_limit_fails_and_one_without_figures_is_not_available() -> None:
    row = Row(1, "x")
    assert "n/a" == row.verdict
    row.add("a", 1.0, 2.0)
    assert "pass" == row.verdict
    row.missing.append("b")
    assert "part" == row.verdict
    row.add("c", 3.0, 2.0)
    assert "fail" == row.verdict


@pytest.mark.parametrize(
    ("stored", "broken", "expected"),
    [
        (["w0-1", "w0-2", "w1-1"], 0, (0, 0, 0, 0)),
        (["w0-1", "w1-1"], 0, (1, 0, 0, 0)),
        (["w0-1", "w0-2", "w0-2", "w1-1"], 0, (1, 1, 0, 0)),
        (["w0-2", "w0-1", "w1-1"], 0, (0, 0, 1, 0)),
        (["w0-1", "w0-2", "w1-1"], 2, (0, 0, 0, 2)),
    ],
)
def test_what_four_writers_left_is_judged(stored: list[str], broken: int, expected: tuple[int, ...]) -> None:
    seen = {"broken": broken, "last": []}

    assert expected == tuple(judge_writers(stored, [("w0-", 2, 0), ("w1-", 1, 0)], seen).values())


def test_a_last_snapshot_that_is_no_prefix_of_the_final_order_counts() -> None:
    seen = {"broken": 0, "last": ["w0-2"]}

    assert 1 == judge_writers(["w0-1", "w0-2"], [("w0-", 2, 0)], seen)["not a prefix"]
