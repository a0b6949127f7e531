"""Writers that append while small progressions are cut over; what was acknowledged is there, once and in order."""

from __future__ import annotations

import asyncio
import json

from lionstate.migration import StopReason
from lionstate.progression.digest import digest_of
from tests.support.backends import Backend
from tests.support.migration import items_of, service_of, state_of, until_done

__all__ = ["cut_over_under_load"]


async def cut_over_under_load(backend: Backend, *, progressions: int, writers: int) -> str:
    """Cut so many progressions over under so many writers, and check each of them.

    Returns:
        A line of what was seen.
    """
    state = backend.state
    names = [f"p{n}" for n in range(progressions)]
    for name in names:
        await backend.put_progression(name, json.dumps([f"{name}-old-{n}" for n in range(5)]))
    acknowledged: dict[str, list[list[str]]] = {name: [[] for _ in range(writers)] for name in names}
    stop = asyncio.Event()

    def seen() -> int:
        return sum(len(ids) for found in acknowledged.values() for ids in found)

    async def write(writer: int) -> None:
        number = 0
        while not stop.is_set():
            name = names[(number + writer * 7) % len(names)]
            message_id = f"{name}-{writer}-{number}"
            await state.append_to_progression(name, message_id)
            acknowledged[name][writer].append(message_id)
            number += 1

    tasks = [asyncio.ensure_future(write(writer)) for writer in range(writers)]
    steps = await until_done(service_of(backend), max_items=500, max_bytes=10**9, max_seconds=10)
    assert StopReason.DONE == steps[-1].stop_reason
    assert progressions == sum(step.cut_over for step in steps)
    enough = seen() + 100
    while seen() < enough:
        await state.get_progression(names[0])
    stop.set()
    await asyncio.gather(*tasks)
    late = 0
    for name in names:
        row = await state_of(backend, name)
        found = await state.get_progression(name)
        assert list(enumerate(found)) == await items_of(backend, name)
        assert ("items", len(found), digest_of(found[: row["frozen_count"]])) == (
            row["phase"],
            row["next_ordinal"],
            row["items_digest"],
        )
        assert len(found) == len(set(found)) == 5 + sum(map(len, acknowledged[name]))
        for writer, ids in enumerate(acknowledged[name]):
            assert ids == [one for one in found if one.startswith(f"{name}-{writer}-")]
        late += len(found) - row["frozen_count"]
    assert late > 0
    return f"{progressions} cutovers, {seen()} appends acknowledged ({late} of them later), none lost, twice or astray"
