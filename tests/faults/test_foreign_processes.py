"""Other processes on the same SQLite file: its lock, its set-up, its fairness (design §2.1, §2.2)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sqlite3
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest
from sqlalchemy import Connection, text

from lionstate.engine import EngineSettings, lock_debt
from lionstate.errors import BackendBusyError, ClosedError, DeadlineExceededError
from lionstate.store import Store
from tests.support.children import child, output_of
from tests.support.openers import open_together
from tests.support.postgres import PostgresServer
from tests.support.store_calls import append, put_progression, read_ids

_HOLDER = """
import sqlite3, sys
conn = sqlite3.connect(sys.argv[1], isolation_level=None)
conn.execute("BEGIN IMMEDIATE")
print("held", flush=True)
sys.stdin.readline()
conn.execute("ROLLBACK")
print("released", flush=True)
"""

# Tries to write again and again, as another application does, until one fails or takes long; prints how long each
# took, or its error.
_FOREIGN_WRITER = """
import json, sqlite3, sys, time
path, tries, busy_ms, enough = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
conn = sqlite3.connect(path, isolation_level=None)
conn.execute(f"PRAGMA busy_timeout = {busy_ms}")
conn.execute("PRAGMA synchronous = NORMAL")
found = []
for _ in range(tries):
    time.sleep(0.05)
    started = time.monotonic()
    try:
        conn.execute("BEGIN IMMEDIATE")
        conn.execute("UPDATE progressions SET created_at = created_at + 1 WHERE id = 'foreign'")
        conn.execute("COMMIT")
        found.append(time.monotonic() - started)
    except sqlite3.OperationalError as error:
        found.append(str(error))
    if isinstance(found[-1], str) or found[-1] > enough:
        break
print(json.dumps(found))
"""

# Two processes append to one progression: each reads before it writes.
_APPENDER = """
import asyncio, sys
from lionstate import StateDB

async def main():
    async with StateDB(sys.argv[1]) as state:
        sys.stdin.readline()
        for number in range(int(sys.argv[3])):
            await state.append_to_progression("p", f"{sys.argv[2]}{number:04d}")

asyncio.run(main())
"""


@contextmanager
def _lock_held(path: Path) -> Iterator[subprocess.Popen[str]]:
    with child(_HOLDER, path) as process:
        assert process.stdout is not None
        assert "held\n" == process.stdout.readline()
        yield process


@asynccontextmanager
async def _opened(path: Path, settings: EngineSettings) -> AsyncIterator[Store]:
    store = await Store.open(path, settings)
    try:
        await put_progression(store, "p")
        await put_progression(store, "foreign")
        yield store
    finally:
        await store.close()


def _work(conn: Connection) -> None:
    """A statement and some time under the lock, as a loaded machine has it."""
    conn.execute(text("UPDATE progressions SET created_at = created_at + 1 WHERE id = 'p'"))
    time.sleep(0.003)


async def _foreign_tries(
    store: Store, path: Path, tries: int, busy_ms: int, enough: float, *, callers: int = 64, rest: float = 0.0
) -> list[float | str]:
    """Let callers keep the writer busy while another process tries; its waits and errors."""
    stop = asyncio.Event()

    async def caller() -> None:
        while not stop.is_set():
            await store.write("work", _work, progressions=["p"])
            await asyncio.sleep(rest)

    working = [asyncio.create_task(caller()) for _ in range(callers)]
    try:
        printed = await asyncio.to_thread(output_of, _FOREIGN_WRITER, path, tries, busy_ms, enough)
    finally:
        stop.set()
        await asyncio.gather(*working)
    found: list[float | str] = json.loads(printed)
    return found


@pytest.mark.slow
@pytest.mark.timeout(120)
async def test_a_foreign_process_gets_its_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the pause no try of the foreign process fails; without it tries fail or wait far longer."""
    path = tmp_path / "state.db"
    async with _opened(path, EngineSettings()) as store:
        waits = await _foreign_tries(store, path, 30, 5_000, 5.0)
        assert [] == [wait for wait in waits if isinstance(wait, str)]
        longest = max(wait for wait in waits if isinstance(wait, float))
        with monkeypatch.context() as patch:
            patch.setattr(lock_debt, "LOCK_DEBT_LIMIT_SECONDS", 1e9)
            unprotected = await _foreign_tries(store, path, 30, 3_000, 2 * longest)
    last = unprotected[-1]
    print(f"with the pause: 30 tries, none over {longest:.2f} s; without: try {len(unprotected)} ended with {last}")
    assert isinstance(last, str) or last > 2 * longest


async def test_a_lock_that_is_free_half_of_the_time_needs_no_pause(tmp_path: Path) -> None:
    """One caller that rests as long as it works delays nobody: every try of the other process succeeds soon."""
    path, pauses = tmp_path / "state.db", list[float]()
    async with _opened(path, EngineSettings()) as store:
        writer = store.sqlite_writer
        assert writer is not None
        writer._observer.pause = pauses.append  # type: ignore[method-assign]
        waits = await _foreign_tries(store, path, 20, 5_000, 5.0, callers=1, rest=0.006)
    assert ([], []) == (pauses, [wait for wait in waits if isinstance(wait, str) or wait > 2.5])


async def test_an_exclusive_store_does_not_pause(tmp_path: Path) -> None:
    """``database.exclusive`` says that nobody else writes."""
    pauses: list[float] = []
    async with _opened(tmp_path / "state.db", EngineSettings(exclusive=True)) as store:
        writer = store.sqlite_writer
        assert writer is not None
        writer._debt._seconds = 10.0
        writer._observer.pause = pauses.append  # type: ignore[method-assign]
        await append(store, "p", "a")
    assert [] == pauses


async def test_a_busy_store_refuses_after_the_whole_wait(tmp_path: Path) -> None:
    """``BackendBusyError``, nothing written; reads go on meanwhile, and the next write succeeds by itself."""
    path = tmp_path / "state.db"
    async with _opened(path, EngineSettings(busy_timeout_ms=600)) as store:
        with _lock_held(path):
            started = time.monotonic()
            writing = asyncio.ensure_future(append(store, "p", "a"))
            assert [] == await read_ids(store, "p")
            with pytest.raises(BackendBusyError):
                await writing
            assert 0.6 <= time.monotonic() - started < 1.5
        await append(store, "p", "b")
        assert ["b"] == await read_ids(store, "p")


async def test_a_deadline_is_seen_while_the_writer_waits_for_the_lock(tmp_path: Path) -> None:
    """The ticket is answered at its deadline, not at the end of the wait, and the writer stops waiting for it."""
    path = tmp_path / "state.db"
    async with _opened(path, EngineSettings(busy_timeout_ms=20_000)) as store:
        with _lock_held(path) as holder:
            started = time.monotonic()
            with pytest.raises(DeadlineExceededError):
                await append(store, "p", "late", deadline=started + 0.3)
            assert time.monotonic() - started < 1.0
            assert holder.stdin is not None
            holder.stdin.write("\n")
            holder.stdin.flush()
            await append(store, "p", "b")
        assert ["b"] == await read_ids(store, "p")


async def test_nobody_waits_for_a_lock_for_callers_that_are_gone(tmp_path: Path) -> None:
    """A cancelled caller drops its ticket; the writer's wait ends within a slice."""
    path = tmp_path / "state.db"
    async with _opened(path, EngineSettings(busy_timeout_ms=20_000)) as store:
        with _lock_held(path):
            writing = asyncio.ensure_future(append(store, "p", "gone"))
            await asyncio.sleep(0.05)
            writing.cancel()
            writer = store.sqlite_writer
            assert writer is not None
            started = time.monotonic()
            await writer.call(lambda wal: wal.last)
            assert time.monotonic() - started < 1.0
        await append(store, "p", "b")
        assert ["b"] == await read_ids(store, "p")


async def test_close_does_not_wait_for_a_foreign_lock(tmp_path: Path) -> None:
    """What waits is refused truthfully, and the process gets away in time (design §2.1, §7)."""
    path = tmp_path / "state.db"
    store = await Store.open(path, EngineSettings(busy_timeout_ms=30_000))
    await put_progression(store, "p")
    with _lock_held(path):
        writing = asyncio.ensure_future(append(store, "p", "a"))
        queued = asyncio.ensure_future(append(store, "p", "b"))
        await asyncio.sleep(0.05)
        started = time.monotonic()
        await store.close(drain_seconds=0.2)
        assert time.monotonic() - started < 2.0
    for refused in (writing, queued):
        with pytest.raises((ClosedError, BackendBusyError)):
            await refused
    with contextlib.closing(sqlite3.connect(path)) as conn:
        assert [("[]",)] == conn.execute("SELECT collection FROM progressions").fetchall()


def test_eight_processes_open_a_new_file_together(tmp_path: Path) -> None:
    """Fault 41: WAL set-up answers BUSY at once whatever the busy timeout; nobody fails, and one made the schema."""
    paths = [tmp_path / f"{attempt}.db" for attempt in range(5)]
    open_together(*paths)
    for path in paths:
        with contextlib.closing(sqlite3.connect(path)) as conn:
            assert [(8,)] == conn.execute("SELECT count(*) FROM progressions").fetchall()
            assert [(1,)] == conn.execute("SELECT count(*) FROM schema_meta WHERE key = 'lineage'").fetchall()


@pytest.mark.postgresql
def test_eight_processes_open_a_new_database_together(postgres_18: PostgresServer) -> None:
    """Fault 41 on PostgreSQL: a lane gives way after half a second, an opening process does not."""
    open_together(postgres_18.create_database("together1"), postgres_18.create_database("together2"))


def test_a_commit_between_read_and_write_is_never_busy_snapshot(tmp_path: Path) -> None:
    """Fault 43: every writing transaction takes the lock at its start, so that its reads are of the present."""
    path = tmp_path / "state.db"
    asyncio.run(_made(path))
    with contextlib.ExitStack() as stack:
        processes = [stack.enter_context(child(_APPENDER, path, name, 150)) for name in "ab"]
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
        errors = [process.communicate(timeout=50)[1] for process in processes]
        assert [0, 0] == [process.returncode for process in processes], errors
    with contextlib.closing(sqlite3.connect(path)) as conn:
        (value,) = conn.execute("SELECT collection FROM progressions").fetchone()
    ids = json.loads(value)
    assert (300, 300) == (len(ids), len(set(ids)))
    for name in "ab":
        own = [found for found in ids if found[0] == name]
        assert sorted(own) == own


async def _made(path: Path) -> None:
    store = await Store.open(path)
    await put_progression(store, "p")
    await store.close()


@pytest.mark.parametrize("how", ["raise", "after_snapshot", "failed_open"])
def test_a_process_that_never_closes_ends(tmp_path: Path, how: str) -> None:
    """Fault 40: no driver thread keeps a process alive that failed between open and close."""
    code = """
    import asyncio, sys
    from lionstate import StateDB

    async def main(path, how):
        state = StateDB(path)
        if how == "failed_open":
            with open(path, "wb") as file:
                file.write(b"no database" * 1000)
        await state.open()
        if how == "after_snapshot":
            snapshot = state.read_snapshot()
            print(await (await snapshot.__aenter__()).fetch_one("SELECT 1 AS one"))
        raise SystemExit(3)

    try:
        asyncio.run(main(*sys.argv[1:]))
    except Exception as error:
        print(type(error).__name__)
        raise SystemExit(3)
    """
    started = time.monotonic()
    output_of(code, tmp_path / "state.db", how, returncode=3, timeout=20)
    assert time.monotonic() - started < 10
