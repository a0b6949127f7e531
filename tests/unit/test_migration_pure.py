"""Caps, chunks, budgets and the comparison of two representations: the pure parts of migration."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lionstate.errors import BlockedCode, InvalidInputError
from lionstate.migration.budget import allowed_seconds, check_caps, cut_chunk
from lionstate.migration.memory import Sources
from lionstate.migration.report import StepTally, StopReason
from lionstate.migration.status import completion
from lionstate.migration.verification import compare


class TestChunks:
    @given(st.lists(st.text(max_size=6), min_size=1), st.integers(1, 10), st.integers(1, 30))
    def test_chunks_cover_everything_once_and_keep_their_caps(self, ids: list[str], items: int, size: int) -> None:
        cursor, taken = 0, []
        while cursor < len(ids):
            chunk, counted = cut_chunk(ids, cursor, len(ids), max_items=items, max_bytes=size)
            assert 1 <= len(chunk) <= items
            assert sum(len(one.encode()) for one in chunk) == counted
            assert counted <= size or len(chunk) == 1
            taken += chunk
            cursor += len(chunk)
        assert ids == taken

    def test_bytes_are_counted_in_utf8(self) -> None:
        assert (["é"], 2) == cut_chunk(["é", "é"], 0, 2, max_items=9, max_bytes=3)

    def test_nothing_is_taken_past_the_boundary(self) -> None:
        assert (["b"], 1) == cut_chunk(["a", "b", "c"], 1, 2, max_items=9, max_bytes=9)
        assert ([], 0) == cut_chunk(["a"], 1, 1, max_items=9, max_bytes=9)

    def test_an_id_over_the_cap_waits_for_a_step_of_its_own(self) -> None:
        assert ([], 0) == cut_chunk(["abc"], 0, 1, max_items=9, max_bytes=2, at_least_one=False)
        assert (["abc"], 3) == cut_chunk(["abc"], 0, 1, max_items=9, max_bytes=2)


class TestBudget:
    @pytest.mark.parametrize(("count", "seconds"), [(0, 0.05), (10, 0.05), (100_000, 0.05), (1_000_000, 0.5)])
    def test_it_grows_with_the_history_and_never_below_one_share(self, count: int, seconds: float) -> None:
        assert pytest.approx(seconds) == allowed_seconds(count, 0.05)

    @pytest.mark.parametrize("bad", [0, -1, float("nan"), True, "1"])
    def test_caps_that_are_no_positive_numbers(self, bad: float) -> None:
        for caps in ((bad, 1, 1), (1, bad, 1), (1, 1, bad)):
            with pytest.raises(InvalidInputError):
                check_caps(*caps)


class TestCompare:
    @pytest.mark.parametrize(
        ("json_count", "items_count", "following", "contiguous", "digest", "code"),
        [
            (3, 3, 3, True, "a", None),
            (3, 3, 3, True, "b", BlockedCode.DIGEST_MISMATCH),
            (3, 3, 3, False, "a", BlockedCode.ORDINAL_MISMATCH),
            (3, 3, 4, True, "a", BlockedCode.ALLOCATOR_MISMATCH),
            (4, 3, 3, True, "b", BlockedCode.FOREIGN_WRITE),
            (2, 3, 3, True, "b", BlockedCode.FOREIGN_WRITE),
            (3, 2, 3, True, "b", BlockedCode.COUNT_MISMATCH),
            (3, 2, 3, False, "b", BlockedCode.COUNT_MISMATCH),
            (4, 3, 3, False, "b", BlockedCode.COUNT_MISMATCH),
            (0, 0, 0, True, "a", None),
        ],
    )
    def test_each_difference_has_its_code(
        self,
        json_count: int,
        items_count: int,
        following: int,
        contiguous: bool,
        digest: str,
        code: BlockedCode | None,
    ) -> None:
        assert code == compare(
            json_count=json_count,
            items_count=items_count,
            next_ordinal=following,
            contiguous=contiguous,
            json_digest="a",
            items_digest=digest,
        )


class TestTold:
    def test_done_without_work_is_nothing_to_do(self) -> None:
        assert StopReason.NOTHING_TO_DO == StepTally().step(StopReason.DONE, 0.0).stop_reason
        assert StopReason.DONE == StepTally(cut_over=1).step(StopReason.DONE, 0.0).stop_reason
        assert StopReason.HELD == StepTally().step(StopReason.HELD, 0.0).stop_reason

    def test_completion_is_one_exactly_when_nothing_is_left(self) -> None:
        """fault 17: an empty store is done, a blocked progression is not work left."""
        phases = {"json": 0, "dual": 0, "items": 0, "blocked": 3}
        assert 1.0 == completion(phases)
        assert 1.0 == completion({**phases, "items": 5})
        assert 1.0 > completion({**phases, "items": 999_999, "dual": 1})
        assert 0.0 == completion({**phases, "json": 5})


class TestSources:
    def test_a_parse_belongs_to_its_generation(self) -> None:
        kept = Sources()
        kept.keep("p", 1, ["a"])
        assert ["a"] == kept.get("p", 1)
        assert kept.get("p", 2) is None
        kept.forget("p")
        assert kept.get("p", 1) is None

    def test_the_cache_is_bounded_by_ids(self) -> None:
        kept = Sources()
        many = ["x"] * 1_500_000
        kept.keep("p", 1, many)
        kept.keep("q", 1, many)
        assert kept.get("p", 1) is None
        assert many is kept.get("q", 1)
