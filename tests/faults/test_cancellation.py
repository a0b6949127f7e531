"""Callers that go away at any moment (faults 57, 58; design §2.2 "drops its ticket, never a transaction")."""

from __future__ import annotations

import asyncio
import random
import time
from typing import Any

import pytest

from lionstate import StateDB
from lionstate.engine.postgresql import PostgresqlWriter
from lionstate.engine.reader import PostgresqlReader
from lionstate.errors import ClosedError, NestedWriteError
from lionstate.operations import OPERATIONS
from lionstate.store import Store
from tests.support.backends import database_of
from tests.support.eventually import eventually
from tests.support.postgres import PostgresServer
from tests.support.store_calls import append, one_batch, put_progression, read_ids


async def _idle(store: Store) -> None:
    """Nothing is checked out, and no session of the server is idle in a transaction."""
    if not (isinstance(store.writer, PostgresqlWriter) and isinstance(store.reader, PostgresqlReader)):
        return
    give_up = time.monotonic() + 5
    while store.connections().in_use:
        assert time.monotonic() < give_up, "connections are still in use"
        await asyncio.sleep(0.01)

    async def none_in_transaction() -> bool:
        async with store.snapshot() as snapshot:
            row = await snapshot.fetch_one(
                "SELECT count(*) AS n FROM pg_stat_activity WHERE datname = current_database()"
                " AND state LIKE 'idle in transaction%' AND pid <> pg_backend_pid()"
            )
        return {"n": 0} == row

    # A connection that was given up is gone when its server process has seen that.
    assert await eventually(none_in_transaction, seconds=5)


@pytest.mark.timeout(120)
async def test_five_hundred_cancelled_requests_leave_nothing_behind(any_store: Store) -> None:
    """Fault 57, 58: cancelled at random points; pools idle, the next request fine, order and uniqueness kept."""
    store = any_store
    await put_progression(store, "p")
    chance = random.Random(7)
    acknowledged: list[str] = []

    async def snapshot() -> None:
        async with store.snapshot() as found:
            await found.fetch_one("SELECT count(*) AS n FROM progressions")
            await found.fetch_all("SELECT id FROM progressions")

    async def transaction(number: int) -> None:
        async with store.transaction() as turn:
            await turn.execute("UPDATE progressions SET created_at = :n WHERE id = 'p'", {"n": float(number)})
            await turn.fetch_one("SELECT 1")

    async def appending(number: int) -> None:
        await append(store, "p", f"m{number:04d}")
        acknowledged.append(f"m{number:04d}")

    async def cancelled(number: int) -> None:
        calls: tuple[Any, ...] = (
            appending,
            appending,
            lambda n: read_ids(store, "p"),
            lambda n: snapshot(),
            transaction,
        )
        task = asyncio.ensure_future(calls[number % len(calls)](number))
        for _ in range(chance.randrange(12)):
            await asyncio.sleep(0)
        if chance.random() < 0.5:
            await asyncio.sleep(chance.random() * 0.02)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    for first in range(0, 500, 20):
        await asyncio.gather(*(cancelled(number) for number in range(first, first + 20)))
    await append(store, "p", "last")
    ids = await read_ids(store, "p")
    assert "last" == ids[-1]
    assert len(ids) == len(set(ids))
    assert set(acknowledged) <= set(ids)
    await _idle(store)


async def test_a_cancelled_caller_drops_its_ticket_and_no_other(any_store: Store) -> None:
    """Before its transaction: it is not written, and its neighbours are."""
    store = any_store
    await put_progression(store, "p")
    async with one_batch(store):
        tasks = [asyncio.ensure_future(append(store, "p", found)) for found in "abc"]
        for _ in range(5):
            await asyncio.sleep(0)
        tasks[1].cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert ["a", "c"] == await read_ids(store, "p")


async def test_a_cancelled_batch_drops_all_its_tickets(any_store: Store) -> None:
    """The calls of a batch that is not atomic are tickets of one caller."""
    store = any_store
    await put_progression(store, "p")
    operation = OPERATIONS["append_to_progression"]
    calls = [(operation, {"progression_id": "p", "message_id": found}) for found in "abc"]
    async with one_batch(store):
        task = asyncio.ensure_future(store.run_batch(calls, atomic=False))
        for _ in range(5):
            await asyncio.sleep(0)
        task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    # Behind whatever was left of the batch.
    await append(store, "p", "last")
    assert ["last"] == await read_ids(store, "p")


async def test_a_transaction_cancelled_while_it_waits_for_its_turn_never_begins(any_store: Store) -> None:
    """Its BEGIN is undone or never sent, and the next writer does not wait for it."""
    store = any_store
    await put_progression(store, "p")

    async def hold() -> None:
        async with store.transaction() as turn:
            await turn.execute("UPDATE progressions SET created_at = 9 WHERE id = 'p'")
            pytest.fail("the turn was taken")

    async with one_batch(store):
        task = asyncio.ensure_future(hold())
        await asyncio.sleep(0)
        task.cancel()
        if store.url.dialect == "postgresql":
            await asyncio.gather(task, return_exceptions=True)
    await asyncio.gather(task, return_exceptions=True)
    assert task.cancelled()
    await append(store, "p", "a")
    assert ["a"] == await read_ids(store, "p")


async def test_a_cancelled_transaction_is_rolled_back(any_store: Store) -> None:
    """Whatever statement it was in."""
    store = any_store
    await put_progression(store, "p")
    inside = asyncio.Event()

    async def change() -> None:
        async with store.transaction() as turn:
            await turn.execute("UPDATE progressions SET collection = '[\"x\"]' WHERE id = 'p'")
            inside.set()
            await asyncio.sleep(60)

    task = asyncio.ensure_future(change())
    await inside.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    assert [] == await read_ids(store, "p")
    await _idle(store)


async def test_a_facade_call_inside_its_own_transaction_is_refused(any_store: Store) -> None:
    """It would wait for itself; a second transaction of another task does not lift that."""
    store = any_store
    await put_progression(store, "p")
    async with store.transaction() as turn:
        await turn.execute("UPDATE progressions SET created_at = 2 WHERE id = 'p'")
        if store.url.dialect == "postgresql":

            async def another() -> None:
                async with store.transaction() as second:
                    await second.fetch_one("SELECT 1")

            await asyncio.create_task(another())
        with pytest.raises(NestedWriteError):
            await append(store, "p", "a")
        with pytest.raises(NestedWriteError):
            async with store.transaction():
                pass
    await append(store, "p", "a")
    assert ["a"] == await read_ids(store, "p")


async def test_close_answers_everybody(any_store: Store) -> None:
    """Queued work is finished, a transaction that is open is rolled back, later calls say closed; twice is fine."""
    store = any_store
    await put_progression(store, "p")
    async with one_batch(store):
        tasks = [asyncio.ensure_future(append(store, "p", found)) for found in "abc"]
        for _ in range(5):
            await asyncio.sleep(0)
        closing = [asyncio.ensure_future(store.close()) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(ClosedError):
            await append(store, "p", "too late")
    assert [0, 0] == await asyncio.gather(*closing)
    assert [None] * 3 == await asyncio.gather(*tasks)
    for call in (append(store, "p", "x"), read_ids(store, "p"), store.snapshot().__aenter__()):
        with pytest.raises(ClosedError):
            await call
    with pytest.raises(ClosedError):
        async with store.transaction():
            pass


async def test_close_ends_an_open_transaction_of_sqlite(sqlite_store: Store) -> None:
    """Closing does not wait for the time limit of somebody's block."""
    store = sqlite_store
    await put_progression(store, "p")
    with pytest.raises(ClosedError):
        async with store.transaction() as turn:
            await turn.execute("UPDATE progressions SET created_at = 9 WHERE id = 'p'")
            async with asyncio.timeout(3):
                await asyncio.create_task(store.close())
            await turn.fetch_one("SELECT 1")
    async with StateDB(store.url.path) as again:
        assert {"created_at": 1.0} == await again.fetch_one("SELECT created_at FROM progressions")


async def test_a_cancelled_close_still_closes(any_store: Store) -> None:
    """A second close waits for the first; nothing is left open."""
    store = any_store
    await put_progression(store, "p")
    task = asyncio.ensure_future(store.close())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with pytest.raises(ClosedError):
        await read_ids(store, "p")


@pytest.mark.postgresql
async def test_cached_statements_survive_a_schema_change(postgres_18: PostgresServer) -> None:
    """Fault 59: columns and indexes come under load; no acknowledged or refused call, at most a retry inside."""
    dsn = database_of(postgres_18, "cached")
    store = await Store.open(dsn)
    try:
        await put_progression(store, "p")
        async with store.snapshot() as snapshot:
            await snapshot.fetch_all("SELECT * FROM progressions")
        ids: list[str] = []
        for number in range(12):
            await append(store, "p", f"m{number}")
            ids.append(f"m{number}")
            assert ids == await read_ids(store, "p")
            rows = await store.read(lambda conn: conn.exec_driver_sql("SELECT * FROM progressions").all())
            assert 1 == len(rows)
            await store.write("star", lambda conn: conn.exec_driver_sql("SELECT * FROM progressions").all() and None)
            if number % 3 == 0:
                await store.write(
                    "ddl", _statement(f"ALTER TABLE progressions ADD COLUMN extra{number} text"), progressions=["p"]
                )
            elif number % 3 == 1:
                await store.write("ddl", _statement(f"CREATE INDEX extra_{number} ON progressions (created_at)"))
            else:
                await store.write("ddl", _statement("ALTER TABLE progressions ALTER COLUMN created_at TYPE numeric"))
                await store.write("ddl", _statement("ALTER TABLE progressions ALTER COLUMN created_at TYPE float8"))
    finally:
        await store.close()


def _statement(sql: str) -> Any:
    return lambda conn: conn.exec_driver_sql(sql) and None
