"""A daemon in the test's own process, on a Unix socket."""

from __future__ import annotations

import contextlib
import socket
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import pytest

from lionstated.process import Daemon
from tests.daemon.fakes import OPERATIONS, FakeStore, factory, settings_for


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """asyncio, the only loop that lionstate supports."""
    return "asyncio"


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a short path: socket paths are bounded."""
    with tempfile.TemporaryDirectory(prefix="ls") as name:
        yield Path(name)


@pytest.fixture
def store() -> FakeStore:
    """The store behind the daemon."""
    return FakeStore()


Serving = Callable[..., AbstractAsyncContextManager[Daemon]]


@pytest.fixture
def serving(folder: Path, store: FakeStore) -> Serving:
    """Runs a daemon for the length of a block, and stops it in order."""

    @contextlib.asynccontextmanager
    async def run(parts: dict[str, Any] | None = None, **flags: str) -> AsyncIterator[Daemon]:
        daemon = Daemon(
            settings_for(folder, **flags),
            operations=OPERATIONS,
            store_factory=factory(store, **(parts or {})),
        )
        async with anyio.create_task_group() as group:
            await group.start(daemon.run)
            try:
                yield daemon
            finally:
                store.gate.set()
                if not daemon._stop.is_set():
                    daemon.stop()

    return run


@pytest.fixture
async def http(folder: Path) -> AsyncIterator[aiohttp.ClientSession]:
    """A plain HTTP client on the daemon's socket."""
    connector = aiohttp.UnixConnector(str(folder / "d.sock"))
    async with aiohttp.ClientSession("http://d", connector=connector) as session:
        yield session


def free_address() -> str:
    """A loopback address that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"
