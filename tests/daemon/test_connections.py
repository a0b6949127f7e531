"""The metric of the connections says what there is: as the operating system and the server count them (design §6)."""

from __future__ import annotations

import asyncio
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from lionstate.engine import EngineSettings
from lionstate.engine.sqlite import SqliteWriter
from lionstate.store import Store
from lionstated.metrics import Metrics
from tests.support.backends import database_of
from tests.support.eventually import eventually
from tests.support.postgres import PostgresServer

pytestmark = pytest.mark.anyio

_OPEN = "SELECT count(*) AS n FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"


async def open_ones(store: Store) -> int:
    """Connections that are open, seen from outside the engine; the asker's own is counted once on PostgreSQL."""
    path = store.url.path
    if path is None:
        async with store.reader.snapshot() as look:
            row = await look.fetch_one(_OPEN)
        assert row is not None
        return int(row["n"]) + 1
    found = 0
    for number in os.listdir("/proc/self/fd"):
        try:
            found += os.readlink(f"/proc/self/fd/{number}") == str(path)
        except OSError:
            continue
    return found


def shown(metrics: Metrics) -> tuple[int, int]:
    """Idle and in use, as a scrape sees them."""
    found: dict[str, float] = {}
    for line in metrics.exposition()[0].decode().splitlines():
        if line.startswith("lionstate_pool_connections{"):
            found[line.split('"')[1]] = float(line.split()[-1])
    assert {"idle", "in_use"} == set(found)
    return int(found["idle"]), int(found["in_use"])


async def test_it_follows_the_store(backend_url: str) -> None:
    metrics = Metrics()
    assert (0, 0) == shown(metrics)
    store = await Store.open(backend_url, EngineSettings(readers=3, lanes=2), observer=metrics)
    metrics.watch_connections(store.connections)
    try:
        await open_ones(store)
        idle, in_use = shown(metrics)
        assert (await open_ones(store), 0) == (idle, in_use)
        assert idle >= 2
        async with store.transaction() as turn, store.reader.snapshot() as first, store.reader.snapshot() as second:
            for look in (turn, first, second):
                await look.fetch_one("SELECT 1 AS n")
            assert 3 == shown(metrics)[1]
            open_now = await open_ones(store)
            assert open_now == sum(shown(metrics))
        assert (open_now, 0) == shown(metrics)
    finally:
        await store.close()
    assert (0, 0) == shown(metrics)


_names = iter(range(1_000))


@pytest.fixture(params=["sqlite", "postgresql"])
def backend_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A store of its own on each database."""
    if request.param == "sqlite":
        return str(tmp_path / "s.db")
    server: PostgresServer = request.getfixturevalue("postgres_18")
    return database_of(server, f"connections_{os.getpid()}_{next(_names)}")


async def test_a_busy_writer_and_busy_readers_are_in_use(tmp_path: Path) -> None:
    """On SQLite a script runs on a thread; while it does, its connection is in use."""
    metrics, gate, entered = Metrics(), threading.Event(), threading.Semaphore(0)

    def hold(conn: Any) -> None:
        entered.release()
        gate.wait(20)

    store = await Store.open(tmp_path / "s.db")
    metrics.watch_connections(store.connections)
    writing = asyncio.ensure_future(store.write("hold", hold))
    reading = asyncio.ensure_future(store.read(hold))
    for _ in range(2):
        await asyncio.to_thread(entered.acquire)
    assert 2 == shown(metrics)[1]
    gate.set()
    await asyncio.gather(writing, reading)
    await store.close()


async def test_a_writer_that_does_not_take_its_batch_is_not_idle(tmp_path: Path) -> None:
    """fault 64: a thread that hangs between two batches, in a checkpoint for one, gives no sign of life."""
    gate, entered = threading.Event(), threading.Event()

    def hang(wal: object) -> None:
        entered.set()
        gate.wait(20)

    store = await Store.open(tmp_path / "s.db")
    writer = store.writer
    assert isinstance(writer, SqliteWriter)
    hanging = asyncio.ensure_future(writer.call(hang))
    await asyncio.to_thread(entered.wait)
    assert 0 == writer.seconds_since_sign_of_life(), "nobody asked it for anything"
    writing = asyncio.ensure_future(store.write("nothing", lambda conn: None))
    await eventually(lambda: writer.seconds_since_sign_of_life() > 0)
    gate.set()
    await asyncio.gather(hanging, writing)
    await eventually(lambda: 0 == writer.seconds_since_sign_of_life())
    await store.close()
