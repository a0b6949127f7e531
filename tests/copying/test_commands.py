"""Commands in this process on stores without a daemon: what they print, and what they never make."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import Connection, inspect

from lionstate import StateDB
from lionstate.cli import tables
from lionstate.cli.commands import main
from lionstate.copying import StoreCopy
from lionstate.engine import EngineSettings, StoreURL
from lionstate.engine.ownership import StoreLock
from lionstate.engine.reader import PostgresqlReader

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    """Runs one command; its exit code, output and error output."""
    # The test's own process looks at the store with the standard library's SQLite.
    monkeypatch.setitem(sys.modules, "pysqlite3.dbapi2", None)

    def command(*words: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["lionstate", *map(str, words)])
        code = main()
        return code, *capsys.readouterr()

    return command


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A closed store with one old session that has ended, and a progression that cannot be read."""
    path = tmp_path / "state.db"

    async def make() -> None:
        async with StateDB(path, normalized=False) as state:
            for name in ("kept", "spoilt"):
                await state.create_progression(name, [])
                row = {"id": name, "progression_id": name, "created_at": 1.0, "status": "completed", "updated_at": 1.0}
                await state.create_session(row)
            await state.execute(
                "UPDATE sessions SET status = 'completed', updated_at = 1, last_message_at = 1, ended_at = 1"
            )
            await state.execute("UPDATE progressions SET collection = 'no JSON' WHERE id = 'spoilt'")

    asyncio.run(make())
    return path


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)])
def empty(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, Callable[[], object]]]:
    """The URL of a file of no bytes or an empty database, and what is there."""
    if request.param == "sqlite":
        path = tmp_path / "empty.db"
        path.touch()
        yield str(path), lambda: (path.stat().st_size, sorted(os.listdir(tmp_path)))
        return
    server = request.getfixturevalue("postgres_18")
    server.drop_database("commands_empty")
    url = str(server.create_database("commands_empty"))

    def names(conn: Connection) -> list[str]:
        return inspect(conn).get_table_names()

    async def look() -> list[str]:
        reader = PostgresqlReader(StoreURL.of(url), EngineSettings(readonly=True))
        try:
            return await reader.run(names)
        finally:
            await reader.close()

    yield url, lambda: asyncio.run(look())


@pytest.mark.parametrize(
    "words",
    [
        ("prune",),
        ("prune", "--dry-run"),
        ("sessions",),
        ("sessions", "sweep", "--stale-hours", "1"),
        ("stats",),
        ("checkpoint",),
        ("vacuum",),
        ("dispatches", "purge", "--older-than-days", "1"),
        ("progression-migrate", "pause"),
        ("progression-migrate", "step"),
    ],
    ids=" ".join,
)
def test_no_command_makes_a_store(run: Command, empty: tuple[str, Callable[[], object]], words: tuple[str]) -> None:
    """Where none is: exit 3, nothing is made, whatever the command would write."""
    url, look = empty
    before = look()
    code, out, err = run(*words, "--url", url)
    assert (3, "") == (code, out), err
    assert "holds no store" in err
    assert 1 == err.count("\n")
    assert before == look()


def test_lines_are_lines(run: Command, store: Path, tmp_path: Path) -> None:
    """Several lines of output are several lines; a control character of a name is none."""
    target = tmp_path / "copy\x1b[31m\n.db"
    code, out, _ = run("copy", "--from", store, "--to", target)
    shown = f"{tmp_path}/copy\ufffd[31m\ufffd.db"
    first, second = out.splitlines()
    assert 0 == code
    assert first.startswith(f"copied {store} to {shown} and verified ")
    assert second.endswith(" s in all")
    code, out, _ = run("copy", "--from", store, "--to", target)
    assert (0, 1, True) == (code, out.count("\n"), out.startswith(f"{shown} is a finished copy of {store} already"))
    code, out, _ = run("prune", "--url", store)
    assert 0 == code
    assert [
        "deleted 2 sessions, 0 branches, 2 progressions, 0 messages",
        "not readable, what it may hold stays: progression spoilt",
    ] == out.splitlines()
    for line in ("a\nb", "a\x1b[2Jb", "a\x9bb", "a\u202eb"):
        assert "\ufffd" in tables.printable(line)


def test_an_unfinished_copy_says_how_to_go_on(run: Command, store: Path, tmp_path: Path) -> None:
    """Whatever opens the target of an interrupted copy is told: the same command goes on with it, and does."""
    target = tmp_path / "copy.db"

    def interrupt(stage: str, done: int, total: int) -> None:
        if stage == "copy":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(StoreCopy(store, target, on_progress=interrupt).run())
    for words in (("stats",), ("prune",), ("progression-migrate", "status"), ("backup", "--to", tmp_path / "b")):
        code, out, err = run(*words, "--url", target)
        assert (3, "", 1) == (code, out, err.count("\n")), err
        assert "unfinished copy: the same `lionstate copy` goes on with it" in err, words
    assert 0 == run("copy", "--from", store, "--to", target)[0]
    assert 0 == run("stats", "--url", target)[0]


def test_errors_say_what_to_do(run: Command, store: Path, tmp_path: Path) -> None:
    """An owned store, a backup's impossible place, days without an end, a finished copy whose source went on."""
    target = tmp_path / "copy.db"
    assert 0 == run("copy", "--from", store, "--to", target)[0]
    taken = tmp_path / "taken"
    assert 0 == run("backup", "--url", store, "--to", taken)[0]
    lock = StoreLock(store)
    lock.acquire()
    try:
        for words in (
            ("copy", "--from", store, "--to", tmp_path / "x"),
            ("restore", "--from", taken, "--url", store, "--force"),
        ):
            code, _, err = run(*words)
            assert (10, True) == (code, "stop it first" in err), err
    finally:
        lock.release()
    code, _, err = run("backup", "--url", store, "--to", taken / "x")
    assert (4, 1, True) == (code, err.count("\n"), f"error: {taken / 'x'} cannot be written" in err)
    for days in ("1e400", "nan"):
        code, _, err = run("prune", "--url", store, "--keep-days", days)
        assert (2, True) == (code, "--keep-days" in err), err
        code, _, err = run("dispatches", "purge", "--url", store, "--older-than-days", days)
        assert (2, True) == (code, "--older-than-days" in err), err
    for hours in ("1e400", "nan"):
        code, _, err = run("sessions", "sweep", "--url", store, "--stale-hours", hours)
        assert (2, True) == (code, "--stale-hours" in err), err

    async def go_on() -> None:
        async with StateDB(store) as state:
            await state.create_progression("later", [])

    asyncio.run(go_on())
    code, _, err = run("copy", "--from", store, "--to", target)
    assert (6, True) == (code, "progressions: source 3 rows" in err and "empty database" in err), err
