"""The size of the next chunk and the rest after it (fault 20, design decision 36); knobs and their bounds."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lionstate.errors import InvalidInputError
from lionstate.migration.knobs import KNOBS, Knobs, checked_knob, with_values
from lionstate.migration.pace import CheckpointDues, ChunkSize, rest_seconds
from lionstated.settings import Maintenance

_KNOBS = Knobs()


def hold_of(taken: int, *, fixed: float = 0.0003, each: float = 0.00001) -> float:
    return fixed + each * taken


def settle(size: ChunkSize, knobs: Knobs, *, chunks: int = 60, each: float) -> list[int]:
    """The sizes of some chunks in a store where each element takes so long."""
    sizes = []
    for _ in range(chunks):
        taken = size.items(knobs)
        sizes.append(taken)
        size.learn(taken, hold_of(taken, each=each), knobs)
    return sizes


class TestChunkSize:
    def test_the_first_chunk_has_the_configured_size(self) -> None:
        """fault 20: not the least, at which the first batch elsewhere ran for years."""
        assert 500 == ChunkSize().items(_KNOBS)
        assert 120 == ChunkSize().items(with_values(_KNOBS, {"max_items": 120}))

    @pytest.mark.parametrize(("each", "expected"), [(0.00001, 170), (0.000005, 340)])
    def test_it_comes_to_the_hold_target(self, each: float, expected: int) -> None:
        sizes = settle(ChunkSize(), _KNOBS, each=each)
        assert pytest.approx(expected, rel=0.05) == sizes[-1]
        assert hold_of(sizes[-1], each=each) <= _KNOBS.hold_target_seconds * 1.01

    def test_a_lock_of_one_progression_may_be_held_longer(self) -> None:
        """fault 20: where the round trips alone took the target, every chunk had the fewest elements."""
        each, round_trips = 0.00001, 0.004
        sizes = {}
        for several in (False, True):
            size = ChunkSize(concurrent_writers=several)
            for _ in range(30):
                size.learn(size.items(_KNOBS), round_trips + each * size.items(_KNOBS), _KNOBS)
            sizes[several] = size.items(_KNOBS)
        assert {False: 50, True: 500} == sizes

    def test_it_follows_a_store_that_gets_slower_and_faster(self) -> None:
        size = ChunkSize()
        assert 50 == settle(size, _KNOBS, each=0.001)[-1]
        assert 500 == settle(size, _KNOBS, each=0.000001)[-1]

    def test_most_chunks_keep_the_target_where_holds_scatter(self) -> None:
        """Up in small steps when it is near: a mean at the target would let every second append wait longer."""
        size, scatter, holds = ChunkSize(), random.Random(1), []
        for _ in range(2_000):
            taken = size.items(_KNOBS)
            holds.append(hold_of(taken) * scatter.uniform(0.7, 1.5))
            size.learn(taken, holds[-1], _KNOBS)
        kept = sum(hold <= _KNOBS.hold_target_seconds for hold in holds) / len(holds)
        assert 0.65 < kept < 0.75

    def test_one_slow_commit_costs_half_and_no_more(self) -> None:
        size = ChunkSize()
        size.learn(500, 3.0, _KNOBS)
        assert 250 == size.items(_KNOBS)

    def test_a_short_chunk_says_nothing_about_longer_ones(self) -> None:
        size = ChunkSize()
        size.learn(500, 0.004, _KNOBS)
        size.learn(3, 0.0001, _KNOBS)
        assert 250 == size.items(_KNOBS)

    @given(st.lists(st.tuples(st.integers(1, 500), st.floats(0, 10)), max_size=30), st.integers(1, 500))
    def test_it_stays_within_its_bounds(self, chunks: list[tuple[int, float]], most: int) -> None:
        """ADR-0117 D3: never above 500, whatever was measured; never below ``min_items``, or nothing would end."""
        knobs = with_values(_KNOBS, {"max_items": most})
        size = ChunkSize()
        for taken, hold in chunks:
            size.learn(taken, hold, knobs)
            assert min(50, most) <= size.items(knobs) <= most


class TestRest:
    @pytest.mark.parametrize(("ratio", "rest"), [(1.0, 0.0), (0.5, 0.002), (0.1, 0.018)])
    def test_holds_take_their_share_of_the_time(self, ratio: float, rest: float) -> None:
        knobs = with_values(_KNOBS, {"nice_ratio": ratio})
        assert pytest.approx(rest) == rest_seconds(0.002, knobs, is_alone=False)
        # Where nobody else writes it takes half, or more if it is told to.
        assert pytest.approx(min(rest, 0.002)) == rest_seconds(0.002, knobs, is_alone=True)

    def test_no_rest_is_long(self) -> None:
        assert 1.0 == rest_seconds(60.0, _KNOBS, is_alone=False)


class TestCheckpointDues:
    def test_a_checkpoint_is_paid_for_in_small_parts_and_once(self) -> None:
        dues = CheckpointDues()
        assert 0.0 == dues.pay(0.018)
        dues.note(0.0003)
        assert pytest.approx([0.036, 0.036, 0.028, 0.0]) == [dues.pay(0.018) for _ in range(4)]

    def test_the_next_one_takes_the_place_of_what_is_left(self) -> None:
        """Else chunks would slow down for ever where checkpoints are dear."""
        dues = CheckpointDues()
        dues.note(60.0)
        dues.note(0.00003)
        assert pytest.approx([0.01, 0.0]) == [dues.pay(0.018), dues.pay(0.018)]

    def test_no_rest_becomes_long(self) -> None:
        dues = CheckpointDues()
        dues.note(60.0)
        assert pytest.approx([0.2, 0.0, 0.0]) == [dues.pay(0.8), dues.pay(1.0), dues.pay(0.0)]


class TestKnobs:
    def test_every_knob_is_a_setting_with_its_default_and_bounds(self) -> None:
        settings = Maintenance()
        assert Knobs() == settings.knobs
        for name, knob in KNOBS.items():
            assert knob.default == getattr(settings, name)
            assert knob.low <= knob.default <= knob.high
            assert knob.what == Maintenance.model_fields[name].description

    @pytest.mark.parametrize("bad", [0, 501, 1.5, True, "5", None, float("nan"), float("inf")])
    def test_values_out_of_bounds_are_refused(self, bad: object) -> None:
        with pytest.raises(InvalidInputError, match="max_items"):
            checked_knob("max_items", bad)

    def test_unknown_ones_are_refused_and_the_others_named(self) -> None:
        with pytest.raises(InvalidInputError, match="nice_ratio"):
            checked_knob("nicer", 1)

    def test_a_whole_one_stays_whole(self) -> None:
        assert [int, float] == [type(checked_knob("max_items", 5.0)), type(checked_knob("nice_ratio", 1))]
