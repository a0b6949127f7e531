"""What every row needs: a folder on a real disk, filled stores to copy, PostgreSQL servers, daemons, durations."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

from lionstate import StateDB
from lionstate.engine import EngineSettings
from tests.bench.stores import History, fill_postgresql, fill_sqlite, new_sqlite
from tests.support.postgres import PostgresServer, PostgresUnavailableError

__all__ = ["ROOT", "Bench", "Daemon", "NotAvailableError", "available", "grown_log", "one_core"]

ROOT = Path(__file__).parents[2]
# Of more frames than any arm lets wait for a checkpoint.
_LOG_BYTES = 40_000_000
_PG_OPTIONS = ("shared_buffers=256MB", "max_connections=60")


class NotAvailableError(Exception):
    """A part of the product, a peer or a server is not there, so that its figures cannot be taken."""


class Bench:
    """One run of the harness.

    Attributes:
        quick: Shorter histories and fewer samples: the same code, not the same certainty.
        peers: Whether other stores are measured too.
        folder: A folder on the disk of this repository, removed at the end.
    """

    def __init__(self, *, quick: bool, peers: bool, out: Path) -> None:
        """Prepare; use as a context manager."""
        self.quick = quick
        self.peers = peers
        self.out = out
        out.mkdir(parents=True, exist_ok=True)
        self.folder = Path(tempfile.mkdtemp(prefix="stores-", dir=out))
        self.cache: dict[str, Any] = {}
        self._servers: dict[int, PostgresServer] = {}
        self._templates: dict[str, Path] = {}
        self._filled: dict[str, str] = {}
        self._number = 0

    def __enter__(self) -> Bench:
        """Nothing to start: servers start when a row asks for them."""
        return self

    def __exit__(self, *_exc: object) -> None:
        """Stop the servers and remove the stores."""
        for server in self._servers.values():
            server.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def samples(self, full: int, quick: int) -> int:
        """How many samples one round takes."""
        return quick if self.quick else full

    def seconds(self, full: float, quick: float) -> float:
        """How long one round of a throughput measure runs."""
        return quick if self.quick else full

    @property
    def long_history(self) -> int:
        """The history that ADR-0117 D6 names; never shortened."""
        return 100_000

    @property
    def million(self) -> int:
        """The largest history; a fifth of it in a quick run."""
        return 200_000 if self.quick else 1_000_000

    def new_path(self, stem: str) -> Path:
        """A path that nothing has used."""
        self._number += 1
        return self.folder / f"{stem}-{self._number}.db"

    async def sqlite(self, history: History) -> Path:
        """A store file of its own with this history."""
        key = repr(history)
        if key not in self._templates:
            empty = self._templates.get(history.phase)
            if empty is None:
                empty = self._templates[history.phase] = self.new_path("empty")
                await new_sqlite(empty, history.phase)
            template = self.new_path("template")
            shutil.copyfile(empty, template)
            await asyncio.to_thread(fill_sqlite, template, history)
            self._templates[key] = template
        path = self.new_path("store")
        shutil.copyfile(self._templates[key], path)
        return path

    async def store(self, database: str, history: History) -> Path | str:
        """A store of its own on ``sqlite`` or ``postgresql``."""
        return await (self.sqlite(history) if database == "sqlite" else self.postgresql(history))

    async def postgresql(self, history: History, version: int = 18) -> str:
        """A database of its own with this history, on a server with default durability."""
        server = self.server(version)
        key = f"{version}/{history!r}"
        self._number += 1
        name = f"bench_{self._number}"
        if key not in self._filled:
            template = f"template_{self._number}"
            url = server.create_database(template)
            await fill_postgresql(url, history)
            self._filled[key] = template
        server.execute(f"CREATE DATABASE {name} TEMPLATE {self._filled[key]}")
        return server.dsn(name)

    def empty_database(self, version: int = 18) -> str:
        """A database of its own with nothing in it."""
        self._number += 1
        return self.server(version).create_database(f"bench_{self._number}")

    def server(self, version: int = 18) -> PostgresServer:
        """The server of a major version; started here, durable."""
        if version not in self._servers:
            try:
                self._servers[version] = PostgresServer.start(version, durable=True, options=_PG_OPTIONS)
            except PostgresUnavailableError as error:
                raise NotAvailableError(str(error)) from error
        return self._servers[version]

    @asynccontextmanager
    async def state(self, target: Path | str, synchronous: str = "NORMAL", **options: Any) -> AsyncIterator[StateDB]:
        """lionstate in this process."""
        settings = EngineSettings(synchronous=synchronous, **options)  # type: ignore[arg-type]
        db = StateDB(target, settings=settings) if isinstance(target, Path) else StateDB(url=target, settings=settings)
        async with db:
            yield db

    @asynccontextmanager
    async def daemon(self, target: Path | str, synchronous: str = "FULL", *flags: str) -> AsyncIterator[Daemon]:
        """lionstated in a process of its own, on a Unix socket; NotAvailableError if it cannot serve."""
        sockets = tempfile.mkdtemp(prefix="lionstate-bench-")
        command = [
            *(sys.executable, "-m", "lionstated"),
            *("--database-url", str(target), "--database-synchronous", synchronous),
            *("--listen-socket", f"{sockets}/d.sock", "--listen-ops", ""),
            *flags,
        ]
        async with _serving(command, Path(sockets) / "d.sock", Path(sockets)) as daemon:
            yield daemon

    @asynccontextmanager
    async def floor_server(self, path: Path, module: str, synchronous: str) -> AsyncIterator[Daemon]:
        """The tiny server of row 3."""
        sockets = tempfile.mkdtemp(prefix="lionstate-bench-")
        command = [
            sys.executable,
            "-m",
            "tests.bench.floor_server",
            f"{sockets}/f.sock",
            str(path),
            module,
            synchronous,
        ]
        async with _serving(command, Path(sockets) / "f.sock", Path(sockets)) as server:
            yield server


class Daemon:
    """A server process: its socket and its process id."""

    def __init__(self, socket: Path, process: subprocess.Popen[bytes]) -> None:
        """Take a running process."""
        self.target = f"unix:{socket}"
        self.pid = process.pid


@asynccontextmanager
async def _serving(command: Sequence[str], socket: Path, folder: Path) -> AsyncIterator[Daemon]:
    log = folder / "log"
    process = _start(command, log)
    try:
        give_up = time.monotonic() + 15
        while not await _answers(socket):
            if process.poll() is not None or time.monotonic() > give_up:
                raise NotAvailableError(f"{command[2]} did not serve: {_last_line(log)}")
            await asyncio.sleep(0.05)
        yield Daemon(socket, process)
    finally:
        with suppress(ProcessLookupError):
            process.send_signal(signal.SIGTERM)
        try:
            await asyncio.to_thread(process.wait, 20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _start(command: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
    with log.open("wb") as out:
        return subprocess.Popen(command, cwd=ROOT, stdout=out, stderr=out, env=_environment())


def _environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("LIONSTATE_", "PG"))}
    return {**kept, "PYTHONPATH": str(ROOT)}


async def _answers(socket: Path) -> bool:
    try:
        _, writer = await asyncio.open_unix_connection(str(socket))
    except OSError:
        return False
    writer.close()
    return True


def _last_line(log: Path) -> str:
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1][:200] if lines else "it said nothing"


@contextmanager
def one_core() -> Iterator[None]:
    """Threads and processes that are started inside run on one core, those of every arm alike.

    A single call sleeps and wakes twice, in every store that keeps its connection on a thread of its own. On a virtual
    machine the wake of an idle core was measured at 60 us, or at none, for seconds at a time: more than the rest of an
    append, and no store's doing.
    """
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(before)})
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def grown_log(path: Path) -> None:
    """Bring the write-ahead log of an idle store to the length that it has in long use, if it keeps one.

    A commit at FULL that makes the file longer was measured at 0.1 ms more than one that writes over old frames, so
    a store that had written more before it is measured looked faster. SQLite takes nothing behind the last frame for
    one.
    """
    log = path.with_name(f"{path.name}-wal")
    if log.exists():
        with log.open("r+b") as file:
            file.seek(0, os.SEEK_END)
            file.write(bytes(max(0, _LOG_BYTES - file.tell())))
            os.fsync(file.fileno())


@contextmanager
def available(row: Any, what: str) -> Iterator[None]:
    """Note on the row what could not be measured, and go on."""
    try:
        yield
    except NotAvailableError as error:
        row.missing.append(f"{what}: {error}")
    except AttributeError as error:
        if "StateDB" not in str(error) and "StateClient" not in str(error):
            raise
        row.missing.append(f"{what}: {error}")
