"""A start that is refused: one clear line, its exit code, nothing touched."""

from __future__ import annotations

import hashlib
import os
import signal
import socket
import sqlite3
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.demo.legacy_store import main as write_legacy_store
from tests.e2e.conftest import Daemons, lionstate, lionstated, lionstated_bound_by_modes


def contents(folder: Path) -> dict[str, str]:
    """Every file below a folder with its digest; sockets and folders by name."""
    found = {}
    for path in sorted(folder.rglob("*")):
        digest = hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else "-"
        found[str(path.relative_to(folder))] = digest
    return found


def refused(
    code: int,
    said: str,
    *arguments: str | Path,
    start: Callable[..., subprocess.CompletedProcess[str]] = lionstated,
    **env: str,
) -> str:
    """Start lionstated, which must end with this code and one line that says this."""
    done = start(*arguments, **env)
    assert (code, 1) == (done.returncode, len(done.stderr.splitlines())), done.stderr
    assert done.stderr.startswith("lionstated: ")
    assert said in done.stderr
    assert done.stdout == ""
    return done.stderr


def store_flags(url: str | Path) -> list[str | Path]:
    return ["--database-url", url, "--listen-ops", "127.0.0.1:0"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[database]\nurll = 'x.db'\n", "unknown setting database.urll in"),
        ("[databse]\nurl = 'x.db'\n", "unknown setting databse in"),
        ("database = 3\n", "setting database must be a table"),
        ("[queue]\nmax_operations = 'many'\n", "setting queue.max_operations in"),
        ("[maintenance]\ninterval_seconds = 0\n", "setting maintenance.interval_seconds in"),
        ("[database\n", "is not valid TOML"),
    ],
)
def test_bad_configuration(folder: Path, text: str, said: str) -> None:
    config = folder / "bad.toml"
    config.write_text(text)
    before = contents(folder)
    refused(2, said, "--config", config, *store_flags(folder / "x.db"))
    refused(2, said, "--config", config, "--check-config")
    assert before == contents(folder)


def test_bad_environment(folder: Path) -> None:
    refused(2, "environment variable LIONSTATE_QUEUE__DEPTH", LIONSTATE_QUEUE__DEPTH="1")
    refused(2, "environment variable LIONSTATE_LOG__LEVEL", LIONSTATE_LOG__LEVEL="loud")
    # Another program's variables never name a store.
    refused(2, "no store given", LIONAGI_STATE_DB_URL=str(folder / "x.db"), LIONAGI_HOME=str(folder))
    assert contents(folder) == {}


def test_good_configuration_is_shown(folder: Path) -> None:
    config = folder / "good.toml"
    config.write_text("[database]\nurl = 'x.db'\n[queue]\nmax_operations = 7\n")
    done = lionstated("--config", config, "--check-config", LIONSTATE_QUEUE__DEADLINE_MS="5")
    assert (0, "") == (done.returncode, done.stderr)
    for line in ('url = "x.db"', "max_operations = 7", "deadline_ms = 5"):
        assert line in done.stdout.splitlines()


def test_bad_store_paths(folder: Path) -> None:
    (folder / "sub").mkdir()
    (folder / "file").write_text("no folder")
    (folder / "text.db").write_text("this is not a database, it only looks like a file of one\n" * 40)
    (folder / "tiny.db").write_text("tiny")
    before = contents(folder)
    refused(4, "the store path is a folder", *store_flags(folder / "sub"))
    refused(4, "folder cannot be made", *store_flags(folder / "file" / "deep" / "x.db"))
    refused(4, "not a database", *store_flags(folder / "text.db"))
    refused(3, "no database", *store_flags(folder / "tiny.db"))
    refused(2, "stores are SQLite or PostgreSQL, not mysql", *store_flags("mysql://localhost/x"))
    assert before == contents(folder)


def test_a_folder_of_the_store_is_made(folder: Path, daemons: Daemons) -> None:
    path = folder / "new" / "folder" / "x.db"
    daemon = daemons(path, wait=False, listen__socket="")
    daemon.socket = path.with_name("x.db.sock")
    daemon.wait_until_ready()
    assert daemon.stop() == 0
    assert ["x.db", "x.db.lionstated.lock"] == sorted(os.listdir(path.parent))


def newer_own_schema(conn: sqlite3.Connection) -> None:
    conn.execute("INSERT INTO schema_meta (key, value) VALUES ('lionstate.schema_version', '999')")


def newer_lionagi(conn: sqlite3.Connection) -> None:
    conn.execute("UPDATE schema_meta SET value = '5' WHERE key = 'version'")


def foreign_lineage(conn: sqlite3.Connection) -> None:
    conn.execute("UPDATE schema_meta SET value = 'other' WHERE key = 'lineage'")


def without_its_items(conn: sqlite3.Connection) -> None:
    conn.execute("PRAGMA journal_mode = DELETE")
    conn.execute("INSERT INTO schema_meta (key, value) VALUES ('lionstate.schema_version', '1')")


def no_store_at_all(conn: sqlite3.Connection) -> None:
    for (name,) in conn.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
        conn.execute(f'DROP TABLE IF EXISTS "{name}"')
    conn.execute("CREATE TABLE somebody_elses (a)")


def tables_of_the_same_names(conn: sqlite3.Connection) -> None:
    no_store_at_all(conn)
    conn.execute("DROP TABLE somebody_elses")
    conn.execute("CREATE TABLE progressions (id TEXT PRIMARY KEY, foo TEXT)")
    conn.execute("CREATE TABLE sessions (x INTEGER)")


@pytest.mark.parametrize(
    "change",
    [newer_own_schema, newer_lionagi, foreign_lineage, without_its_items, no_store_at_all, tables_of_the_same_names],
)
def test_stores_of_others_are_left_alone(
    folder: Path, change: Callable[[sqlite3.Connection], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """fault 28: an older build opens a newer store."""
    path = folder / "x.db"
    monkeypatch.setattr("sys.argv", ["legacy_store", str(path)])
    write_legacy_store()
    conn = sqlite3.connect(path)
    conn.execute("PRAGMA foreign_keys = OFF")
    with conn:
        change(conn)
    conn.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    conn.execute("PRAGMA journal_mode = DELETE")
    conn.close()
    before = contents(folder)
    refused(3, "", *store_flags(path))
    assert before == contents(folder)
    if change in (no_store_at_all, tables_of_the_same_names):
        assert 3 == lionstate("progression-migrate", "detach", "--url", path).returncode
        assert before == contents(folder)
    done = lionstate("progression-migrate", "status", "--url", path)
    assert (3, 1) == (done.returncode, len(done.stderr.splitlines())), done.stderr
    assert before == contents(folder)


def test_a_port_in_use(folder: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        for path in (folder / "x.db", folder / "new" / "x.db"):
            refused(10, f"address already owned: {address}", "--database-url", path, "--listen-ops", address)
    assert contents(folder) == {}


def test_a_living_daemon_keeps_its_socket_and_its_store(folder: Path, daemons: Daemons) -> None:
    """fault 61: a live second daemon; design decision 27: one owner of a SQLite store."""
    path = folder / "x.db"
    first = daemons(path)
    said = refused(10, "address already owned", *store_flags(path), "--listen-socket", first.socket)
    assert str(first.socket) in said
    said = refused(10, "the store is owned by", *store_flags(path), "--listen-socket", folder / "other.sock")
    assert str(first.process.pid) in said
    first.wait_until_ready()
    # It counts that the owner lives, not that it answers.
    os.kill(first.process.pid, signal.SIGSTOP)
    try:
        refused(10, "the store is owned by", *store_flags(path), "--listen-socket", folder / "other.sock")
    finally:
        os.kill(first.process.pid, signal.SIGCONT)
    first.kill()
    second = daemons(path)
    assert second.stop() == 0
    left = {name for name in contents(folder) if "sock" in name}
    assert left == set()


def test_what_a_killed_daemon_left_in_a_folder_that_is_closed_now(folder: Path, daemons: Daemons) -> None:
    """fault 61: neither its socket nor its lock can be removed."""
    path = folder / "x.db"
    daemon = daemons(path, listen__socket=str(folder / "x.db.sock"))
    daemon.kill()
    before = contents(folder)
    folder.chmod(0o555)
    try:
        refused(4, "cannot bind", *store_flags(path), start=lionstated_bound_by_modes)
    finally:
        folder.chmod(0o700)
    assert before == contents(folder)


def test_a_store_that_cannot_be_written(folder: Path, daemons: Daemons) -> None:
    """SQLite opens it all the same, and the daemon was ready until the first write."""
    store = folder / "store"
    store.mkdir()
    path, log = store / "x.db", store / "x.db-wal"
    daemons(path, listen__socket=str(folder / "x.sock")).kill()
    flags = [*store_flags(path), "--listen-socket", folder / "other.sock"]
    for closed, mode in ((path, 0o400), (log, 0o400), (store / "x.db-shm", 0o400), (store, 0o555)):
        if closed == store:
            # Nobody has to make anything there while the log is.
            log.rename(folder / "log")
        before, was = contents(store), closed.stat().st_mode
        closed.chmod(mode)
        try:
            said = refused(4, "the store cannot be written", *flags, start=lionstated_bound_by_modes)
        finally:
            closed.chmod(was)
        assert f"may not write {'the folder ' if closed == store else ''}{closed.resolve()};" in said
        assert before == contents(store)


def test_a_path_that_is_too_long_for_a_socket(folder: Path) -> None:
    """fault 61: a state path of 140 bytes."""
    path = folder / ("d" * (140 - len(str(folder)) - 6)) / "x.db"
    assert len(str(path)) == 140
    said = refused(2, "listen.socket", *store_flags(path))
    assert "145 bytes" in said
    assert "107" in said
    assert contents(folder) == {}


def test_a_postgresql_server_that_is_down(folder: Path) -> None:
    """fault 18: told to exit, nothing is half alive: the start is refused, and whoever manages the service goes on."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"postgresql://user:hidden@127.0.0.1:{unused.getsockname()[1]}/db"
        flags = ["--database-url", url, "--listen-socket", folder / "p.sock", "--listen-ops", "127.0.0.1:0"]
        said = refused(4, "the database cannot be reached", *flags, "--database-when-unavailable", "exit")
    assert "hidden" not in said
    assert contents(folder) == {}


def test_a_password_is_not_in_the_process_list(folder: Path, daemons: Daemons) -> None:
    """Nor in the log of a daemon that waits for its database."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"postgresql://user:hidden@127.0.0.1:{unused.getsockname()[1]}/db"
        daemon = daemons(url, wait=False, database__replica_url=url)
        deadline = time.monotonic() + 30
        while "store_unavailable" not in daemon.log.read_text(encoding="utf-8"):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        command = Path(f"/proc/{daemon.process.pid}/cmdline").read_bytes()
        assert (False, True) == (b"hidden" in command, b"lionstated" in command)
        assert b"hidden" in Path(f"/proc/{daemon.process.pid}/environ").read_bytes()
        assert "hidden" not in daemon.log.read_text(encoding="utf-8")
        assert 0 == daemon.stop()


def test_postgresql_needs_a_socket_path(folder: Path) -> None:
    refused(2, "listen.socket must be given", "--database-url", "postgresql://127.0.0.1/db")
