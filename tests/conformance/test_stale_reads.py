"""Marked reads where there is no replica: the store itself answers."""

from __future__ import annotations

from typing import Any

import pytest

from lionstate.errors import InvalidInputError


async def test_a_marked_read_is_a_permission(state: Any) -> None:
    await state.create_progression("p", ["a"])
    await state.append_to_progression("p", "b")
    assert ["a", "b"] == await state.stale_ok().get_progression("p")
    assert [(1, "b")] == await state.stale_ok(max_lag_seconds=1).list_progression_items("p", after_ordinal=0)


async def test_a_write_cannot_be_marked(state: Any) -> None:
    await state.create_progression("p", [])
    with pytest.raises(InvalidInputError, match="append_to_progression writes, which no replica can"):
        await state.stale_ok().append_to_progression("p", "a")
    assert [] == await state.get_progression("p")


@pytest.mark.parametrize("bad", [0, 0.5, -1, 86_401, float("nan"), float("inf"), True, "5", None])
async def test_what_is_no_lag_is_refused(state: Any, bad: Any) -> None:
    with pytest.raises(InvalidInputError, match="max_lag_seconds is"):
        state.stale_ok(max_lag_seconds=bad)
