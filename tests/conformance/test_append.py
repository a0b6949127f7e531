"""Append and full read on progressions without a state row (ADR-0055 D3, ADR-0117 D1, decision 11)."""

from __future__ import annotations

import asyncio
import functools
from typing import Any

import pytest

from lionstate.errors import InvalidInputError, MalformedCollectionError
from tests.support.backends import Backend


async def test_missing_and_empty_progressions_read_as_empty_lists(backend: Backend, state: Any) -> None:
    await backend.put_progression("empty", "[]")
    assert [] == await state.get_progression("empty")
    assert [] == await state.get_progression("missing")


async def test_appends_keep_order_and_first_position(backend: Backend, state: Any) -> None:
    await backend.put_progression("p", '["a"]')
    for message_id in ("b", "c", "a", "b", "d"):
        await state.append_to_progression("p", message_id)
    assert ["a", "b", "c", "d"] == await state.get_progression("p")


async def test_append_to_a_missing_progression_is_a_no_op(backend: Backend, state: Any) -> None:
    await state.append_to_progression("missing", "a")
    assert [] == await backend.rows("SELECT id FROM progressions")


async def test_concurrent_appends_land_once_each(backend: Backend, state: Any) -> None:
    await backend.put_progression("p", "[]")
    ids = [f"m{number:03d}" for number in range(60)]
    await asyncio.gather(*(state.append_to_progression("p", found) for found in [*ids, *ids]))
    assert ids == await state.get_progression("p")


async def test_bad_new_ids_are_refused_and_change_nothing(backend: Backend, state: Any) -> None:
    await backend.put_progression("p", '["", "a"]')
    for bad in ("x\0", "\ud800", "x" * 1025):
        with pytest.raises(InvalidInputError):
            await state.append_to_progression("p", bad)
    await state.append_to_progression("p", "")
    assert ["", "a"] == await state.get_progression("p")


async def test_an_unreadable_value_refuses_the_append_and_nothing_else(backend: Backend, state: Any) -> None:
    await backend.put_progression("bad", "{")
    await backend.put_progression("good", "[]")
    appending = functools.partial(state.append_to_progression, message_id="a")
    for call in (appending, state.get_progression, state.list_progression_items, state.count_progression_items):
        # Which one, by what verdict, and what to do.
        with pytest.raises(MalformedCollectionError, match=r"'bad'.*malformed_json.*set_progression.*blocked retry"):
            await call("bad")
    await state.append_to_progression("good", "a")
    assert ["a"] == await state.get_progression("good")
