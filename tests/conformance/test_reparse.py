"""Appends that wait for a large JSON value to be parsed outside the transaction keep their order and are not lost."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable
from typing import Any

from tests.support.backends import Backend
from tests.support.conversations import message

_LARGE = [f"old-{number:06d}" for number in range(10_000)]
# At least as many as any writer has.
_LANES = 4


async def occupied(backend: Backend, state: Any) -> list[Awaitable[None]]:
    """Calls that keep every lane of the writer busy, so that those behind them form one batch."""
    others = [f"other-{number}" for number in range(_LANES)]
    for other in others:
        await backend.put_progression(other, "[]")
    return [state.append_to_progression(other, "x") for other in others]


async def test_calls_behind_a_parse_are_written_in_order(backend: Backend, state: Any) -> None:
    await backend.put_progression("p", json.dumps(_LARGE))
    ids = [f"m{number:03d}" for number in range(20)]
    calls = await occupied(backend, state)
    calls += [state.append_to_progression("p", found) for found in ids]
    await asyncio.gather(*calls)
    assert [*_LARGE, *ids] == await state.get_progression("p")


async def test_an_unfolded_call_waits_behind_an_append_that_is_parsed_first(backend: Backend, state: Any) -> None:
    """Design §2.2: a replacement needs no parse, and yet may not overtake the append that left its batch."""
    await backend.put_progression("p", json.dumps(_LARGE))
    calls = [
        *await occupied(backend, state),
        state.append_to_progression("p", "before"),
        state.set_progression("p", ["only"]),
        state.append_to_progression("p", "after"),
    ]
    await asyncio.gather(*calls)
    assert ["only", "after"] == await state.get_progression("p")


async def test_a_call_does_not_overtake_one_of_its_fold_that_waits_on_another_key(backend: Backend, state: Any) -> None:
    """The first message waits behind the append on its branch, so the second waits behind it on their session."""
    await backend.put_progression("p", json.dumps(_LARGE))
    for small in ("bp", "sp"):
        await backend.put_progression(small, "[]")
    calls = [
        *await occupied(backend, state),
        state.append_to_progression("p", "before"),
        state.record_message(message("m1"), "s1", "p", "sp"),
        state.record_message(message("m2"), "s2", "bp", "sp"),
    ]
    await asyncio.gather(*calls)
    assert [*_LARGE, "before", "m1"] == await state.get_progression("p")
    assert (["m2"], ["m1", "m2"]) == (await state.get_progression("bp"), await state.get_progression("sp"))
