"""Compat read: the frozen JSON prefix and the relational tail, or nothing (ADR-0117 D4, D6; design decision 3)."""

from __future__ import annotations

import time
from typing import Any

import pytest

from lionstate.errors import MalformedCollectionError, PrefixGapError, ProgressionBlockedError
from tests.support.backends import Backend
from tests.support.phases import change_state, put

IDS = ["a", "b", "a", "ü"]
TAIL = ["d", "e", "f"]


async def _global(backend: Backend, value: str, expires_at: float | None = None) -> None:
    await backend.execute("DELETE FROM migration_control WHERE key = 'compat_read'")
    await backend.execute(
        "INSERT INTO migration_control (key, value, actor, updated_at, expires_at)"
        " VALUES ('compat_read', :value, 'test', 1.0, :expires_at)",
        value=value,
        expires_at=expires_at,
    )


async def _break_prefix_rows(backend: Backend) -> None:
    """What only the frozen JSON can still answer: the items of the prefix are wrong."""
    await backend.execute("UPDATE progression_items SET message_id = 'wrong' WHERE ordinal < :count", count=len(IDS))


async def _all_reads(state: Any) -> tuple[list[str], list[tuple[int, str]], int]:
    return (
        await state.get_progression("p"),
        await state.list_progression_items("p"),
        await state.count_progression_items("p"),
    )


@pytest.mark.parametrize("switch", ["own", "global"])
@pytest.mark.parametrize("tail", [[], TAIL])
async def test_prefix_and_tail_equal_the_item_read(backend: Backend, state: Any, switch: str, tail: list[str]) -> None:
    """ADR-0117 D6: with tail appends after the cutover, exactly the authoritative item read."""
    await put(backend, "p", "items", IDS)
    for message_id in tail:
        await state.append_to_progression("p", message_id)
    expected = await _all_reads(state)
    assert (IDS + tail, list(enumerate(IDS + tail)), len(IDS + tail)) == expected
    await _break_prefix_rows(backend)
    if switch == "own":
        await change_state(backend, "p", compat_read=1)
    else:
        await _global(backend, '{"enabled": true}')
    assert expected == await _all_reads(state)


@pytest.mark.parametrize("limit", [1, 2, 3, 500])
async def test_pages_cross_the_join(backend: Backend, state: Any, limit: int) -> None:
    await put(backend, "p", "items", IDS, TAIL, compat_read=True)
    await _break_prefix_rows(backend)
    pairs = list(enumerate(IDS + TAIL))
    for place in range(-1, len(pairs) + 1):
        forward = await state.list_progression_items("p", after_ordinal=place, limit=limit)
        assert pairs[place + 1 :][:limit] == forward
        back = await state.list_progression_items("p", before_ordinal=place, limit=limit, newest_first=True)
        assert pairs[: max(place, 0)][::-1][:limit] == back


@pytest.mark.parametrize(
    ("value", "expires_in", "is_on"),
    [
        ('{"enabled": true}', None, True),
        ('{"enabled": true}', 60.0, True),
        ('{"enabled": true}', -60.0, False),
        ('{"enabled": false}', None, False),
    ],
)
async def test_the_global_switch(
    backend: Backend, state: Any, value: str, expires_in: float | None, is_on: bool
) -> None:
    await put(backend, "p", "items", IDS)
    await _break_prefix_rows(backend)
    await _global(backend, value, None if expires_in is None else time.time() + expires_in)
    assert (IDS if is_on else ["wrong"] * len(IDS)) == await state.get_progression("p")


async def test_the_switches_do_not_touch_a_json_authority(backend: Backend, state: Any) -> None:
    await _global(backend, '{"enabled": true}')
    for shape in ("absent", "dual", "blocked-json"):
        await put(backend, shape, shape, IDS, TAIL)
        if shape != "absent":
            await change_state(backend, shape, compat_read=1)
        assert IDS + TAIL == await state.get_progression(shape)


BREAKS = {
    "no tail rows": "DELETE FROM progression_items WHERE ordinal >= 4",
    "first tail row missing": "DELETE FROM progression_items WHERE ordinal = 4",
    "last tail row missing": "DELETE FROM progression_items WHERE ordinal = 6",
    "tail beyond the allocator": "UPDATE progression_storage_state SET next_ordinal = 6",
    "allocator says no tail": "UPDATE progression_storage_state SET next_ordinal = 4",
    "allocator inside the prefix": "UPDATE progression_storage_state SET next_ordinal = 2",
    "allocator inside the prefix without a tail": "DELETE FROM progression_items WHERE ordinal >= 4; "
    "UPDATE progression_storage_state SET next_ordinal = 2",
    "no frozen count": "UPDATE progression_storage_state SET frozen_count = NULL",
    "no digest": "UPDATE progression_storage_state SET source_digest = NULL",
    "another prefix": "UPDATE progression_storage_state SET replacing = 1; "
    'UPDATE progressions SET collection = \'["a", "b", "x", "y"]\'',
    "a shorter prefix": "UPDATE progression_storage_state SET replacing = 1; "
    'UPDATE progressions SET collection = \'["a", "b", "a"]\'',
    "a number in the prefix": "UPDATE progression_storage_state SET replacing = 1; "
    'UPDATE progressions SET collection = \'["a", "b", "a", 1]\'',
    "frozen count too small": "UPDATE progression_storage_state SET frozen_count = 3",
}


@pytest.mark.parametrize("broken", BREAKS)
async def test_a_gap_or_an_overlap_fails_closed(backend: Backend, state: Any, broken: str) -> None:
    """Each of decision 3's demands, one at a time; the item read that is not in doubt goes on."""
    await put(backend, "p", "items", IDS, TAIL)
    for statement in BREAKS[broken].split("; "):
        await backend.execute(statement)
    assert isinstance(await state.get_progression("p"), list)
    await change_state(backend, "p", compat_read=1)
    for read in (state.get_progression, state.list_progression_items, state.count_progression_items):
        with pytest.raises(PrefixGapError):
            await read("p")


async def test_an_unreadable_prefix_fails_closed(backend: Backend, state: Any) -> None:
    await put(backend, "p", "items", IDS, TAIL, compat_read=True)
    await change_state(backend, "p", replacing=1)
    await backend.execute("UPDATE progressions SET collection = '{'")
    with pytest.raises(MalformedCollectionError, match=r"'p'.*malformed_json.*compat-read --disable"):
        await state.get_progression("p")


async def test_foreign_ids_behind_the_frozen_prefix_are_not_served(backend: Backend, state: Any) -> None:
    await put(backend, "p", "items", IDS, TAIL, compat_read=True)
    await change_state(backend, "p", replacing=1)
    await backend.execute("UPDATE progressions SET collection = :text", text='["a","b","a","ü","foreign"]')
    assert (IDS + TAIL, list(enumerate(IDS + TAIL)), len(IDS + TAIL)) == await _all_reads(state)


async def test_a_block_forces_the_join_and_appends_test_the_frozen_json(backend: Backend, state: Any) -> None:
    """Decision 2: JSON good, items prefix bad; the global switch cannot turn it off."""
    await put(backend, "p", "blocked-items", IDS, TAIL, compat_read=True)
    await _break_prefix_rows(backend)
    await _global(backend, '{"enabled": false}')
    assert IDS + TAIL == await state.get_progression("p")
    for retry in ("a", "ü", "e"):
        await state.append_to_progression("p", retry)
    assert IDS + TAIL == await state.get_progression("p")
    await state.append_to_progression("p", "new")
    assert [*IDS, *TAIL, "new"] == await state.get_progression("p")


async def test_an_id_behind_the_frozen_prefix_is_no_member(backend: Backend, state: Any) -> None:
    await put(backend, "p", "blocked-items", IDS, TAIL, compat_read=True)
    await change_state(backend, "p", replacing=1)
    await backend.execute("UPDATE progressions SET collection = :text", text='["a","b","a","ü","foreign"]')
    await state.append_to_progression("p", "foreign")
    assert [*IDS, *TAIL, "foreign"] == await state.get_progression("p")


async def test_an_append_that_neither_side_can_vouch_for_is_refused(backend: Backend, state: Any) -> None:
    await put(backend, "p", "blocked-items", IDS, TAIL, compat_read=True)
    await change_state(backend, "p", replacing=1)
    await backend.execute("UPDATE progressions SET collection = '{'")
    with pytest.raises(ProgressionBlockedError):
        await state.append_to_progression("p", "new")


async def test_a_block_that_trusts_the_items_ignores_the_global_switch(backend: Backend, state: Any) -> None:
    """Decision 2: items good, JSON changed: compat read would fail for no reason."""
    await put(backend, "p", "blocked-items", IDS, TAIL)
    await change_state(backend, "p", replacing=1)
    await backend.execute("UPDATE progressions SET collection = '[]'")
    await _global(backend, '{"enabled": true}')
    assert IDS + TAIL == await state.get_progression("p")


async def test_compat_reads_are_counted(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    state = backend.direct
    counted: list[None] = []
    monkeypatch.setattr(type(backend.direct.store.observer), "compat_read", lambda _: counted.append(None))
    await put(backend, "p", "items", IDS, TAIL)
    await _all_reads(state)
    assert [] == counted
    await change_state(backend, "p", compat_read=1)
    await _all_reads(state)
    assert 3 == len(counted)
