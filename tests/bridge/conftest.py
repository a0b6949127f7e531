"""LionAGI itself, in an environment of its own, on stores that lionstate migrates."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.bridge.talks import Store
from tests.e2e.conftest import Daemons, daemons, folder
from tests.support.lionagi_environment import bridge_python
from tests.support.postgres import PostgresServer

__all__ = ["Daemons", "Stores", "daemons", "folder"]

Stores = Callable[[str, str], Store]


@pytest.fixture(scope="session")
def lionagi_python() -> Path:
    """The interpreter that has LionAGI and lionstate."""
    return bridge_python()


@pytest.fixture(params=["sqlite", "postgresql"])
def stores(request: pytest.FixtureRequest, folder: Path, lionagi_python: Path) -> Iterator[Stores]:
    """Makes stores that do not exist yet, on each database: by name and mode."""
    made: list[str] = []

    def make(name: str, mode: str) -> Store:
        url = str(folder / f"{name}.db")
        if request.param == "postgresql":
            server: PostgresServer = request.getfixturevalue("postgres_18")
            made.append(f"interop_{os.getpid()}_{uuid.uuid4().hex}")
            url = server.create_database(made[-1])
        return Store(lionagi_python, url, folder / name, mode)

    yield make
    for database in made:
        request.getfixturevalue("postgres_18").drop_database(database)
