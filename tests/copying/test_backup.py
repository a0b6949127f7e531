"""``backup_store`` and ``restore_store``: taken beside writers, proved, and put back only where nobody is."""

from __future__ import annotations

import asyncio
import filecmp
import json
import os
import shutil
import sqlite3
import sys
from pathlib import Path
from typing import Any

import pytest

from lionstate import StateDB
from lionstate.cli.commands import main
from lionstate.copying import backup_store, restore_store
from lionstate.copying.places import manifest_path
from lionstate.engine.ownership import StoreLock
from lionstate.errors import (
    BackendBusyError,
    BackendUnavailableError,
    DifferenceError,
    InvalidInputError,
    NotEmptyError,
    OwnershipConflictError,
    StateError,
    UnrecognizedStoreError,
)
from tests.support.backends import Backend
from tests.support.children import child
from tests.support.whole_store import contents, fill

pytestmark = pytest.mark.anyio

HOLD = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1])
connection.execute("SELECT count(*) FROM sessions").fetchone()
print("open", flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A closed store with a row in every table and progressions in every phase."""
    path = tmp_path / "state.db"

    async def make() -> None:
        async with StateDB(path) as state:
            await fill(Backend("sqlite", state, state), messages=1_000, longest=50)

    asyncio.run(make())
    return path


def _names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


async def _contents(path: Path) -> dict[str, list[str]]:
    async with StateDB(path) as state:
        return await contents(state)


def _without_generations(found: dict[str, list[str]]) -> dict[str, Any]:
    return {name: len(rows) if name == "progression_storage_state" else rows for name, rows in found.items()}


async def test_what_comes_back_is_what_was_taken(store: Path, tmp_path: Path) -> None:
    """fault 47: every row, no lease, new generations, and the manifest says which phases there were."""
    backup = tmp_path / "backups" / "state.backup"
    backup.parent.mkdir()
    before = await _contents(store)
    async with StateDB(store) as state:
        manifest = await state.backup(backup)
    assert {"json": 2, "dual": 1, "items": 4, "blocked": 4} == manifest.phases
    assert manifest == type(manifest).load(manifest_path(backup))
    assert {"state.backup", "state.backup.manifest.json"} == _names(backup.parent)
    assert 0o600 == backup.stat().st_mode & 0o777
    restored = tmp_path / "new" / "state.db"
    assert manifest == await restore_store(backup, restored)
    after = await _contents(restored)
    assert _without_generations(before) == _without_generations(after)
    async with StateDB(store) as old, StateDB(restored) as new:
        rows = "SELECT progression_id, generation FROM progression_storage_state ORDER BY 1"
        drawn = zip(await old.fetch_all(rows), await new.fetch_all(rows), strict=True)
        assert all(one["generation"] != two["generation"] >= 0 for one, two in drawn)
        assert [] == await new.fetch_all("SELECT * FROM migration_lease")
        assert 1 == len(await old.fetch_all("SELECT * FROM migration_lease"))
        assert (await old.get_progression("half items")) == (await new.get_progression("half items"))


async def test_a_backup_of_a_store_in_use_is_one_snapshot(store: Path, tmp_path: Path) -> None:
    """fault 47: beside the daemon's lock and a writer, message and append are both there or neither."""
    lock = StoreLock(store)
    lock.acquire()
    try:
        async with StateDB(store) as state:
            await state.create_progression("busy", [])
            stop = asyncio.Event()

            began = asyncio.Event()

            async def write() -> int:
                number = 0
                while not stop.is_set():
                    async with state.batch() as batch:
                        batch.insert_message({"id": f"b{number}", "created_at": 1.0, "role": "user", "content": {}})
                        batch.append_to_progression("busy", f"b{number}")
                    number += 1
                    began.set()
                return number

            writing = asyncio.ensure_future(write())
            try:
                await began.wait()
                await backup_store(store, tmp_path / "taken")
            finally:
                stop.set()
            assert 0 < await writing
    finally:
        lock.release()
    await restore_store(tmp_path / "taken", tmp_path / "restored.db")
    async with StateDB(tmp_path / "restored.db") as state:
        appended = await state.get_progression("busy")
        stored = await state.fetch_all("SELECT id FROM messages WHERE id GLOB 'b[0-9]*'")
        assert sorted(appended) == sorted(row["id"] for row in stored)
        assert appended


async def test_refusals_leave_everything_as_it_was(store: Path, tmp_path: Path) -> None:
    """A backup or store that is there, an owned or open store, a changed or missing backup or manifest, PostgreSQL."""
    backup = tmp_path / "taken"
    await backup_store(store, backup)
    before = await _contents(store)
    with pytest.raises(NotEmptyError):
        await backup_store(store, backup)
    with pytest.raises(NotEmptyError):
        await restore_store(backup, store)
    lock = StoreLock(store)
    lock.acquire()
    try:
        with pytest.raises(OwnershipConflictError):
            await restore_store(backup, store, force=True)
    finally:
        lock.release()
    with child(HOLD, store) as process:
        assert process.stdout is not None
        assert "open\n" == process.stdout.readline()
        with pytest.raises(BackendBusyError):
            await restore_store(backup, store, force=True)
    async with StateDB(":memory:") as memory:
        with pytest.raises(InvalidInputError):
            await memory.backup(tmp_path / "other")
    os.mkfifo(tmp_path / "pipe")
    for force in (False, True):
        with pytest.raises(InvalidInputError):
            await backup_store(store, tmp_path / "pipe", force=force)
        with pytest.raises(InvalidInputError):
            await restore_store(backup, tmp_path / "pipe", force=force)
        with pytest.raises(InvalidInputError):
            await backup_store(store, store, force=force)
    assert (tmp_path / "pipe").is_fifo()
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for name in ("link", "state.db-wal", "state.db-shm"):
        with pytest.raises(InvalidInputError):
            await backup_store(store, tmp_path / name, force=True)
    # Only a backup is replaced: what has no manifest may be somebody's store, and what is owned is one.
    shutil.copyfile(store, tmp_path / "live.db")
    with pytest.raises(NotEmptyError):
        await backup_store(store, tmp_path / "live.db", force=True)
    owned = StoreLock(tmp_path / "live.db")
    owned.acquire()
    try:
        with pytest.raises(OwnershipConflictError):
            await backup_store(store, tmp_path / "live.db", force=True)
    finally:
        owned.release()
    assert filecmp.cmp(store, tmp_path / "live.db", shallow=False)
    await backup_store(store, backup, force=True)
    await backup_store(store, tmp_path / "new" / "folder" / "taken")
    for url in ("postgresql://localhost/x", ":memory:"):
        with pytest.raises(InvalidInputError):
            await backup_store(url, tmp_path / "other")
        with pytest.raises(InvalidInputError):
            await restore_store(backup, url)
    with pytest.raises(BackendUnavailableError):
        await restore_store(tmp_path / "none", tmp_path / "new.db")
    (tmp_path / "empty").touch()
    manifest_path(tmp_path / "empty").write_text("[]")
    with pytest.raises(UnrecognizedStoreError):
        await restore_store(tmp_path / "empty", tmp_path / "new.db")
    assert before == await _contents(store)
    assert not {"new.db", "other"} & _names(tmp_path)
    assert not [name for name in _names(tmp_path) if "unfinished" in name]


@pytest.mark.parametrize("damage", ["changed", "reworded", "cut", "swapped"])
async def test_a_backup_that_is_not_what_was_taken(store: Path, tmp_path: Path, damage: str) -> None:
    """Proved before anything is replaced: exit 6, and the store that is there stays."""
    backup = tmp_path / "taken"
    await backup_store(store, backup)
    content = bytearray(backup.read_bytes())
    if damage == "changed":
        content[len(content) // 2] ^= 1
    elif damage == "reworded":
        # Nothing that SQLite would find.
        content = content.replace(b"lorem ipsum", b"lorem IPSUM", 1)
    elif damage == "cut":
        del content[-4096:]
    else:
        content = bytearray(b"SQLite format 3\0" * 100)
    backup.write_bytes(content)
    before = await _contents(store)
    with pytest.raises(DifferenceError) as caught:
        await restore_store(backup, store, force=True)
    assert 6 == caught.value.exit_code
    assert before == await _contents(store)


def _damage_store_with_log(store: Path) -> None:
    connection = sqlite3.connect(store)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("DELETE FROM branches")
    connection.commit()
    log = Path(f"{store}-wal").read_bytes()
    connection.close()
    store.write_bytes(b"damaged" * 1000)
    Path(f"{store}-wal").write_bytes(log)


async def test_what_is_read_is_never_written(store: Path, tmp_path: Path) -> None:
    """Whatever the names: a store or backup that is the target, or has the name of the unfinished file."""
    backup = tmp_path / "taken"
    await backup_store(store, backup)
    before = await _contents(store)
    hidden = tmp_path / ".copy.lionstate-unfinished"
    shutil.copyfile(store, hidden)
    with pytest.raises(InvalidInputError):
        await backup_store(hidden, tmp_path / "copy")
    assert hidden.exists()
    (tmp_path / "alias").symlink_to(backup)
    for source, target in ((backup, backup), (tmp_path / "alias", backup), (backup, tmp_path / "state.db-wal")):
        with pytest.raises(InvalidInputError):
            await restore_store(source, target, force=True)
    assert before == await _contents(store)
    await restore_store(backup, store, force=True)


async def test_a_backup_replaced_half_way_is_still_one(store: Path, tmp_path: Path) -> None:
    """Killed between the file and its manifest: either manifest is taken that describes the file."""
    backup = tmp_path / "taken"
    await backup_store(store, backup)
    old = manifest_path(backup).read_text()
    async with StateDB(store) as state:
        await state.create_progression("more", ["x"])
    await backup_store(store, backup, force=True)
    pending = backup.with_name("taken.manifest.json.new")
    assert not pending.exists()
    manifest_path(backup).rename(pending)
    manifest_path(backup).write_text(old)
    await restore_store(backup, tmp_path / "again.db")
    async with StateDB(tmp_path / "again.db") as state:
        assert ["x"] == await state.get_progression("more")


@pytest.mark.parametrize("damage", ["index", "all"])
async def test_a_damaged_store_is_replaced_with_its_log(store: Path, tmp_path: Path, damage: str) -> None:
    """What is left of the old store's log must not be applied to the new file.

    A file that no longer tells that it is a store is moved away by the operator, not replaced.
    """
    backup = tmp_path / "taken"
    await backup_store(store, backup)
    before = await _contents(store)
    if damage == "index":
        _damage_index(store)
    else:
        _damage_store_with_log(store)
        with pytest.raises(NotEmptyError, match="move it away"):
            await restore_store(backup, store, force=True)
        _move_away(store)
    await restore_store(backup, store, force=True)
    assert _without_generations(before) == _without_generations(await _contents(store))


async def test_only_a_store_is_replaced(store: Path, tmp_path: Path) -> None:
    """Files of others stay as they are, byte for byte; a store of a newer version, or an empty file, is replaced."""
    backup = tmp_path / "taken"
    await backup_store(store, backup)
    others = {name: tmp_path / name for name in ("short.txt", "notes.txt", "foreign.db", "unfinished.db")}
    others["short.txt"].write_text("x")
    others["notes.txt"].write_text("what nobody has twice\n" * 200)
    _run_sql(others["foreign.db"], "CREATE TABLE users (name TEXT)", "INSERT INTO users VALUES ('ann')")
    shutil.copyfile(store, others["unfinished.db"])
    _run_sql(others["unfinished.db"], "UPDATE schema_meta SET value = 'of-others' WHERE key = 'lineage'")
    before = {name: path.read_bytes() for name, path in others.items()}
    for path in others.values():
        with pytest.raises(NotEmptyError, match="move it away") as caught:
            await restore_store(backup, path, force=True)
        assert 3 == caught.value.exit_code
    assert before == {name: path.read_bytes() for name, path in others.items()}
    assert {*before, "taken", "taken.manifest.json", "state.db"} == _names(tmp_path)
    newer = tmp_path / "newer.db"
    shutil.copyfile(store, newer)
    _run_sql(newer, "UPDATE schema_meta SET value = '99' WHERE key = 'lionstate.schema_version'")
    (tmp_path / "empty.db").touch()
    for path in (newer, tmp_path / "empty.db"):
        await restore_store(backup, path, force=True)
        assert await _contents(path)


def _run_sql(path: Path, *statements: str) -> None:
    connection = sqlite3.connect(path)
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()


@pytest.mark.parametrize("place", ["notes.txt/x", "/proc/x", "/proc/folder/x", "y" * 300, "/"])
async def test_places_that_cannot_be_used(store: Path, tmp_path: Path, place: str) -> None:
    """A parent that is a file, a file system that takes none, a name too long, no name: one line and an exit code."""
    backup = tmp_path / "taken"
    await backup_store(store, backup)
    (tmp_path / "notes.txt").write_text("mine")
    before = _names(tmp_path)
    expected, code = (InvalidInputError, 2) if place == "/" else (BackendUnavailableError, 4)
    for attempt in (backup_store(store, tmp_path / place), restore_store(backup, tmp_path / place, force=True)):
        with pytest.raises(expected) as caught:
            await attempt
        assert code == caught.value.exit_code
    assert "mine" == (tmp_path / "notes.txt").read_text()
    assert before == _names(tmp_path)


def _move_away(store: Path) -> None:
    assert b"damaged" * 1000 == store.read_bytes()
    store.rename(f"{store}.damaged")


def _damage_index(store: Path) -> None:
    content = bytearray(store.read_bytes())
    connection = sqlite3.connect(store)
    page, size = (connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_size", "page_count"))
    (root,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'idx_messages_created'").fetchone()
    connection.close()
    assert root <= size
    content[(root - 1) * page : root * page] = content[root * page : (root + 1) * page]
    store.write_bytes(content)


async def test_a_damaged_store_is_not_backed_up(store: Path, tmp_path: Path) -> None:
    """A page of an index that is not what it should be: named, and no file is left."""
    _damage_index(store)
    with pytest.raises(StateError):
        await backup_store(store, tmp_path / "taken")
    assert not [name for name in _names(tmp_path) if name.startswith("taken")]


def test_the_commands(store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any) -> None:
    """``lionstate backup`` and ``restore``: what they print and their exit codes."""

    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["lionstate", *map(str, arguments)])
        return main(), *capsys.readouterr()

    # The test's own process looks at the store with the standard library's SQLite.
    monkeypatch.setitem(sys.modules, "pysqlite3.dbapi2", None)
    taken = tmp_path / "taken"
    code, out, err = run("backup", "--url", store, "--to", taken)
    assert (0, "") == (code, err)
    assert out.replace("\n", " ").startswith(f"backed up {store} to {taken}: ")
    assert 3 == run("backup", "--url", store, "--to", taken)[0]
    code, out, _ = run("backup", "--url", store, "--to", taken, "--force", "--json")
    assert (0, taken.stat().st_size) == (code, json.loads(out)["size_bytes"])
    assert 3 == run("restore", "--from", taken, "--url", store)[0]
    assert 0 == run("restore", "--from", taken, "--url", store, "--force")[0]
    assert 4 == run("restore", "--from", tmp_path / "none", "--url", tmp_path / "new.db")[0]
    code, _, err = run("backup", "--url", "postgresql://localhost/x", "--to", tmp_path / "p")
    assert (2, True) == (code, "pg_dump" in err)
