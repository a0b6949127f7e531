"""``backend`` and ``state``: a test that takes one of them runs on every backend, under the same node ids."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from lionstate import StateDB
from tests.support.backends import (
    BACKENDS,
    Backend,
    database_of,
    open_postgresql,
    open_sqlite,
    serve_daemon,
)


@pytest.fixture(scope="session")
def empty_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An empty SQLite store with its schema, to copy."""
    path = tmp_path_factory.mktemp("template") / "empty.db"

    async def make() -> None:
        async with StateDB(path):
            pass

    asyncio.run(make())
    return path


def params_of(names: Sequence[str]) -> list[Any]:
    """The parameters of a fixture that gives these backends."""
    return [pytest.param(name, marks=[pytest.mark.postgresql] if "postgresql" in name else []) for name in names]


@asynccontextmanager
async def open_backend(request: pytest.FixtureRequest, empty_store: Path, tmp_path: Path) -> AsyncIterator[Backend]:
    """The backend that the fixture's parameter names, with an empty store."""
    name: str = request.param
    if "postgresql" in name:
        server = request.getfixturevalue("postgres_15" if name.endswith("15") else "postgres_18")
        direct = open_postgresql(database_of(server, "conformance"))
    else:
        direct = open_sqlite(empty_store, tmp_path / "state.db")
    async with direct as state:
        if not name.startswith("daemon"):
            yield Backend(name, state, state)
            return
        with tempfile.TemporaryDirectory() as folder:
            # Tests alter rows from the side; the scrubber would find that and protect the reads, some time or other.
            flags = {"maintenance.scrub_items_per_second": "0"}
            async with serve_daemon(state.url, Path(folder) / "d.sock", **flags) as client:
                yield Backend(name, client, state)


@pytest.fixture(params=params_of(BACKENDS))
async def backend(request: pytest.FixtureRequest, empty_store: Path, tmp_path: Path) -> AsyncIterator[Backend]:
    """A backend with an empty store."""
    async with open_backend(request, empty_store, tmp_path) as found:
        yield found


@pytest.fixture
def state(backend: Backend) -> Any:
    """The facade under test."""
    return backend.state
