"""Fixtures of every tier: the event loop, the PostgreSQL servers, and a store on every backend."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.method_kinds import MethodKinds
from tests.support.missing import missing
from tests.support.postgres import PostgresServer, PostgresUnavailableError
from tests.support.stores import backend, empty_store, state

__all__ = ["COLLECTED", "backend", "empty_store", "state"]

COLLECTED = pytest.StashKey[list[str]]()
"""Node ids of a run before any was deselected."""

_SERVERS = {"postgres_15": 15, "postgres_18": 18}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Ask for the report of `method_kinds` on a part of the suite."""
    parser.addoption("--method-kinds", action="store_true", help="judge which methods the conformance tests call")


def pytest_configure(config: pytest.Config) -> None:
    """Watch which facade methods the conformance tests call."""
    config.pluginmanager.register(MethodKinds())


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what takes a server, so that `-m postgresql` finds it; note what was collected."""
    config.stash[COLLECTED] = [item.nodeid for item in items]
    for item in items:
        if not _SERVERS.keys().isdisjoint(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.postgresql)


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    """asyncio, the only loop that lionstate supports."""
    return "asyncio"


@pytest.fixture(scope="session")
def postgres_15() -> Iterator[PostgresServer]:
    """A PostgreSQL 15 of this test process."""
    yield from _server(15)


@pytest.fixture(scope="session")
def postgres_18() -> Iterator[PostgresServer]:
    """A PostgreSQL 18 of this test process."""
    yield from _server(18)


def _server(version: int) -> Iterator[PostgresServer]:
    try:
        server = PostgresServer.start(version)
    except PostgresUnavailableError as exc:
        missing(str(exc))
    yield server
    server.stop()
