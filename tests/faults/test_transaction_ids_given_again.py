"""PostgreSQL: after a crash the id of a transaction in doubt belongs to another one (design §2.1; faults 10, 34)."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress

import asyncpg
import pytest

from lionstate.engine import EngineSettings
from lionstate.errors import OutcomeUnknownError
from lionstate.store import Store
from tests.support.backends import database_of
from tests.support.eventually import eventually
from tests.support.missing import missing
from tests.support.postgres import PostgresServer, PostgresUnavailableError
from tests.support.proxy import cutting_proxy
from tests.support.store_calls import append, put_progression, read_ids

Crash = Callable[[PostgresServer], Awaitable[None]]

pytestmark = pytest.mark.postgresql


@pytest.fixture(scope="module", params=[15, 18])
def forgetful(request: pytest.FixtureRequest) -> Iterator[PostgresServer]:
    """A server whose log reaches the disk by checkpoints only."""
    try:
        server = PostgresServer.start(request.param, options=["wal_writer_delay=10s"])
    except PostgresUnavailableError as error:
        missing(str(error))
    yield server
    server.stop()


@asynccontextmanager
async def _connected(server: PostgresServer) -> AsyncIterator[asyncpg.Connection]:
    conn = await asyncpg.connect(server.dsn().replace("+asyncpg", ""))
    try:
        yield conn
    finally:
        with suppress(asyncpg.PostgresError, OSError):
            await conn.close()


async def _restarted(server: PostgresServer) -> None:
    server.crash()
    server.restart()


async def _lost_a_backend(server: PostgresServer) -> None:
    """The postmaster, whose start time stays, ends all others and recovers."""
    async with _connected(server) as conn, _connected(server) as other:
        os.kill(conn.get_server_pid(), signal.SIGKILL)
        await eventually(other.is_closed)

    async def is_up() -> bool:
        with suppress(asyncpg.PostgresError, OSError):
            async with _connected(server):
                return True
        return False

    await eventually(is_up)


@pytest.mark.parametrize("crash", [_restarted, _lost_a_backend])
async def test_the_end_of_another_transaction_is_not_taken_for_ours(forgetful: PostgresServer, crash: Crash) -> None:
    """The log of the batch was lost with the server; the id it had is committed by somebody else: unknown."""
    async with cutting_proxy(database_of(forgetful, str(crash.__name__))) as proxy:
        store = await Store.open(proxy.dsn, EngineSettings(pooler="transaction"))
        await put_progression(store, "p")
        async with _connected(forgetful) as conn:
            await conn.execute("CHECKPOINT")
            free = await conn.fetchval("SELECT pg_snapshot_xmax(pg_current_snapshot())::text")
        proxy.cut(b"COMMIT;\0", "before", then_refuse=True)
        ours = asyncio.create_task(append(store, "p", "a"))
        await eventually(lambda: proxy.cuts == 1)
        await crash(forgetful)
        async with _connected(forgetful) as conn:
            given = [await conn.fetchval("SELECT pg_current_xact_id()::text") for _ in range(20)]
        assert free in given
        proxy.refusing = False
        with pytest.raises(OutcomeUnknownError):
            await ours
        assert [] == await read_ids(store, "p")
        await append(store, "p", "b")
        assert ["b"] == await read_ids(store, "p")
        await store.close()
