"""Checkpoints and the signal of the write-ahead log (design decision 23; faults 35, 37, 49)."""

from __future__ import annotations

import itertools
import sqlite3
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import Connection

from lionstate.engine import EngineSettings, SilentObserver
from lionstate.engine import wal as wal_module
from lionstate.engine.wal import Checkpoint, WalKeeper
from lionstate.errors import InvalidInputError
from lionstate.store import Store
from tests.support.store_calls import append, execute, put_progression, read_ids

_PADDING = "x" * 20_000


class _Recorder(SilentObserver):
    def __init__(self) -> None:
        self.checkpoints: list[tuple[str, str]] = []
        self.frames: list[tuple[int, int]] = []
        self.foreign = 0
        self.written = 0

    def checkpoint(self, mode: str, outcome: str, seconds: float) -> None:
        self.checkpoints.append((mode, outcome))

    def wal(self, log_frames: int, checkpointed_frames: int, wal_bytes: int) -> None:
        self.frames.append((log_frames, checkpointed_frames))

    def wal_written(self, count: int) -> None:
        self.written += count

    def foreign_commit(self) -> None:
        self.foreign += 1


@pytest.fixture
def recorder() -> _Recorder:
    """Counts what the writer reports."""
    return _Recorder()


@pytest.fixture(params=["stdlib", "pysqlite3"])
async def store(tmp_path: Path, recorder: _Recorder, request: pytest.FixtureRequest) -> AsyncIterator[Store]:
    """A store on each SQLite library: without and with ``wal_checkpoint(NOOP)``."""
    if request.param == "pysqlite3":
        pytest.importorskip("pysqlite3")
    settings = EngineSettings(sqlite_module=request.param)
    found = await Store.open(tmp_path / "state.db", settings, observer=recorder)
    await put_progression(found, "p")
    yield found
    await found.close()


@asynccontextmanager
async def _pinned(store: Store) -> AsyncIterator[None]:
    """A reader that keeps its snapshot."""
    async with store.snapshot() as snapshot:
        await snapshot.fetch_one("SELECT count(*) FROM progressions")
        yield


async def _fill(store: Store, commits: int) -> None:
    for number in range(commits):
        await execute(store, "UPDATE progressions SET collection = :c WHERE id = 'p'", c=f'["{number}{_PADDING}"]')


async def test_a_log_that_a_reader_let_grow_is_given_back(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fault 35: when the reader is gone the disk has its room again, while the store goes on."""
    monkeypatch.setattr(wal_module, "_MOST_FRAMES", 50)
    writer = store.sqlite_writer
    assert writer is not None
    async with _pinned(store):
        await _fill(store, 40)
        await writer.tick()
        grown = writer.wal.wal_bytes()
        assert grown > 100 * 4096
    await append(store, "p", "a")
    await writer.tick()
    assert 0 == writer.wal.wal_bytes()
    await append(store, "p", "b")
    await writer.tick()
    assert 0 < writer.wal.wal_bytes() < grown / 4


async def test_a_pinned_reader_does_not_stop_writers(store: Store, recorder: _Recorder) -> None:
    """Faults 35, 37: no checkpoint of ours waits for a reader, whatever its mode and at shutdown too."""
    writer = store.sqlite_writer
    assert writer is not None
    async with _pinned(store):
        await _fill(store, 20)
        for mode in ("passive", "FULL", "restart", "TRUNCATE"):
            started = time.monotonic()
            found = await writer.checkpoint(mode)
            assert time.monotonic() - started < 1.0
            assert found.pending > 0
            assert mode.upper() == "PASSIVE" or found.busy == 1
            started = time.monotonic()
            await append(store, "p", f"after {mode}")
            assert time.monotonic() - started < 1.0
        assert {"PASSIVE"} == {mode for mode, _ in recorder.checkpoints}
        pending = writer.wal.last.pending
        assert pending > 0
    # The pin is gone: the timer catches up without another commit.
    await writer.tick()
    assert 0 == writer.wal.last.pending
    assert (await writer.checkpoint("TRUNCATE")).outcome == "complete"
    assert 0 == writer.wal.wal_bytes()


async def test_a_reader_of_the_newest_snapshot_is_not_waited_for(store: Store) -> None:
    """Fault 37: every frame has moved, so a restart of the log would wait for the reader, if it waited for anybody."""
    writer = store.sqlite_writer
    assert writer is not None
    await writer.call(lambda _: writer._driver.execute("PRAGMA busy_timeout = 3000"))
    await _fill(store, 5)
    async with _pinned(store):
        for mode in ("RESTART", "TRUNCATE"):
            started = time.monotonic()
            found = await writer.checkpoint(mode)
            assert time.monotonic() - started < 2.0
            assert (1, 0) == (found.busy, found.pending)


async def test_a_pinned_log_is_not_checkpointed_at_every_commit(
    store: Store, recorder: _Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fault 49: a checkpoint that moves nothing is tried again after as many frames as the first, not in a loop."""
    monkeypatch.setattr(wal_module, "_OWN_FRAMES", 60)
    monkeypatch.setattr(wal_module, "_MOST_FRAMES", 60)
    async with _pinned(store):
        recorder.checkpoints.clear()
        await _fill(store, 100)
        tried = len(recorder.checkpoints)
    # 100 commits of 6 to 8 frames each; the estimate of an engine without NOOP counts 4 a commit.
    assert 3 <= tried <= 15


async def test_shutdown_is_not_delayed_by_a_reader_of_another_process(tmp_path: Path) -> None:
    """Fault 37: closing tries PASSIVE, sees that frames are left, and leaves them to the next open."""
    path = tmp_path / "state.db"
    store = await Store.open(path)
    await put_progression(store, "p")
    writer = store.sqlite_writer
    assert writer is not None
    reader = sqlite3.connect(f"file:{path}?mode=ro", uri=True, isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM progressions").fetchone()
    await _fill(store, 10)
    started = time.monotonic()
    await store.close()
    assert time.monotonic() - started < 2.0
    reader.close()
    store = await Store.open(path)
    assert 1 == len(await read_ids(store, "p"))
    await store.close()


async def test_commits_of_others_are_checkpointed_by_the_timer(store: Store, recorder: _Recorder) -> None:
    """``data_version`` shows commits that are not ours; ours do not count."""
    writer = store.sqlite_writer
    assert writer is not None
    await _fill(store, 3)
    await writer.tick()
    assert 0 == recorder.foreign
    if writer.module is sqlite3:
        # Another library is another process's matter (design §2.4).
        with closing(sqlite3.connect(store.url.path or "", isolation_level=None)) as other:
            other.execute("INSERT INTO progressions (id, created_at, collection) VALUES ('q', 1, '[]')")
            recorder.checkpoints.clear()
            await writer.tick()
        assert 1 == recorder.foreign
        assert [("PASSIVE", "complete")] == recorder.checkpoints


async def test_frames_that_a_resting_writer_left_behind(store: Store, recorder: _Recorder) -> None:
    """Fault 35: nobody commits any more, and below the 1,000th frame; a throttle that waits for them is let go."""
    writer = store.sqlite_writer
    assert writer is not None
    await writer.checkpoint("PASSIVE")
    await _fill(store, 130)
    await writer.tick()
    recorder.checkpoints.clear()
    await writer.tick()
    await writer.tick()
    assert [("PASSIVE", "complete")] == recorder.checkpoints
    assert 0 == writer.wal.last.pending


async def test_the_signal_counts_frames(store: Store, recorder: _Recorder) -> None:
    """Un-checkpointed frames, not file size; the bytes written are reported once."""
    writer = store.sqlite_writer
    assert writer is not None
    await writer.checkpoint("TRUNCATE")
    recorder.frames.clear()
    before = recorder.written
    await _fill(store, 5)
    found = await writer.checkpoint("PASSIVE")
    assert found.log >= 5
    assert (found.log, found.checkpointed) == recorder.frames[-1]
    assert found.log * (4096 + 24) == recorder.written - before


async def test_an_unknown_mode_is_refused(store: Store) -> None:
    """Reference §2.0: the four modes in any case."""
    writer = store.sqlite_writer
    assert writer is not None
    with pytest.raises(InvalidInputError):
        await writer.checkpoint("NOOP; DROP TABLE progressions")


@pytest.mark.parametrize(
    ("row", "pending", "outcome"),
    [
        ((0, 10, 10), 0, "complete"),
        ((1, 1045, 1045), 0, "complete"),
        ((0, 1045, 10), 1035, "partial"),
        ((1, 1045, 10), 1035, "busy"),
        ((0, 0, 0), 0, "complete"),
        ((1, -1, -1), 0, "busy"),
        ((0, -1, -1), 0, "complete"),
    ],
)
def test_a_checkpoint_is_read_by_its_frames(row: tuple[int, int, int], pending: int, outcome: str) -> None:
    """Fault 49: "busy 1, 1045 of 1045" is complete."""
    found = Checkpoint(*row)
    assert (pending, outcome) == (found.pending, found.outcome)


class _Driver:
    """A connection whose checkpoints return given rows."""

    total_changes = 0

    def __init__(self, rows: list[tuple[int, int, int]]) -> None:
        self.rows = rows
        self.ran: list[str] = []

    def execute(self, sql: str) -> Any:
        self.ran.append(sql)
        row: tuple[Any, ...] = (4096,)
        if "wal_checkpoint" in sql:
            row = self.rows.pop(0) if self.rows else (0, 0, 0)
        return type("Cursor", (), {"fetchone": lambda _self: row})()


def test_another_connections_checkpoint_does_not_erase_the_signal(recorder: _Recorder) -> None:
    """(1, -1, -1) says that somebody else checkpoints, not that the log is empty."""
    driver = _Driver([(0, 500, 100), (1, -1, -1)])
    keeper = WalKeeper(driver, (3, 40, 1), Path("state.db"), recorder)
    keeper.checkpoint("PASSIVE")
    keeper.checkpoint("PASSIVE")
    assert Checkpoint(0, 500, 100) == keeper.last
    assert (500, 100) == recorder.frames[-1]


def test_full_runs_only_when_passive_moved_everything(recorder: _Recorder) -> None:
    """And with a busy timeout of 0, put back afterwards."""
    driver = _Driver([(0, 5, 4), (0, 5, 5), (0, 0, 0)])
    keeper = WalKeeper(driver, (3, 40, 1), Path("state.db"), recorder)
    driver.ran.clear()
    assert Checkpoint(1, 5, 4) == keeper.checkpoint("TRUNCATE")
    assert ["PRAGMA wal_checkpoint(PASSIVE)"] == driver.ran
    driver.ran.clear()
    assert Checkpoint(0, 0, 0) == keeper.checkpoint("TRUNCATE")
    assert [
        "PRAGMA wal_checkpoint(PASSIVE)",
        "PRAGMA busy_timeout",
        "PRAGMA busy_timeout = 0",
        "PRAGMA wal_checkpoint(TRUNCATE)",
        "PRAGMA busy_timeout = 4096",
    ] == driver.ran


def test_a_change_counts_for_the_frames_that_changes_took(recorder: _Recorder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 500 changes that took 100 frames, 5,000 make the next checkpoint; each commit counts two frames at least."""
    monkeypatch.setattr(wal_module, "_MOST_FRAMES", 1_000)
    driver = _Driver([(0, 100, 100), (0, 1_000, 1_000)])
    keeper = WalKeeper(driver, (3, 40, 1), Path("state.db"), recorder)
    driver.total_changes = 500
    keeper.after_commit()
    assert 1 == sum("PASSIVE" in sql for sql in driver.ran)
    for changes in (1_000, 4_500):
        driver.total_changes = 500 + changes
        keeper.after_commit()
    assert 1 == sum("PASSIVE" in sql for sql in driver.ran)
    driver.total_changes = 500 + 5_000
    keeper.after_commit()
    assert 2 == sum("PASSIVE" in sql for sql in driver.ran)


@pytest.mark.parametrize(
    ("frames", "rest", "runs"), [(1_000, 0.9, 1), (1_000, 1.1, 2), (15_999, 0.9, 1), (16_000, 0.9, 2)]
)
def test_checkpoints_take_little_of_the_time(
    recorder: _Recorder, monkeypatch: pytest.MonkeyPatch, frames: int, rest: float, runs: int
) -> None:
    """One of 2 ms is followed by the next after a second, or when the log has 16,000 frames: writers wait for it."""
    now = [100.0]

    class _Timed(_Driver):
        def execute(self, sql: str) -> Any:
            now[0] += 0.002 if "PASSIVE" in sql else 0.0
            return super().execute(sql)

    monkeypatch.setattr(wal_module, "time", SimpleNamespace(perf_counter=lambda: now[0]))
    driver = _Timed([(0, 2_000, 2_000), (0, 2_000 + frames, 2_000 + frames)])
    keeper = WalKeeper(driver, (3, 40, 1), Path("state.db"), recorder)
    driver.total_changes = 1_000
    keeper.after_commit()
    assert 1 == sum("PASSIVE" in sql for sql in driver.ran)
    now[0] += rest
    driver.total_changes += frames // 2
    keeper.after_commit()
    assert runs == sum("PASSIVE" in sql for sql in driver.ran)


def test_a_log_that_begins_anew_is_counted_from_its_beginning(
    recorder: _Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen: after a checkpoint of all frames the next came at twice as many, where migration throttles itself."""
    monkeypatch.setattr(WalKeeper, "_is_rested", lambda self: False)
    log = [0]

    class _Growing(_Driver):
        def execute(self, sql: str) -> Any:
            self.ran.append(sql)
            if "PASSIVE" in sql:
                found, log[0] = (0, log[0], log[0]), 0
                return SimpleNamespace(fetchone=lambda: found)
            if "NOOP" in sql:
                return SimpleNamespace(fetchone=lambda: (0, log[0], 0))
            return SimpleNamespace(fetchone=lambda: (4096,))

    driver = _Growing([])
    keeper = WalKeeper(driver, (3, 53, 0), Path("state.db"), recorder)
    tries = []
    for commit in range(1_600):
        log[0] += 100
        driver.total_changes += 100
        keeper.after_commit()
        if driver.ran[-1].endswith("(PASSIVE)"):
            tries.append(commit)
    assert [160] * 9 == [after - before for before, after in itertools.pairwise(tries)]


async def test_only_the_writer_checkpoints(store: Store) -> None:
    """Fault 44: two connections of ours never checkpoint at once; automatic checkpoints are off on each."""
    found = [await store.reader.run(_autocheckpoint) for _ in range(4)]
    writer = store.sqlite_writer
    assert writer is not None
    found.append(await writer.call(lambda wal: wal._pragma("wal_autocheckpoint")))
    async with store.snapshot() as snapshot:
        rows = await snapshot.fetch_all("PRAGMA wal_autocheckpoint")
    found += rows[0].values()
    assert {0} == set(found)


def _autocheckpoint(conn: Connection) -> int:
    found: int = conn.exec_driver_sql("PRAGMA wal_autocheckpoint").scalar_one()
    return found
