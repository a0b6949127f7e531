"""What a call adds to the lock's hold."""

from __future__ import annotations

import pytest

from lionstate.queue.holds import HoldModel


def test_slow_commits_are_not_charged_to_the_calls() -> None:
    holds = HoldModel()
    for _ in range(200):
        holds.learn(["append"], 1, 0.040)
        holds.learn(["append"], 64, 0.040 + 64 * 0.00005)
    assert holds.of("append") < 0.0002


def test_a_long_call_is_charged_what_it_adds() -> None:
    holds = HoldModel()
    holds.learn(["append"], 10, 0.002)
    holds.learn(["set"], 1, 0.102)
    assert 0.1 == pytest.approx(holds.of("set"), rel=0.01)


def test_a_disk_that_becomes_slower_is_noticed() -> None:
    holds = HoldModel()
    holds.learn(["append"], 1, 0.001)
    for _ in range(300):
        holds.learn(["append"], 1, 0.030)
    assert holds.of("append") < 0.001


def test_unknown_operations_have_a_first_estimate() -> None:
    assert 0 < HoldModel().of("append") == HoldModel().mean()
