"""Appends that wait for a large JSON value to be parsed outside the transaction keep their order and are not lost."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from tests.support.backends import Backend

_LARGE = [f"old-{number:06d}" for number in range(10_000)]


async def test_calls_behind_a_parse_are_written_in_order(backend: Backend, state: Any) -> None:
    await backend.put_progression("p", json.dumps(_LARGE))
    ids = [f"m{number:03d}" for number in range(20)]
    await backend.put_progression("other", "[]")
    # The first call occupies the writer, so that those behind it form one batch.
    calls = [state.append_to_progression("other", "x")]
    calls += [state.append_to_progression("p", found) for found in ids]
    await asyncio.gather(*calls)
    assert [*_LARGE, *ids] == await state.get_progression("p")
