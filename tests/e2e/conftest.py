"""Real processes: the daemon, the command line, clients."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.demo.processes import DaemonProcess
from tests.support.backends import database_of
from tests.support.postgres import PostgresServer

Daemons = Callable[..., DaemonProcess]


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a short path: socket paths are bounded."""
    with tempfile.TemporaryDirectory(prefix="ls") as name:
        yield Path(name)


@pytest.fixture
def daemons(folder: Path) -> Iterator[Daemons]:
    """Starts daemons and waits until they serve; whatever still runs at the end is killed."""
    started: list[DaemonProcess] = []

    def start(url: str | Path, *, wait: bool = True, **flags: str) -> DaemonProcess:
        daemon = DaemonProcess(str(url), folder, **flags)
        started.append(daemon)
        if wait:
            daemon.wait_until_ready()
        return daemon

    yield start
    for daemon in started:
        daemon.kill()


_names = iter(range(10_000))


@pytest.fixture(params=["sqlite", "postgresql"])
def store_url(request: pytest.FixtureRequest, folder: Path) -> str:
    """A store of its own on each database, not yet created."""
    if request.param == "sqlite":
        return str(folder / "state.db")
    server: PostgresServer = request.getfixturevalue("postgres_18")
    return database_of(server, f"e2e_{os.getpid()}_{next(_names)}")


def command(*arguments: str | Path, timeout: float = 30.0, **env: str) -> subprocess.CompletedProcess[str]:
    """Run ``python -m MODULE …`` to its end; variables of lionstate are not inherited."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("LIONSTATE_")}
    return subprocess.run(
        [sys.executable, "-m", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=timeout,
        env={**clean, **env},
        check=False,
    )
