"""Workers: heartbeats insert and replace, lists by the last sign of life."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from lionstate.errors import ForeignKeyError, InvalidInputError
from tests.support.backends import Backend
from tests.support.records import assert_refused_unchanged, pick
from tests.support.scheduling import run


async def test_a_heartbeat_inserts_and_replaces(backend: Backend, state: Any) -> None:
    before = time.time()
    await state.register_heartbeat(worker_id="w", advertised_capabilities=["b", "a"], execution_targets=["x"])
    row = await state.get_worker("w")
    assert (["b", "a"], ["x"], None) == pick(row, "advertised_capabilities", "execution_targets", "leased_run_id")
    assert before <= row["last_heartbeat_at"] <= time.time()
    await state.register_heartbeat(worker_id="w", now=5.0)
    row = await state.get_worker("w")
    assert ([], ["host"], 5.0) == pick(row, "advertised_capabilities", "execution_targets", "last_heartbeat_at")


async def test_a_heartbeat_leaves_what_else_the_row_holds(backend: Backend, state: Any) -> None:
    await state.create_schedule_run(run("r"))
    await state.register_heartbeat(worker_id="w", now=1.0)
    await backend.execute("UPDATE workers SET leased_run_id = 'r'")
    await state.register_heartbeat(worker_id="w", now=2.0)
    assert ("r", 2.0) == pick(await state.get_worker("w"), "leased_run_id", "last_heartbeat_at")


async def test_concurrent_heartbeats_leave_one_row(backend: Backend, state: Any) -> None:
    calls = (state.register_heartbeat(worker_id="w", advertised_capabilities=[str(n)]) for n in range(8))
    await asyncio.gather(*calls)
    assert 1 == len(await state.list_workers())


async def test_bad_heartbeats_change_nothing(backend: Backend, state: Any) -> None:
    await state.register_heartbeat(worker_id="w", now=1.0)
    beat = state.register_heartbeat
    await assert_refused_unchanged(
        backend,
        InvalidInputError,
        beat(worker_id=5),
        beat(worker_id="v\0"),
        beat(worker_id="w", advertised_capabilities="text"),
        beat(worker_id="w", execution_targets=[1]),
        beat(worker_id="w", now=float("nan")),
        state.list_workers(limit=0),
        state.list_workers(after_heartbeat_at=float("inf")),
    )


async def test_missing_rows(backend: Backend, state: Any) -> None:
    assert await state.get_worker("m") is None
    assert [] == await state.list_workers()
    assert await state.delete_worker("m") is False


async def test_pages_and_removal(backend: Backend, state: Any) -> None:
    for name, at in (("a", 1.0), ("b", 3.0), ("c", 2.0), ("d", 3.0)):
        await state.register_heartbeat(worker_id=name, now=at)
    assert ["d", "b", "c", "a"] == [row["worker_id"] for row in await state.list_workers()]
    assert ["b", "c"] == [row["worker_id"] for row in await state.list_workers(limit=2, offset=1)]
    assert ["d", "b"] == [row["worker_id"] for row in await state.list_workers(after_heartbeat_at=2.0)]
    assert [True, False] == [await state.delete_worker("c"), await state.delete_worker("c")]
    assert 3 == len(await state.list_workers())


async def test_a_run_that_a_worker_names_keeps_its_schedule(backend: Backend, state: Any) -> None:
    await state.create_schedule({"id": "s", "name": "s", "trigger_type": "cron", "action_kind": "agent"})
    await state.create_schedule_run(run("r", "s"))
    await state.register_heartbeat(worker_id="w", now=1.0)
    await backend.execute("UPDATE workers SET leased_run_id = 'r'")
    await assert_refused_unchanged(backend, ForeignKeyError, state.delete_schedule("s"))
    assert await state.delete_worker("w")
    assert await state.delete_schedule("s")
