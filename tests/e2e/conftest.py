"""Real processes: the daemon, the command line, clients."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.demo.processes import DaemonProcess
from tests.support.backends import database_of
from tests.support.postgres import PostgresServer

# The script that the package installs beside the interpreter.
LIONSTATE = str(Path(sys.executable).with_name("lionstate"))
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
    for daemon in started:
        for line in daemon.log.read_text(encoding="utf-8").splitlines():
            assert line.startswith(("{", "lionstated: ")), f"a line of the log is no JSON: {line}"


_names = iter(range(10_000))


@pytest.fixture(params=["sqlite", "postgresql"])
def store_url(request: pytest.FixtureRequest, folder: Path) -> str:
    """A store of its own on each database, not yet created."""
    if request.param == "sqlite":
        return str(folder / "state.db")
    server: PostgresServer = request.getfixturevalue("postgres_18")
    return database_of(server, f"e2e_{os.getpid()}_{next(_names)}")


# Takes CAP_DAC_OVERRIDE out of what root gets at the next exec; for another user the call fails, who has it not.
_BOUND_BY_MODES = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(24, 1, 0, 0, 0)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""


def lionstated(*arguments: str | Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Run the daemon's command to its end."""
    return _command([sys.executable, "-m", "lionstated", *map(str, arguments)], env)


def lionstated_bound_by_modes(*arguments: str | Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Run the daemon's command to its end without root's right to pass over the modes of files."""
    return _command([sys.executable, "-c", _BOUND_BY_MODES, "-m", "lionstated", *map(str, arguments)], env)


def lionstate(*arguments: str | Path, **env: str) -> subprocess.CompletedProcess[str]:
    """Run the command ``lionstate`` to its end."""
    return _command([LIONSTATE, *map(str, arguments)], env)


def idle_control() -> float:
    """Seconds that the command takes to do nothing: what a limit in seconds is held against on a busy machine."""
    began = time.monotonic()
    assert 0 == lionstate("--version").returncode
    return time.monotonic() - began


def clean_environment(**env: str) -> dict[str, str]:
    """The environment without variables of lionstate, which would be settings."""
    return {name: value for name, value in os.environ.items() if not name.startswith("LIONSTATE_")} | env


def _command(command: list[str], env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, capture_output=True, text=True, timeout=50, env=clean_environment(**env), check=False
    )
