"""The write-ahead log of an open store loses its name: that is noticed, and what was acknowledged is saved."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from lionstate.engine import EngineSettings, SilentObserver
from lionstate.engine.sqlite import SqliteWriter
from lionstate.errors import BackendUnavailableError
from lionstate.store import Store
from tests.support.children import output_of
from tests.support.store_calls import append, put_progression, read_ids

# What whoever opens the store next finds in its file alone; from another process, as the store is open here.
_FILE_ALONE = """
import pathlib, sqlite3, sys
copy = pathlib.Path(sys.argv[2])
copy.write_bytes(pathlib.Path(sys.argv[1]).read_bytes())
print(sqlite3.connect(copy).execute("SELECT collection FROM progressions").fetchone()[0])
"""
_FOREIGN_WRITER = """
import sqlite3, sys
with sqlite3.connect(sys.argv[1]) as conn:
    conn.execute("INSERT INTO progressions (id, created_at, collection) VALUES ('foreign', 1, '[]')")
conn.close()
"""


def _replace(log: Path) -> None:
    copy = log.with_name("copy")
    copy.write_bytes(log.read_bytes())
    copy.rename(log)


async def _tick(store: Store) -> None:
    assert isinstance(store.writer, SqliteWriter)
    await store.writer.tick()


@pytest.mark.parametrize("lose", [Path.unlink, _replace], ids=["removed", "replaced"])
async def test_a_log_that_is_not_at_its_place_is_emptied_at_once(tmp_path: Path, lose: Callable[[Path], None]) -> None:
    """Refused with what happened and what to do; the file alone has what was acknowledged; a start in order goes on."""
    path, log = tmp_path / "state.db", tmp_path / "state.db-wal"
    store = await Store.open(path)
    try:
        await put_progression(store, "p")
        await append(store, "p", "a")
        await read_ids(store, "p")
        lose(log)
        await append(store, "p", "b")
        await _tick(store)
        with pytest.raises(BackendUnavailableError, match=r"write-ahead log.*Stop this process in order") as caught:
            await append(store, "p", "lost")
        assert "store_moved" == caught.value.cause
        with pytest.raises(BackendUnavailableError, match="write-ahead log"):
            await store.require_in_place()
        assert ["a", "b"] == json.loads(output_of(_FILE_ALONE, path, tmp_path / "alone.db"))
        assert ["a", "b"] == await read_ids(store, "p")
    finally:
        await store.close()
    store = await Store.open(path)
    try:
        await append(store, "p", "c")
        assert ["a", "b", "c"] == await read_ids(store, "p")
    finally:
        await store.close()


async def test_a_log_that_is_put_back_is_written_on(tmp_path: Path) -> None:
    """As a folder is that was moved away and back."""
    log = tmp_path / "state.db-wal"
    store = await Store.open(tmp_path / "state.db")
    try:
        await put_progression(store, "p")
        log.rename(tmp_path / "aside")
        await _tick(store)
        with pytest.raises(BackendUnavailableError, match="write-ahead log"):
            await append(store, "p", "lost")
        (tmp_path / "aside").rename(log)
        await _tick(store)
        await append(store, "p", "a")
        assert ["a"] == await read_ids(store, "p")
    finally:
        await store.close()


async def test_another_process_beside_us_is_none_of_it(tmp_path: Path) -> None:
    """One that opens, writes and closes the store, and what we do to the log ourselves."""
    store = await Store.open(tmp_path / "state.db")
    try:
        assert isinstance(store.writer, SqliteWriter)
        await put_progression(store, "p")
        output_of(_FOREIGN_WRITER, tmp_path / "state.db")
        await store.writer.checkpoint("TRUNCATE")
        await store.writer.vacuum()
        await _tick(store)
        await append(store, "p", "a")
        assert ["a"] == await read_ids(store, "p")
    finally:
        await store.close()


async def test_a_log_that_is_made_anew_in_order_is_in_place(tmp_path: Path) -> None:
    """The last connection was closed after an error, which removes the log; the next one makes another."""
    path, log = tmp_path / "state.db", tmp_path / "state.db-wal"
    writer = SqliteWriter(path, sqlite3, EngineSettings(), SilentObserver())
    await writer.open()
    try:
        await writer.tick()
        before = log.stat().st_ino
        await writer.on_thread(writer._drop_connection)
        assert not log.exists()
        # The next file would get the number of the one that is gone.
        (tmp_path / "takes-the-number").touch()
        await writer.tick()
        assert before != log.stat().st_ino
        await writer.tick()
        assert writer.wal.is_in_place
    finally:
        await writer.close()
