"""Several processes' worth of schedulers and workers on one store: nothing but the database keeps them apart."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from lionstate import StateDB
from lionstate.errors import AdmissionRejectedError, InvalidInputError, OwnershipConflictError
from tests.support.backends import Backend
from tests.support.scheduling import run, schedule, task


@asynccontextmanager
async def _writers(backend: Backend, count: int = 4) -> AsyncIterator[list[StateDB]]:
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(StateDB(url=backend.direct.url)) for _ in range(count)]


async def test_no_task_is_claimed_twice(backend: Backend, state: Any) -> None:
    ids = [await state.submit_task(**task()) for _ in range(40)]
    async with _writers(backend) as writers:
        calls = (writers[number % 4].claim_tasks(worker_id=f"w{number}", limit=5) for number in range(12))
        claimed = [row["id"] for rows in await asyncio.gather(*calls) for row in rows]
    assert sorted(ids) == sorted(claimed)
    for task_id in ids:
        assert 2 == len(await state.list_status_transitions("schedule_run", task_id))


async def test_a_key_is_held_once(backend: Backend, state: Any) -> None:
    async with _writers(backend) as writers:
        for number in range(4):
            first = await state.submit_task(**task(concurrency_key=f"k{number}"))
            await state.submit_task(**task(concurrency_key=f"k{number}"))
            calls = (writer.claim_tasks(worker_id=f"w{place}", limit=1) for place, writer in enumerate(writers))
            claimed = [row["id"] for rows in await asyncio.gather(*calls) for row in rows]
            assert [first] == claimed
            assert 1 == await state.count_tasks(concurrency_key=f"k{number}", status="running")


async def test_no_more_tasks_wait_for_a_key_than_may(backend: Backend, state: Any) -> None:
    async with _writers(backend) as writers:
        for number in range(4):
            await state.submit_task(**task(concurrency_key=f"k{number}"))
            assert 1 == len(await state.claim_tasks(worker_id="w"))
            calls = (writer.submit_task(**task(concurrency_key=f"k{number}")) for writer in writers)
            outcomes = await asyncio.gather(*calls, return_exceptions=True)
            assert 2 == sum(isinstance(outcome, AdmissionRejectedError) for outcome in outcomes)
            assert 2 == await state.count_tasks(concurrency_key=f"k{number}", status="queued")


async def test_a_claim_waits_for_nobody_where_rows_have_locks(backend: Backend, state: Any) -> None:
    first, second = [await state.submit_task(**task()) for _ in range(2)]
    async with _writers(backend, 1) as (writer,):
        async with backend.direct.transaction() as transaction:
            await transaction.execute("UPDATE schedule_runs SET error_detail = 'held' WHERE id = :id", {"id": first})
            claim = asyncio.ensure_future(writer.claim_tasks(worker_id="w", limit=1))
            if writer.store.dialect.capabilities.concurrent_writers:
                assert [second] == [row["id"] for row in await claim]
        # Where the transaction is the lock, it waits for its end and takes the first.
        assert 1 == len(await claim)
        assert 1 == await state.count_tasks(status="queued")


async def test_an_expired_lease_is_reaped_once(backend: Backend, state: Any) -> None:
    for _ in range(12):
        await state.submit_task(**task())
    await state.claim_tasks(worker_id="w", now=1.0)
    async with _writers(backend) as writers:
        counts = await asyncio.gather(*(writer.reap_expired_leases() for writer in writers))
    assert 12 == sum(found["requeued"] for found in counts)


async def test_an_id_is_created_once(backend: Backend, state: Any) -> None:
    async with _writers(backend) as writers:
        for number in range(4):
            calls = (
                writer.create_schedule(schedule(f"s{number}", name=f"{number}-{place}"))
                for place, writer in enumerate(writers)
            )
            outcomes = await asyncio.gather(*calls, return_exceptions=True)
            assert 1 == outcomes.count(None)
            assert 3 == sum(isinstance(outcome, InvalidInputError) for outcome in outcomes)


async def test_an_instant_fires_once(backend: Backend, state: Any) -> None:
    await state.create_schedule(schedule("s", next_fire_at=0.0))
    async with _writers(backend) as writers:
        for number in range(4):
            calls = (
                writer.create_schedule_run_and_advance(
                    run(f"r{number}-{place}", "s"),
                    schedule_id="s",
                    schedule_fields={"next_fire_at": number + 1.0},
                    expect_next_fire_at=float(number),
                )
                for place, writer in enumerate(writers)
            )
            assert 1 == (await asyncio.gather(*calls)).count(True)
    assert 4 == len(await state.list_schedule_runs("s"))


async def test_plans_in_opposite_orders_do_not_wait_crosswise(backend: Backend, state: Any) -> None:
    names = [f"s{number}" for number in range(8)]
    for name in names:
        await state.create_schedule(schedule(name, updated_at=1.0))
    async with _writers(backend) as writers:
        plans = (
            writer.apply_schedule_set(
                creates=[],
                updates=[(name, {"description": str(place)}) for name in (names if place % 2 else names[::-1])],
                disables=[],
                expect_updated_at=dict.fromkeys(names, 1.0),
            )
            for place, writer in enumerate(writers)
        )
        outcomes = await asyncio.gather(*plans, return_exceptions=True)
    assert 1 == outcomes.count(None)
    assert 3 == sum(isinstance(outcome, OwnershipConflictError) for outcome in outcomes)
    assert 1 == len({row["description"] for row in await state.list_schedules()})
