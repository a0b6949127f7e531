"""The contract behind a PgBouncer in transaction mode (design decision 35): connections change hands."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from lionstate import StateDB
from lionstate.engine import EngineSettings
from tests.conformance import (
    test_append,
    test_batch,
    test_raw_sql,
    test_receipts,
    test_record_message,
)
from tests.conformance.test_raw_sql import db
from tests.migration import test_lease, test_path
from tests.support.backends import Backend, database_of, empty_database, serve_daemon
from tests.support.borrowed import borrowed_from
from tests.support.migration import patient
from tests.support.missing import missing
from tests.support.pooler import Pooler, pooler_before
from tests.support.postgres import PostgresServer, PostgresUnavailableError

__all__ = ["db"]

POOLED = EngineSettings(pooler="transaction")
# Fewer than one process has lanes and readers, so that connections change hands at every transaction.
CONNECTIONS = 3

globals().update(
    borrowed_from(test_append, test_batch, test_raw_sql, test_receipts, test_record_message, test_lease, test_path)
)


@pytest.fixture(scope="module", params=["postgres_15", "postgres_18"])
def pooled(request: pytest.FixtureRequest) -> Iterator[tuple[Pooler, PostgresServer]]:
    """A pooler before each of the servers."""
    server: PostgresServer = request.getfixturevalue(request.param)
    try:
        with pooler_before(server, connections=CONNECTIONS) as pooler:
            yield pooler, server
    except PostgresUnavailableError as error:
        missing(str(error))


@pytest.fixture
def dsn(pooled: tuple[Pooler, PostgresServer]) -> str:
    """A database of this process's, through the pooler."""
    pooler, server = pooled
    return pooler.dsn(database_of(server, "pooled"))


@pytest.fixture
async def backend(dsn: str, pooled: tuple[Pooler, PostgresServer]) -> AsyncIterator[Backend]:
    """An empty store behind the pooler; nothing of ours stays prepared on the server."""
    async with StateDB(url=dsn, settings=POOLED) as state:
        await empty_database(state)
        backend = Backend(f"postgresql-{pooled[1].version}", state, state)
        await patient(backend)
        yield backend
        for _ in range(CONNECTIONS):
            assert [] == await backend.rows("SELECT name FROM pg_prepared_statements")


async def test_daemons_behind_a_pooler_lose_and_double_nothing(dsn: str, backend: Backend) -> None:
    """Two daemons, four clients each, while progressions migrate under them: far more callers than connections."""
    clients, each = 4, 30
    await backend.put_progression("p", '["first"]')
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        flags = {
            "database.pooler": "transaction",
            "maintenance.enabled": "true",
            "maintenance.interval_seconds": "0.05",
        }
        served = [
            await stack.enter_async_context(serve_daemon(dsn, folder / f"{number}.sock", **flags))
            for number in range(2)
        ]

        async def write(client: int) -> None:
            for number in range(each):
                await served[client % 2].append_to_progression("p", f"{client}-{number}")
                await served[client % 2].append_to_progression("p", f"shared-{number}")

        await asyncio.gather(*(write(client) for client in range(2 * clients)))
        found = [await client.get_progression("p") for client in served]
    assert found[0] == found[1]
    assert "first" == found[0][0]
    mine = {f"{client}-{number}" for client in range(2 * clients) for number in range(each)}
    assert sorted(mine | {f"shared-{number}" for number in range(each)}) == sorted(found[0][1:])
    for client in range(2 * clients):
        assert [f"{client}-{number}" for number in range(each)] == [
            name for name in found[0] if name.startswith(f"{client}-")
        ]


async def test_lane_settings_end_with_their_transaction(backend: Backend) -> None:
    """What a lane sets would otherwise meet the next process on the same connection."""
    await backend.state.create_progression("p", [])
    await asyncio.gather(*(backend.state.append_to_progression("p", f"m{number}") for number in range(20)))
    rows = await asyncio.gather(
        *(backend.state.fetch_one("SELECT current_setting('enable_seqscan') AS scan") for _ in range(CONNECTIONS * 2))
    )
    assert [{"scan": "on"}] * CONNECTIONS * 2 == rows
