"""Other processes press on a SQLite store while it migrates: what is named, what goes on, what recovers by itself."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from lionstate.engine import EngineSettings
from lionstate.migration import ProgressionMigrationService, SignalStatus, StopReason
from lionstate.store import Store
from tests.support.children import child
from tests.support.eventually import eventually
from tests.support.migration import make_ids
from tests.support.store_calls import append, execute, put_progression, read_ids

IDS = make_ids(1_000)

_READER = """
import sqlite3, sys
conn = sqlite3.connect(sys.argv[1], isolation_level=None)
conn.execute("BEGIN")
conn.execute("SELECT count(*) FROM progressions").fetchall()
print("pinned", flush=True)
sys.stdin.readline()
conn.execute("ROLLBACK")
print("released", flush=True)
"""


@contextmanager
def pinned(path: Path) -> Iterator[Any]:
    """Another process keeps a snapshot of the store until a line is written to it."""
    with child(_READER, path) as reader:
        assert reader.stdout is not None
        assert "pinned\n" == reader.stdout.readline()
        yield reader


def release(reader: Any) -> None:
    reader.stdin.write("\n")
    reader.stdin.flush()
    assert "released\n" == reader.stdout.readline()


async def signal(service: ProgressionMigrationService, name: str) -> SignalStatus:
    (found,) = [one for one in (await service.status()).throttle.signals if one.signal == name]
    return found


async def test_a_foreign_reader_pins_the_log(sqlite_store: Store) -> None:
    """fault 35: frames and age are named, migration waits, appends go on, and it recovers when the reader ends."""
    store = sqlite_store
    await put_progression(store, "p", json.dumps(IDS))
    await put_progression(store, "other")
    service = ProgressionMigrationService(store)
    await service.set_knob("wal_frames_limit", 1_000)
    await service.step(progression_id="p", max_items=10)
    writer = store.sqlite_writer
    assert writer is not None and writer._path is not None
    with pinned(writer._path) as reader:
        for number in range(30):
            padding = f'["{chr(97 + number % 26) * 200_000}"]'
            await execute(store, "UPDATE progressions SET collection = :c WHERE id = 'other'", c=padding)
        # Where the engine cannot look without one, the signal is what the last checkpoint said (decision 23).
        await writer.checkpoint("PASSIVE")

        async def noticed() -> bool:
            return (await service.status()).throttle.throttled

        await eventually(noticed)
        step = await service.step(progression_id="p", max_items=1_000_000, max_seconds=60)
        assert (StopReason.THROTTLED, 0) == (step.stop_reason, step.items)
        frames = await signal(service, "wal_frames")
        assert (True, "over_limit", 1_000) == (frames.tripped, frames.reason, frames.limit)
        assert frames.value == writer.wal.last.pending > 1_000
        assert frames.age_seconds is not None
        age = (await signal(service, "wal_pinned")).value
        assert age is not None and age > 0
        await append(store, "p", "meanwhile")
        release(reader)
    # The writer's own timer moves the frames; nobody commits.
    await eventually(lambda: writer.wal.last.pending == 0)

    async def done() -> bool:
        return (await service.step(progression_id="p", max_items=1_000_000)).stop_reason is StopReason.DONE

    await eventually(done)
    assert [*IDS, "meanwhile"] == await read_ids(store, "p")
    assert not (await signal(service, "wal_pinned")).tripped


async def test_a_lock_held_by_another_process(tmp_path: Path) -> None:
    """faults 1, 5: the cursor stays, the wait is named and no failure; a pause outlives it; then it goes on."""
    path = tmp_path / "state.db"
    store = await Store.open(path, EngineSettings(busy_timeout_ms=300))
    try:
        await put_progression(store, "p", json.dumps(IDS))
        service = ProgressionMigrationService(store)
        assert 100 == (await service.step(progression_id="p", max_items=100)).items
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            step = await service.step(progression_id="p")
            assert (StopReason.BUSY, 0) == (step.stop_reason, step.items)
            step = await service.step(progression_id="p")
            assert (StopReason.THROTTLED, 0) == (step.stop_reason, step.items)
            wait = await signal(service, "lock_wait")
            assert (True, 0.25) == (wait.tripped, wait.limit)
            assert wait.value is not None and wait.value >= 0.3
            other.execute("ROLLBACK")
        await service.pause(reason="while it lasts")
        assert StopReason.PAUSED == (await service.step(progression_id="p")).stop_reason
        explained = await service.explain("p")
        assert ("dual", 100, None) == (explained.phase, explained.copied, explained.blocked_code)
        await service.resume()

        async def done() -> bool:
            return (await service.step(progression_id="p", max_items=1_000_000)).stop_reason is StopReason.DONE

        await eventually(done)
        assert IDS == await read_ids(store, "p")
    finally:
        await store.close()


async def test_a_disk_that_fills_stops_migration_before_it_is_full(
    sqlite_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """fault 46: below the floor nothing is copied and appends go on; freed again, it resumes by itself."""
    await put_progression(sqlite_store, "p", json.dumps(IDS))
    service = ProgressionMigrationService(sqlite_store)
    free = [100 * 2**20]
    monkeypatch.setattr("lionstate.engine.load.Load.free_bytes", lambda load: float(free[0]))
    assert StopReason.THROTTLED == (await service.step()).stop_reason
    disk = await signal(service, "free_disk")
    assert (True, 100 * 2**20, 512 * 2**20, "under_floor") == (disk.tripped, disk.value, disk.limit, disk.reason)
    await append(sqlite_store, "p", "meanwhile")
    free[0] = 2**40

    async def done() -> bool:
        return (await service.step(max_items=1_000_000)).stop_reason is StopReason.DONE

    await eventually(done)
    assert [*IDS, "meanwhile"] == await read_ids(sqlite_store, "p")


async def test_a_disk_that_cannot_be_asked_stops_migration(
    sqlite_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Decision 24."""

    def refuse(path: object) -> None:
        raise PermissionError

    monkeypatch.setattr("lionstate.engine.load.os.statvfs", refuse)
    service = ProgressionMigrationService(sqlite_store)
    assert StopReason.THROTTLED == (await service.step()).stop_reason
    disk = await signal(service, "free_disk")
    assert (True, None, "signal_unavailable") == (disk.tripped, disk.value, disk.reason)
