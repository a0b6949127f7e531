"""The launcher: a server answers, and none is left whatever ends the process that started it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import asyncpg
import pytest

from tests.support import postgres
from tests.support.postgres import PostgresServer, PostgresUnavailableError

ROOT = Path(__file__).parents[2]

# Starts a server in a process of its own, says where it is, and ends as the test wants it to end.
_STARTER = """
import sys
from tests.support.postgres import PostgresServer
server = PostgresServer.start(int(sys.argv[1]), options=["max_connections=12"])
print(server.pid, server.directory, flush=True)
sys.stdin.read()
server.stop()
"""

pytestmark = pytest.mark.postgresql


@pytest.fixture(params=[15, 18])
def version(request: pytest.FixtureRequest) -> int:
    """A major version, with its binaries at hand."""
    request.getfixturevalue(f"postgres_{request.param}")
    return int(request.param)


@pytest.fixture
def own_base(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A base directory of this test, so that a sweep meets only what the test left.

    Not below pytest's own: every other run of the same user closes that to the account of the servers.
    """
    with tempfile.TemporaryDirectory(prefix="lionstate-launcher-") as base:
        Path(base).chmod(0o755)
        monkeypatch.setenv("TMPDIR", base)
        monkeypatch.setattr("tempfile.tempdir", base)
        # A start takes the server that the environment names; these tests are about the others.
        monkeypatch.delenv(postgres.DSN_VARIABLE, raising=False)
        yield


async def _fetch(dsn: str, query: str) -> object:
    connection = await asyncpg.connect(dsn.replace("+asyncpg", ""))
    try:
        return await connection.fetchval(query)
    finally:
        await connection.close()


def _is_running(pid: int) -> bool:
    """Whether the server runs; one that ended and was not waited for does not."""
    return "postgres" in postgres.command_line(pid)


def _wait_until_gone(pid: int) -> None:
    deadline = time.monotonic() + 10
    while _is_running(pid):
        assert time.monotonic() < deadline, f"process {pid} still runs"
        time.sleep(0.02)


def _start_elsewhere(version: int) -> tuple[subprocess.Popen[str], int, Path]:
    process = subprocess.Popen(
        [sys.executable, "-c", _STARTER, str(version)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    pid, directory = process.stdout.readline().split(maxsplit=1)
    return process, int(pid), Path(directory.strip()).parent


@pytest.mark.parametrize("version", [15, 18], indirect=True)
async def test_fixture_serves_its_version(version: int, request: pytest.FixtureRequest) -> None:
    server = request.getfixturevalue(f"postgres_{version}")

    assert version == int(str(await _fetch(server.dsn(), "SHOW server_version_num"))) // 10000


async def test_creates_and_drops_databases(version: int, request: pytest.FixtureRequest) -> None:
    server = request.getfixturevalue(f"postgres_{version}")

    dsn = server.create_database('odd "name"')
    assert 'odd "name"' == await _fetch(dsn, "SELECT current_database()")
    assert "UTF8" == await _fetch(dsn, "SHOW server_encoding")

    server.drop_database('odd "name"')
    with pytest.raises(asyncpg.InvalidCatalogNameError):
        await _fetch(dsn, "SELECT 1")


async def test_serves_the_unix_socket(postgres_18: PostgresServer, own_base: None) -> None:
    server = PostgresServer.start(18)
    try:
        assert await _fetch(server.dsn(), "SELECT inet_server_addr()") is not None
        if len(str(server.directory)) < 80:
            assert await _fetch(server.dsn(unix_socket=True), "SELECT inet_server_addr()") is None
    finally:
        server.stop()


@pytest.mark.parametrize(("durable", "expected"), [(False, "off"), (True, "on")])
async def test_durability_and_options(
    durable: bool, expected: str, postgres_18: PostgresServer, own_base: None
) -> None:
    server = PostgresServer.start(18, durable=durable, options=["lock_timeout=321ms"])
    try:
        for name in ("fsync", "full_page_writes", "synchronous_commit"):
            assert expected == await _fetch(server.dsn(), f"SHOW {name}")
        assert "321ms" == await _fetch(server.dsn(), "SHOW lock_timeout")
    finally:
        server.stop()


async def test_crash_keeps_what_was_committed(postgres_18: PostgresServer, own_base: None) -> None:
    server = PostgresServer.start(18, durable=True)
    try:
        server.execute("CREATE TABLE kept (n int)")
        server.crash()
        server.restart()
        assert 0 == await _fetch(server.dsn(), "SELECT count(*) FROM kept")
        assert "not properly shut down" in server.log
    finally:
        server.stop()


def test_stop_leaves_no_server(version: int, own_base: None) -> None:
    server = PostgresServer.start(version)
    pid, directory = server.pid, server.directory

    server.stop()

    assert not _is_running(pid)
    assert not directory.exists()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_no_server_outlives_its_starter(number: signal.Signals, version: int, own_base: None) -> None:
    process, pid, directory = _start_elsewhere(version)
    assert _is_running(pid)

    process.send_signal(number)
    process.communicate()

    _wait_until_gone(pid)
    assert directory.exists()
    PostgresServer.start(version).stop()
    assert not directory.exists(), "the next start removes what the killed one left"


def test_sweep_spares_a_server_in_use(postgres_18: PostgresServer, own_base: None) -> None:
    process, pid, directory = _start_elsewhere(18)

    PostgresServer.start(18).stop()
    assert _is_running(pid)
    assert directory.exists()

    process.communicate("")
    assert not _is_running(pid)
    assert not directory.exists()


def test_a_thread_may_not_start_one(postgres_18: PostgresServer, own_base: None) -> None:
    caught: list[BaseException] = []

    def start() -> None:
        try:
            PostgresServer.start(18)
        except RuntimeError as exc:
            caught.append(exc)

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()

    assert ["main thread" in str(exc) for exc in caught] == [True]


def test_a_failed_start_shows_the_log(postgres_18: PostgresServer, own_base: None) -> None:
    with pytest.raises(RuntimeError, match="no_such_setting"):
        PostgresServer.start(18, options=["no_such_setting=1"])


def test_missing_version_is_named() -> None:
    with pytest.raises(PostgresUnavailableError, match="no PostgreSQL 9 on this machine"):
        PostgresServer.start(9)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root runs the server as another user")
def test_copies_binaries_the_account_may_not_read(
    postgres_18: PostgresServer, own_base: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install = postgres._find_binaries(18).parent
    private = tmp_path / "private"
    private.mkdir(mode=0o700)
    hidden = private / install.parent.name / install.name
    shutil.copytree(install, hidden, symlinks=True)
    libraries = install.parent.with_suffix(".libs")
    if libraries.is_dir():
        shutil.copytree(libraries, private / libraries.name)
    monkeypatch.setattr(postgres, "_candidates", lambda: iter([hidden / "bin"]))

    server = PostgresServer.start(18)
    try:
        server.execute("SELECT 1")
    finally:
        server.stop()


async def test_takes_the_server_the_environment_names(
    postgres_18: PostgresServer, own_base: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = PostgresServer.start(18)
    try:
        monkeypatch.setenv(postgres.DSN_VARIABLE, other.dsn())
        postgres._existing_server.cache_clear()
        borrowed = PostgresServer.start(18)
        assert not borrowed.owned
        assert other.dsn("x") == borrowed.dsn("x")
        borrowed.stop()
        assert 1 == await _fetch(other.dsn(), "SELECT 1")
    finally:
        postgres._existing_server.cache_clear()
        other.stop()
