"""LionAGI 0.36.0 in an environment and a process of its own, and a store that it has made."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.missing import missing
from tests.support.postgres import PostgresServer

_ROOT = Path(__file__).resolve().parents[2]
# The environment of `make demo-lionagi`, which makes it too.
_VENV = _ROOT / ".venv-lionagi"
_REQUIREMENTS = _ROOT / "tests" / "demo" / "lionagi-requirements.txt"


@contextmanager
def _alone() -> Iterator[None]:
    with (_ROOT / ".venv-lionagi.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _environment() -> Path:
    """The interpreter of LionAGI's environment, which is made where it is missing."""
    python, stamp = _VENV / "bin" / "python", _VENV / ".installed"
    with _alone():
        if not stamp.exists():
            subprocess.run([sys.executable, "-m", "venv", _VENV], check=True, capture_output=True)
            pip = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", _REQUIREMENTS]
            subprocess.run(pip, check=True, capture_output=True)
            stamp.touch()
    return python


class LionAGI:
    """A process that calls LionAGI's methods, one after the other."""

    def __init__(self, python: Path, home: Path) -> None:
        # Isolated and with a home of its own, so that nothing of the user's is touched.
        environment = {"PATH": os.environ.get("PATH", os.defpath), "HOME": str(home), "LIONAGI_HOME": str(home)}
        self._log = (home / "stderr").open("w")
        self._process = subprocess.Popen(
            [python, "-I", Path(__file__).with_name("lionagi_driver.py")],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
        )

    def open(self, url: str) -> None:
        """Open a store, creating it if need be; calls go to the one opened last."""
        self._ask(["open", url])

    def call(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """Call a method with values that JSON carries."""
        return self._ask([method, list(args), kwargs])

    def _ask(self, request: list[Any]) -> Any:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()
        answer = json.loads(self._process.stdout.readline())
        assert "error" not in answer, f"LionAGI's {request[0]}: {answer}"
        return answer["result"]

    def close(self) -> None:
        """Close its stores and end it."""
        self._process.communicate(timeout=30)
        self._log.close()


@pytest.fixture(scope="session")
def lionagi(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LionAGI]:
    """The package itself, at work."""
    try:
        python = _environment()
    except subprocess.CalledProcessError as error:
        missing(f"LionAGI 0.36.0 cannot be installed here: {error.stderr.decode()[-300:]}")
    running = LionAGI(python, tmp_path_factory.mktemp("lionagi"))
    yield running
    running.close()


@pytest.fixture(scope="session")
def sqlite_store(lionagi: LionAGI, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The path of a store that LionAGI has made."""
    path = str(tmp_path_factory.mktemp("interop") / "state.db")
    lionagi.open(path)
    return path


@pytest.fixture(scope="session")
def postgresql_store(lionagi: LionAGI, postgres_18: PostgresServer) -> str:
    """The URL of a database that LionAGI has made a store of."""
    url = postgres_18.create_database("interop")
    lionagi.open(url)
    return url


@pytest.fixture(params=["sqlite", pytest.param("postgresql-18", marks=pytest.mark.postgresql)])
def url(request: pytest.FixtureRequest, lionagi: LionAGI) -> str:
    """A store that LionAGI has made and has open."""
    name = "sqlite_store" if request.param == "sqlite" else "postgresql_store"
    found: str = request.getfixturevalue(name)
    lionagi.open(found)
    return found
