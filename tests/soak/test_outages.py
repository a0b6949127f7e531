"""A PostgreSQL server that ends the daemon's backends again and again, and is restarted, under load."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.conftest import Daemons, daemons, folder
from tests.support.outages import outages
from tests.support.postgres import PostgresServer

__all__ = ["daemons", "folder"]

pytestmark = [pytest.mark.anyio, pytest.mark.postgresql]


@pytest.fixture
def durable() -> Iterator[PostgresServer]:
    """A server that keeps what it has acknowledged, and may be crashed."""
    server = PostgresServer.start(18, durable=True)
    yield server
    server.stop()


async def test_every_reply_is_true(daemons: Daemons, durable: PostgresServer) -> None:
    """faults 10, 18, 34"""
    print(await outages(daemons, durable, durable.create_database("outages"), terminations=50))
