"""How a store is named and opened: URLs, read-only, memory, shared handles, refusals (reference §2.0)."""

from __future__ import annotations

import asyncio
import fcntl
import inspect
import os
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import asyncpg
import pytest

from lionstate import StateDB, shared
from lionstate.engine import EngineSettings, StoreURL, normalize_state_db_url
from lionstate.engine import sqlite_file as sqlite_file_module
from lionstate.engine.ownership import StoreLock, lock_file
from lionstate.engine.pool import create_engine
from lionstate.engine.pragmas import _switch_to_wal
from lionstate.engine.url import _PARAMETERS
from lionstate.errors import (
    BackendUnavailableError,
    ClosedError,
    InvalidInputError,
    NestedWriteError,
    SchemaError,
    SchemaTooNewError,
    StateError,
    UnrecognizedStoreError,
)
from lionstate.store import Store

_LIONAGI_STORE = Path(__file__).resolve().parents[1] / "fixtures" / "lionagi-0.36.0-small.db"


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (Path("/srv/state.db"), "sqlite+aiosqlite:////srv/state.db"),
        ("/srv/a/../state.db", "sqlite+aiosqlite:////srv/state.db"),
        (":memory:", "sqlite+aiosqlite:///:memory:"),
        ("sqlite:///x", "sqlite+aiosqlite:///x"),
        ("sqlite:////srv/x.db", "sqlite+aiosqlite:////srv/x.db"),
        ("sqlite+aiosqlite:///y.db", "sqlite+aiosqlite:///y.db"),
        ("postgresql+asyncpg://u:p@h/d", "postgresql+asyncpg://u:p@h/d"),
        ("postgres://u:p@h/d?sslmode=require", "postgresql+asyncpg://u:p@h/d?sslmode=require"),
        ("postgresql://h/d", "postgresql+asyncpg://h/d"),
        ("mysql://h/d", "mysql://h/d"),
    ],
)
def test_urls_are_normalized(target: str | Path, expected: str) -> None:
    assert expected == normalize_state_db_url(target)


@pytest.mark.parametrize(
    ("target", "hosts"),
    [
        ("postgresql://h1:1,h2:2/db", ("h1:1", "h2:2")),
        ("postgres://u:p%40@h1,10.0.0.2:7/db?sslmode=require", ("h1:5432", "10.0.0.2:7")),
        ("postgresql+asyncpg://u@a:1,b:2,c:3", ("a:1", "b:2", "c:3")),
    ],
)
def test_several_hosts(target: str, hosts: tuple[str, ...]) -> None:
    """A primary and its standbys, as libpq writes them; a password and parameters stay."""
    url = StoreURL.of(target).sqlalchemy
    assert hosts == url.query["host"]
    assert ("sslmode" in target, "p%40" in target) == ("sslmode" in url.query, url.password == "p@")
    assert StoreURL.of(target) == StoreURL.of(StoreURL.of(target).text)


@pytest.mark.parametrize("target", ["postgresql://h1,/db", "postgresql://,h2/db", "postgresql://h1:x,h2/db"])
def test_several_hosts_of_which_one_is_none(target: str) -> None:
    with pytest.raises(InvalidInputError):
        StoreURL.of(target)


def test_relative_paths_become_absolute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert f"sqlite+aiosqlite:///{tmp_path}/x.db" == normalize_state_db_url("x.db")
    assert f"sqlite+aiosqlite:///{tmp_path}/user@host.db" == normalize_state_db_url("user@host.db")
    assert f"sqlite+aiosqlite:///{tmp_path}/u:p@host" == normalize_state_db_url("./u:p@host")
    assert f"sqlite+aiosqlite:///{tmp_path}/home/x.db" == normalize_state_db_url("~/x.db")


@pytest.mark.parametrize("target", ["user:secret@host", "user:secret@host/db", "user:@host"])
def test_credentials_without_a_scheme_are_refused(target: str) -> None:
    with pytest.raises(ValueError, match="scheme") as caught:
        normalize_state_db_url(target)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    "target",
    ["host=h password=SEKRIT", " user=app host=h password = SEKRIT", "dbname=d host=/run", "service=x password=SEKRIT"],
)
def test_libpqs_connection_strings_are_no_file_names(target: str) -> None:
    for take in (normalize_state_db_url, StoreURL.of):
        with pytest.raises(InvalidInputError, match=r"write postgresql://.*\./path") as caught:
            take(target)
        assert "SEKRIT" not in str(caught.value)
    assert "host=h.db" == (StoreURL.of("./host=h.db").path or Path()).name


@pytest.mark.parametrize("target", ["postgresql:/u:SEKRIT@h/d", "postgresql+asyncpg:/u:SEKRIT@h/d", "sqlite:/s.db"])
def test_a_url_with_a_slash_too_few_is_no_file_name(target: str) -> None:
    for take in (normalize_state_db_url, StoreURL.of):
        with pytest.raises(InvalidInputError, match=r"write :// after its scheme") as caught:
            take(target)
        assert "SEKRIT" not in str(caught.value)


@pytest.mark.parametrize("name", ["foo", "application_name", "Host", "statement_cache_size", "server_settings"])
def test_an_unknown_parameter_is_refused_by_name(name: str) -> None:
    """The driver says no more than "TypeError", and only when the store is opened."""
    with pytest.raises(InvalidInputError, match=f"parameter {name}; it takes .*sslmode") as caught:
        StoreURL.of(f"postgresql://u:SEKRIT@h/d?sslmode=require&{name}=SEKRIT")
    assert "SEKRIT" not in str(caught.value)


def test_parameters_that_the_driver_takes_go_on() -> None:
    """Each is mapped, or one of asyncpg's or SQLAlchemy's."""
    of_driver = set(inspect.signature(asyncpg.connect).parameters) | {"prepared_statement_cache_size"}
    assert {"sslmode", "connect_timeout"} == _PARAMETERS - of_driver
    for name in _PARAMETERS:
        assert name in StoreURL.of(f"postgresql://u@h/d?{name}=1").sqlalchemy.query


@pytest.mark.parametrize("umask", [0o022, 0o000])
async def test_a_store_is_its_owners(tmp_path: Path, umask: int) -> None:
    """A new one is 0600 with what SQLite adds to it, whatever the umask; one that is there keeps its mode."""
    path = tmp_path / "s.db"
    side = [path.with_name(f"s.db{suffix}") for suffix in ("", "-wal", "-shm")]
    previous = os.umask(umask)
    try:
        for mode in (0o600, 0o640):
            async with StateDB(path) as state:
                await state.create_progression("p")
                assert [mode] * 3 == [file.stat().st_mode & 0o777 for file in side]
            path.chmod(0o640)
    finally:
        os.umask(previous)


@pytest.mark.parametrize(
    "target",
    ["mysql://h/d", "postgresql+psycopg://h/d", "sqlite:///x.db?mode=ro", "sqlite+aiosqlite:///x?uri=true", "http://h"],
)
def test_what_cannot_be_opened_is_refused_by_name(target: str) -> None:
    with pytest.raises(InvalidInputError):
        StoreURL.of(target)


@pytest.mark.parametrize("target", ["", "  "])
def test_an_empty_text_names_no_store(target: str) -> None:
    """Design §8: there is no default store, and an empty path would be the current folder."""
    with pytest.raises(InvalidInputError, match="no store given"):
        StateDB(target)
    with pytest.raises(InvalidInputError, match="no store given"):
        StateDB(url=target)


def test_a_path_may_look_like_a_query(tmp_path: Path) -> None:
    path = tmp_path / "what?mode=ro#1 %41.db"
    assert path == StoreURL.of(path).path
    assert path == StoreURL.of(str(path)).path


async def test_a_path_that_looks_like_a_query_is_the_file_that_opens(tmp_path: Path) -> None:
    path = tmp_path / "what?mode=ro#1 %41.db"
    async with StateDB(path):
        pass
    assert {path.name} == {found for found in os.listdir(tmp_path)}


def test_passwords_are_masked() -> None:
    url = StoreURL.of("postgresql://u:secret@h/d")
    assert "postgresql+asyncpg://u:***@h/d" == url.masked


@pytest.mark.parametrize("mode", ["verify", "REQUIRE", "off"])
def test_an_unknown_sslmode_is_refused(mode: str) -> None:
    with pytest.raises(InvalidInputError):
        create_engine(StoreURL.of(f"postgresql://h/d?sslmode={mode}"), EngineSettings(), pool_size=1, for_writes=True)


def test_no_store_is_no_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LIONAGI_STATE_DB_URL", "sqlite:////srv/somebodys.db")
    with pytest.raises(InvalidInputError):
        StateDB()


def test_properties_name_the_store(tmp_path: Path) -> None:
    file = StateDB(tmp_path / "s.db", readonly=True)
    assert ("sqlite", tmp_path / "s.db", True) == (file.dialect, file.path, file.readonly)
    memory = StateDB(":memory:")
    assert ("sqlite", Path(":memory:"), False) == (memory.dialect, memory.path, memory.readonly)
    server = StateDB(url="postgres://h/d")
    assert ("postgresql", None, "postgresql+asyncpg://h/d") == (server.dialect, server.path, server.url)


def test_a_memory_store_is_not_opened_read_only() -> None:
    with pytest.raises(InvalidInputError):
        StateDB(":memory:", readonly=True)


def test_other_event_loops_are_refused(tmp_path: Path) -> None:
    """Trio drives a coroutine without an asyncio loop, as this does."""
    for opening in (StateDB(tmp_path / "s.db").open(), Store.open(tmp_path / "s.db")):
        with pytest.raises(InvalidInputError, match="trio"):
            opening.send(None)
        opening.close()
    assert [] == list(tmp_path.iterdir())


async def test_open_and_close_may_be_repeated(tmp_path: Path) -> None:
    state = StateDB(tmp_path / "deep" / "er" / "s.db")
    with pytest.raises(ClosedError):
        await state.fetch_one("SELECT 1")
    assert await state.open() is state
    store = state.store
    assert await state.open() is state
    assert store is state.store
    await state.close()
    await state.close()
    with pytest.raises(ClosedError):
        await state.fetch_one("SELECT 1")
    await state.open()
    assert {"one": 1} == await state.fetch_one("SELECT 1 AS one")
    await state.close()


async def test_a_memory_store_works_through_its_one_connection() -> None:
    async with StateDB(":memory:") as state:
        await state.execute("INSERT INTO progressions (id, created_at, collection) VALUES ('p', 1, '[]')")
        await asyncio.gather(*(state.append_to_progression("p", f"m{n}") for n in range(20)))
        assert [f"m{n}" for n in range(20)] == await state.get_progression("p")
        async with state.read_snapshot() as snapshot:
            assert {"n": 1} == await snapshot.fetch_one("SELECT count(*) AS n FROM progressions")
            with pytest.raises(StateError):
                await snapshot.fetch_all("DELETE FROM progressions RETURNING id")
            for call in (state.get_progression("p"), state.append_to_progression("p", "x"), state.execute("SELECT 1")):
                with pytest.raises(NestedWriteError):
                    await call
        with pytest.raises(StateError):
            await state.fetch_all("DELETE FROM progressions RETURNING id")
        await state.append_to_progression("p", "after")
        assert 21 == len(await state.get_progression("p"))
        assert state.store.sqlite_info == (sqlite3.sqlite_version, True)


async def test_a_real_store_is_read_without_any_write(tmp_path: Path) -> None:
    """Decision 32: a store that lionstate has never written has none of its tables; they read as empty."""
    path = tmp_path / "state.db"
    shutil.copyfile(_LIONAGI_STORE, path)
    before = path.read_bytes()
    async with StateDB(path, readonly=True) as state:
        row = await state.fetch_one("SELECT id FROM progressions ORDER BY length(collection) DESC LIMIT 1")
        assert row is not None
        ids = await state.get_progression(row["id"])
        assert len(ids) > 0
        async with state.read_snapshot() as snapshot:
            assert [] == await snapshot.fetch_all("SELECT * FROM progression_storage_state")
        for call in (state.append_to_progression(row["id"], "x"), state.execute("DELETE FROM progressions")):
            with pytest.raises(StateError):
                await call
        with pytest.raises(StateError):
            await state.fetch_all("DELETE FROM progressions RETURNING id")
    assert before == path.read_bytes()


async def test_a_read_only_handle_sees_tables_that_come_later(tmp_path: Path) -> None:
    """Empty stand-ins must not hide the state rows of a migration that began after the open."""
    path = tmp_path / "state.db"
    shutil.copyfile(_LIONAGI_STORE, path)
    async with StateDB(path, readonly=True) as reader:
        row = await reader.fetch_one("SELECT id FROM progressions ORDER BY length(collection) DESC LIMIT 1")
        assert row is not None
        async with reader.read_snapshot() as snapshot:
            assert [] == await snapshot.fetch_all("SELECT * FROM progression_storage_state")
        async with StateDB(path) as writer:
            await writer.execute(
                "INSERT INTO progression_storage_state (progression_id, phase, authority, generation, backfill_next,"
                " next_ordinal, frozen_count, source_count, updated_at)"
                " VALUES (?, 'items', 'items', 1, 0, 1, 0, 0, 1)",
                [row["id"]],
            )
            await writer.execute("INSERT INTO progression_items VALUES (?, 0, 'moved')", [row["id"]])
            assert ["moved"] == await reader.get_progression(row["id"])
            async with reader.read_snapshot() as snapshot:
                assert 1 == len(await snapshot.fetch_all("SELECT * FROM progression_storage_state"))


async def test_a_read_only_open_refuses_what_it_does_not_know(tmp_path: Path) -> None:
    """Fault 28: a newer store is refused read-only too; so is a file that holds no store."""
    with pytest.raises(BackendUnavailableError):
        await StateDB(tmp_path / "missing.db", readonly=True).open()
    (tmp_path / "empty.db").touch()
    with pytest.raises(UnrecognizedStoreError):
        await StateDB(tmp_path / "empty.db", readonly=True).open()
    path = tmp_path / "newer.db"
    async with StateDB(path) as state:
        await state.execute("UPDATE schema_meta SET value = '9' WHERE key = 'lionstate.schema_version'")
    with pytest.raises(SchemaTooNewError):
        await StateDB(path, readonly=True).open()


@pytest.mark.parametrize("content", [b"no database" * 1000, b"x"])
async def test_a_file_that_is_no_database_is_refused_unchanged(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "text.db"
    path.write_bytes(content)
    for readonly in (False, True):
        with pytest.raises((BackendUnavailableError, UnrecognizedStoreError)):
            await StateDB(path, readonly=readonly).open()
    assert content == path.read_bytes()


async def test_a_folder_and_a_folder_that_cannot_be_made_are_refused(tmp_path: Path) -> None:
    with pytest.raises(BackendUnavailableError):
        await StateDB(tmp_path).open()
    (tmp_path / "file").touch()
    with pytest.raises(BackendUnavailableError):
        await StateDB(tmp_path / "file" / "state.db").open()


async def test_normalized_is_recorded_when_it_differs(tmp_path: Path) -> None:
    """Decision 8."""
    path = tmp_path / "state.db"
    query = "SELECT value, reason FROM migration_control WHERE key = 'storage.normalized'"
    for given, expected in ((None, "true"), (False, "false"), (None, "false"), (False, "false"), (True, "true")):
        async with StateDB(path, normalized=given) as state:
            row = await state.fetch_one(query)
            assert row is not None
            assert expected == row["value"]
    assert "asked for when the store was opened" == row["reason"]
    with pytest.raises(InvalidInputError):
        StateDB(path, readonly=True, normalized=True)


async def test_an_affected_library_is_refused_when_the_settings_say_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Decision 33: before anything is made."""
    monkeypatch.setattr(sqlite_file_module, "is_affected", lambda version: True)
    with pytest.raises(SchemaError, match="WAL-reset"):
        await StateDB(tmp_path / "s.db", settings=EngineSettings(affected_sqlite="refuse")).open()
    assert [] == os.listdir(tmp_path)
    async with StateDB(tmp_path / "s.db") as state:
        assert (sqlite3.sqlite_version, True) == state.store.sqlite_info


async def test_pragmas_are_those_of_the_contract(tmp_path: Path) -> None:
    """Reference §2.0, and design §2.3 where it departs from it."""
    names = ("journal_mode", "synchronous", "foreign_keys", "cache_size", "wal_autocheckpoint", "busy_timeout")
    async with StateDB(tmp_path / "s.db") as state:
        writer = state.store.sqlite_writer
        assert writer is not None
        writing = await writer.call(lambda wal: [wal._pragma(name) for name in names])
        reading = [(await state.fetch_all(f"PRAGMA {name}"))[0] for name in names]
    assert ["wal", 1, 1, -64000, 0, 100] == writing
    assert ["wal", 1, 1, -16000, 0, 5000] == [next(iter(row.values())) for row in reading]


class _Switching:
    """A driver connection whose switch to WAL has these results in turn, the last one for ever."""

    def __init__(self, *results: str | Exception) -> None:
        self._results = list(results)
        self.tries = 0

    def execute(self, sql: str) -> _Switching:
        if sql == "PRAGMA journal_mode":
            self._found = "delete"
            return self
        self.tries += 1
        result = self._results.pop(0) if len(self._results) > 1 else self._results[0]
        if isinstance(result, Exception):
            raise result
        self._found = result
        return self

    def fetchone(self) -> tuple[str]:
        return (self._found,)


def test_the_switch_to_wal_is_tried_again() -> None:
    """Fault 41: two connections that switch at once get BUSY at once, whatever their busy timeout."""
    locked = sqlite3.OperationalError("database is locked")
    driver = _Switching(locked, locked, "wal")
    _switch_to_wal(driver, sqlite3, 5.0)
    assert 3 == driver.tries
    with pytest.raises(sqlite3.OperationalError):
        _switch_to_wal(_Switching(locked), sqlite3, 0.05)
    broken = _Switching(sqlite3.OperationalError("disk I/O error"))
    with pytest.raises(sqlite3.OperationalError):
        _switch_to_wal(broken, sqlite3, 5.0)
    assert 1 == broken.tries
    with pytest.raises(BackendUnavailableError, match="write-ahead"):
        _switch_to_wal(_Switching("delete"), sqlite3, 5.0)


@pytest.fixture
async def registry() -> AsyncIterator[None]:
    """An empty registry at the end."""
    yield
    await shared.close_shared_db()


@pytest.mark.usefixtures("registry")
async def test_a_shared_handle_is_opened_once(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    found = await asyncio.gather(
        *(shared.get_shared_db(path) for _ in range(5)), shared.get_shared_db(f"sqlite:///{path}")
    )
    assert 1 == len(set(map(id, found)))
    with pytest.raises(InvalidInputError):
        await shared.get_shared_db()
    await shared.close_shared_db()
    with pytest.raises(ClosedError):
        await found[0].get_progression("p")
    again = await shared.get_shared_db(path)
    assert again is not found[0]


@pytest.mark.usefixtures("registry")
async def test_a_registered_handle_takes_the_place_of_another(tmp_path: Path) -> None:
    path = tmp_path / "s.db"
    first = await shared.get_shared_db(path)
    second = await StateDB(path).open()
    await shared.register_shared_db(second)
    with pytest.raises(ClosedError):
        await first.get_progression("p")
    assert second is await shared.get_shared_db(path)
    shared.unregister_shared_db(first)
    assert second is await shared.get_shared_db(path)
    shared.unregister_shared_db(second)
    assert [] == await second.get_progression("p")
    await second.close()


@pytest.mark.usefixtures("registry")
async def test_who_waits_while_all_are_closed_is_told(tmp_path: Path) -> None:
    waiting = [asyncio.ensure_future(shared.get_shared_db(tmp_path / f"{n}.db")) for n in range(3)]
    await asyncio.sleep(0)
    await shared.close_shared_db()
    found = await asyncio.gather(*waiting, return_exceptions=True)
    assert [ClosedError] * 2 == [type(one) for one in found[1:]]
    assert all(isinstance(one, RuntimeError) for one in found[1:])


@pytest.mark.usefixtures("registry")
async def test_handles_that_cannot_be_closed_stay_filed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    good, bad = [await shared.get_shared_db(tmp_path / name) for name in ("good.db", "bad.db")]

    async def fail() -> None:
        raise OSError("no")

    with monkeypatch.context() as patch:
        patch.setattr(bad, "close", fail)
        with pytest.raises(RuntimeError, match=r"bad\.db"):
            await shared.close_shared_db()
    assert bad is await shared.get_shared_db(tmp_path / "bad.db")
    assert good is not await shared.get_shared_db(tmp_path / "good.db")


def test_the_fixture_is_a_store_of_lionagi() -> None:
    with closing(sqlite3.connect(f"file:{_LIONAGI_STORE}?mode=ro&immutable=1", uri=True)) as conn:
        tables = {row[0] for row in conn.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    assert "progressions" in tables
    assert "progression_items" not in tables


def test_a_lock_on_a_file_without_a_name_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Decision 27: the owner removed its file between our open and our lock; two owners must not come of it."""
    path = tmp_path / "x.lock"
    real, taken = fcntl.flock, []

    def flock(handle: int, how: int) -> None:
        taken.append(handle)
        if len(taken) == 1:
            path.unlink()
        real(handle, how)

    monkeypatch.setattr(fcntl, "flock", flock)
    handle = lock_file(path)
    monkeypatch.undo()
    assert 2 == len(taken)
    with pytest.raises(BlockingIOError):
        lock_file(path)
    os.close(handle)


def test_a_refused_store_takes_its_new_lock_file_along(tmp_path: Path) -> None:
    lock = StoreLock(tmp_path / "x.db")
    lock.acquire()
    lock.release(refused=True)
    assert not lock.path.exists()
    lock.path.touch()
    lock.acquire()
    lock.release(refused=True)
    assert lock.path.exists()


@pytest.mark.parametrize("target", ["loop", "~no-such-user-here/x.db", "a\0b", "postgresql://h/d?port=abc"])
def test_a_url_that_leads_nowhere_is_said(target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The caller's mistake, in one line: no error of the library below."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(InvalidInputError, match=r"leads nowhere|is a number"):
        StoreURL.of(target)


def test_a_missing_package_is_said_with_what_brings_it() -> None:
    code = "import sys; sys.modules['starlette'] = None; from lionstated.__main__ import main; main()"
    ended = subprocess.run([sys.executable, "-c", code, "--version"], capture_output=True, text=True, check=False)
    assert (2, 1) == (ended.returncode, len(ended.stderr.splitlines())), ended.stderr
    assert "pip install 'lionstate[daemon]'" in ended.stderr
