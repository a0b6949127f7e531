"""Read authority by phase, pages, counts, generations (ADR-0117 D1, D4; design decisions 1, 4, 5, 18)."""

from __future__ import annotations

from typing import Any

import pytest

from lionstate.errors import InvalidInputError, ProgressionBlockedError, StaleCursorError
from tests.support.backends import Backend
from tests.support.phases import SHAPES, change_state, insert_items, put

IDS = ["a", "b", "a", "ü", "c"]
TAIL = ["d", "e"]
ALL = IDS + TAIL
SERVED = [shape for shape in SHAPES if shape not in ("blocked-none", "deleting")]


@pytest.mark.parametrize("shape", SERVED)
async def test_every_phase_reconstructs_the_same_order(backend: Backend, state: Any, shape: str) -> None:
    """ADR-0117 D6: ordered reconstruction, legacy duplicates at every position, no message rows at all."""
    await put(backend, "p", shape, IDS, TAIL)
    assert ALL == await state.get_progression("p")
    assert list(enumerate(ALL)) == await state.list_progression_items("p")
    assert len(ALL) == await state.count_progression_items("p")


@pytest.mark.parametrize("shape", SERVED)
async def test_an_empty_progression_reads_as_a_missing_one(backend: Backend, state: Any, shape: str) -> None:
    await put(backend, "p", shape, [])
    for progression in ("p", "missing"):
        assert [] == await state.get_progression(progression)
        assert [] == await state.list_progression_items(progression)
        assert 0 == await state.count_progression_items(progression)


async def test_a_dual_read_does_not_look_at_the_items(backend: Backend, state: Any) -> None:
    await put(backend, "p", "dual", IDS, TAIL, copied=1)
    assert ALL == await state.get_progression("p")
    assert list(enumerate(ALL)) == await state.list_progression_items("p")
    assert len(ALL) == await state.count_progression_items("p")


async def test_an_items_read_does_not_look_at_the_json(backend: Backend, state: Any) -> None:
    await put(backend, "p", "items", IDS, TAIL)
    assert (
        '["a", "b", "a", "\\u00fc", "c"]'
        == (await backend.rows("SELECT collection FROM progressions"))[0]["collection"]
    )
    assert ALL == await state.get_progression("p")


async def test_without_an_authority_every_read_fails_closed(backend: Backend, state: Any) -> None:
    await put(backend, "p", "blocked-none", IDS, TAIL)
    for read in (state.get_progression, state.list_progression_items, state.count_progression_items):
        with pytest.raises(ProgressionBlockedError) as caught:
            await read("p")
        assert "allocator_mismatch" == caught.value.reason


async def test_a_tombstone_answers_as_missing(backend: Backend, state: Any) -> None:
    await put(backend, "p", "deleting", IDS, TAIL)
    assert [] == await state.get_progression("p")
    assert [] == await state.list_progression_items("p")
    assert 0 == await state.count_progression_items("p")
    assert await state.get_progression_generation("p") is None


@pytest.mark.parametrize("column", ["json", "none"])
async def test_a_row_that_contradicts_itself_is_not_served(backend: Backend, state: Any, column: str) -> None:
    await put(backend, "p", "items", IDS)
    await change_state(backend, "p", authority=column)
    with pytest.raises(ProgressionBlockedError):
        await state.get_progression("p")


async def test_items_without_a_state_row_fail_closed(backend: Backend, state: Any) -> None:
    """Decision 22: a read writes nothing."""
    await backend.put_progression("p", '["a"]')
    await insert_items(backend, "p", [(0, "a")])
    for read in (state.get_progression, state.list_progression_items, state.count_progression_items):
        with pytest.raises(ProgressionBlockedError) as caught:
            await read("p")
        assert "orphan_items" == caught.value.reason
    assert [] == await backend.rows("SELECT * FROM progression_storage_state")


@pytest.mark.parametrize("shape", SERVED)
@pytest.mark.parametrize("limit", [1, 7, 1_000])
async def test_pages_neither_skip_nor_repeat(backend: Backend, state: Any, shape: str, limit: int) -> None:
    """fault 31: page boundaries skip or repeat; forwards and back, with gaps, while somebody appends."""
    ids = [f"m{number}" for number in range(40)]
    await put(backend, "p", shape, ids[:25], ids[25:], compat_read=False)
    expected = list(enumerate(ids))
    if shape == "items":
        await backend.execute("DELETE FROM progression_items WHERE ordinal IN (0, 7, 13, 14)")
        expected = [pair for pair in expected if pair[0] not in (0, 7, 13, 14)]
    await _pages_are(state, expected, limit)


async def _pages_are(state: Any, expected: list[tuple[int, str]], limit: int) -> None:
    forward: list[tuple[int, str]] = []
    while page := await state.list_progression_items(
        "p", after_ordinal=forward[-1][0] if forward else None, limit=limit
    ):
        assert len(page) <= limit
        forward += page
    back: list[tuple[int, str]] = []
    while page := await state.list_progression_items(
        "p", before_ordinal=back[-1][0] if back else None, limit=limit, newest_first=True
    ):
        assert len(page) <= limit
        back += page
    assert expected == forward
    assert expected == back[::-1]


@pytest.mark.parametrize("shape", ["absent", "items"])
async def test_appends_between_two_pages_only_add_to_the_end(backend: Backend, state: Any, shape: str) -> None:
    await put(backend, "p", shape, [f"m{number}" for number in range(9)])
    generation = await state.get_progression_generation("p")
    seen: list[tuple[int, str]] = []
    for round_number in range(12):
        last = seen[-1][0] if seen else None
        page = await state.list_progression_items("p", after_ordinal=last, limit=2, generation=generation)
        seen += page
        if round_number < 4:
            await state.append_to_progression("p", f"new{round_number}")
    assert list(enumerate(await state.get_progression("p"))) == seen
    assert 13 == len(seen)


@pytest.mark.parametrize("shape", ["absent", "dual", "items"])
@pytest.mark.parametrize("compat_read", [False, True])
async def test_bounds_are_exclusive_on_both_sides(backend: Backend, state: Any, shape: str, compat_read: bool) -> None:
    await put(backend, "p", shape, IDS, TAIL, compat_read=compat_read)
    pairs = list(enumerate(ALL))
    for after in (None, -(2**62), -2, -1, 0, 2, 4, 5, 6, 9, 2**62):
        for before in (None, -3, 0, 1, 4, 5, 6, 7, 99, 2**62):
            for limit in (1, 3, 100):
                found = [
                    (place, mid)
                    for place, mid in pairs
                    if (after is None or place > after) and (before is None or place < before)
                ]
                page = {"after_ordinal": after, "before_ordinal": before, "limit": limit}
                assert found[:limit] == await state.list_progression_items("p", **page)
                assert found[::-1][:limit] == await state.list_progression_items("p", **page, newest_first=True)


@pytest.mark.parametrize("shape", ["absent", "items", "deleting", "blocked-none"])
@pytest.mark.parametrize("bad", [0, -1, 1_001, 10**30, True, "7", None, 1.5])
async def test_bad_limits_are_typed_errors(backend: Backend, state: Any, shape: str, bad: object) -> None:
    """fault 31."""
    await put(backend, "p", shape, IDS)
    with pytest.raises(InvalidInputError):
        await state.list_progression_items("p", limit=bad)


@pytest.mark.parametrize("bound", ["after_ordinal", "before_ordinal"])
@pytest.mark.parametrize("bad", ["1", 1.5, False])
async def test_bad_bounds_are_typed_errors(state: Any, bound: str, bad: object) -> None:
    with pytest.raises(InvalidInputError):
        await state.list_progression_items("p", **{bound: bad})


async def test_a_cursor_from_before_a_replacement_is_stale(backend: Backend, state: Any) -> None:
    """fault 31: replace between two pages."""
    for shape in ("json", "dual", "items", "blocked-items"):
        await put(backend, shape, shape, IDS)
        generation = await state.get_progression_generation(shape)
        assert list(enumerate(IDS))[:2] == await state.list_progression_items(shape, limit=2, generation=generation)
        await state.append_to_progression(shape, "z")
        assert generation == await state.get_progression_generation(shape)
        await state.set_progression(shape, IDS)
        assert generation != await state.get_progression_generation(shape)
        with pytest.raises(StaleCursorError):
            await state.list_progression_items(shape, after_ordinal=1, generation=generation)


async def test_a_generation_never_fits_where_there_is_none(backend: Backend, state: Any) -> None:
    await put(backend, "json", "absent", IDS)
    await put(backend, "deleting", "deleting", IDS)
    kept = (await backend.rows("SELECT generation FROM progression_storage_state"))[0]["generation"]
    for progression in ("json", "deleting", "missing"):
        assert await state.get_progression_generation(progression) is None
        with pytest.raises(StaleCursorError):
            await state.list_progression_items(progression, generation=kept)
