"""Several writers of one progression at once (ADR-0117 D2, D6; design decision 10)."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from typing import Any

import pytest

from lionstate import StateDB
from lionstate.engine import Written
from lionstate.operations import OPERATIONS
from tests.support.backends import Backend
from tests.support.phases import put, whole


@asynccontextmanager
async def _writers(backend: Backend, count: int) -> AsyncIterator[list[StateDB]]:
    """Stores of their own on the same database: nothing but the database keeps them apart."""
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(StateDB(url=backend.direct.url)) for _ in range(count)]


@pytest.mark.parametrize("shape", ["absent", "dual", "items"])
async def test_one_position_per_id(backend: Backend, shape: str) -> None:
    """fault 24: the same id from 64 tasks, and 64 different ids; ordinals are contiguous."""
    old = ["a", "b"]
    await put(backend, "p", shape, old)
    async with _writers(backend, 4) as writers:
        await asyncio.gather(
            *(writers[task % 4].append_to_progression("p", "same") for task in range(64)),
            *(writers[task % 4].append_to_progression("p", f"m{task}") for task in range(64)),
        )
        await asyncio.gather(*(writers[task % 3].append_to_progression("p", f"m{task}") for task in range(64)))
    found = await backend.state.get_progression("p")
    assert old == found[:2]
    assert sorted(["same", *(f"m{task}" for task in range(64))]) == sorted(found[2:])
    rows = await whole(backend, "p")
    if shape != "absent":
        assert list(range(67)) == [row["ordinal"] for row in rows["items"]]
        assert found == [row["message_id"] for row in rows["items"]]
        assert 67 == rows["state"][0]["next_ordinal"]


async def test_replacements_and_appends_leave_one_whole_state(backend: Backend) -> None:
    await put(backend, "p", "items", ["a"])
    async with _writers(backend, 3) as writers:
        await asyncio.gather(
            *(writers[0].append_to_progression("p", f"x{number}") for number in range(20)),
            *(writers[1].set_progression("p", [f"s{number}", "t"]) for number in range(5)),
            *(writers[2].append_to_progression("p", f"y{number}") for number in range(20)),
        )
    rows = await whole(backend, "p")
    found = [row["message_id"] for row in rows["items"]]
    assert list(range(len(found))) == [row["ordinal"] for row in rows["items"]]
    assert len(found) == rows["state"][0]["next_ordinal"]
    assert ("t", 0) == (found[1], rows["state"][0]["replacing"])
    assert len(set(found)) == len(found)


async def test_pairs_in_opposite_order_do_not_deadlock(backend: Backend) -> None:
    """Decision 10: branch and session against session and branch, as one transaction each."""
    for progression in ("branch", "session"):
        await put(backend, progression, "items", [])
    append = OPERATIONS["append_to_progression"]

    async def pairs(writer: StateDB, order: tuple[str, str], prefix: str) -> list[Any]:
        outcomes: list[Any] = []
        for number in range(40):
            calls = [(append, {"progression_id": pid, "message_id": f"{prefix}{number}"}) for pid in order]
            outcomes += await writer.store.run_batch(calls, atomic=True)
        return outcomes

    async with _writers(backend, 2) as (one, two):
        found = await asyncio.gather(pairs(one, ("branch", "session"), "a"), pairs(two, ("session", "branch"), "b"))
    assert [Written(None)] * 160 == [outcome for outcomes in found for outcome in outcomes]
    assert await backend.state.get_progression("branch") == await backend.state.get_progression("session")
    assert 80 == await backend.state.count_progression_items("branch")


async def test_every_snapshot_is_a_prefix_of_the_next(backend: Backend) -> None:
    await put(backend, "p", "items", [])
    async with _writers(backend, 2) as writers:
        appending = asyncio.gather(
            *(writers[number % 2].append_to_progression("p", f"m{number}") for number in range(200))
        )
        before: list[str] = []
        while not appending.done():
            found = await backend.direct.get_progression("p")
            assert before == found[: len(before)]
            before = found
        await appending
    assert 200 == await backend.state.count_progression_items("p")


async def test_a_full_read_leaves_the_event_loop_alone(backend: Backend, request: pytest.FixtureRequest) -> None:
    """Design §2.1: pages and parses do not stop the loop.

    Measured by how late a 1 ms timer comes, the best of eight reads: a busy machine is late now and then, while pages
    of 5,000 rows are 90 ms late every time.
    """
    ids = [f"{number:032x}" for number in range(100_000)]
    await backend.direct.create_progression("items", ids)
    await put(backend, "json", "absent", ids)
    # What the tests before left behind would make every collection longer.
    gc.collect()
    gc.freeze()
    request.addfinalizer(gc.unfreeze)
    for name in ("items", "json"):
        worst: list[float] = []
        while not worst or (min(worst) >= 0.06 and len(worst) < 8):
            worst.append(await _lateness(backend, name, ids))
        assert min(worst) < 0.06, worst


async def _lateness(backend: Backend, name: str, ids: list[str]) -> float:
    late: list[float] = []

    async def probe() -> None:
        while True:
            started = time.monotonic()
            await asyncio.sleep(0.001)
            late.append(time.monotonic() - started - 0.001)

    probing = asyncio.create_task(probe())
    began = time.monotonic()
    try:
        found = await backend.direct.get_progression(name)
        elapsed = time.monotonic() - began
    finally:
        probing.cancel()
        with suppress(asyncio.CancelledError):
            await probing
    assert ids == found
    # A read that ends before the timer came once was no later than it is long.
    return max(late, default=elapsed)
