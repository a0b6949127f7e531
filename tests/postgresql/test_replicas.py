"""Reads that may be old go to a standby, and to the primary when it is away or lags more than allowed."""

from __future__ import annotations

import json
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from lionstate import StateDB
from lionstate.errors import InvalidInputError, StateError
from tests.support.backends import database_of, empty_database, serve_daemon
from tests.support.eventually import eventually
from tests.support.missing import missing
from tests.support.postgres import PostgresServer, PostgresUnavailableError

LONG = 3600.0
NEW, OLD = ["a", "late"], ["a"]


@pytest.fixture(scope="module", params=[15, 18])
def primary(request: pytest.FixtureRequest) -> Iterator[PostgresServer]:
    """A primary of this module's."""
    try:
        server = PostgresServer.start(request.param, options=["max_wal_senders=4"])
    except PostgresUnavailableError as error:
        missing(str(error))
    yield server
    server.stop()


@pytest.fixture
def standby(primary: PostgresServer) -> Iterator[PostgresServer]:
    """A new standby of it."""
    server = primary.standby()
    yield server
    server.stop()


@pytest.fixture(params=["in process", "daemon"])
async def state(request: pytest.FixtureRequest, primary: PostgresServer, standby: PostgresServer) -> AsyncIterator[Any]:
    """A store with one replica, and the progression ``p`` that this has replayed."""
    url = database_of(primary, "replicated")
    # Without the question for TLS: asyncpg leaves a socket to the collector when the server dies during it.
    replica = f"{standby.dsn('replicated')}?sslmode=disable"
    async with StateDB(url=url) as direct:
        await empty_database(direct)
    opened = StateDB(url=url, replica_url=[replica]) if request.param == "in process" else _served(url, replica)
    async with opened as found:
        await found.create_progression("p", ["a"])

        async def replayed() -> bool:
            # The database itself, and the store in it, come by replication.
            with suppress(StateError):
                async with StateDB(url=replica, readonly=True) as looking:
                    return bool(await looking.get_progression("p"))
            return False

        await eventually(replayed)
        yield found


@asynccontextmanager
async def _served(url: str, replica: str) -> AsyncIterator[Any]:
    with tempfile.TemporaryDirectory() as folder:
        flags = {"database.replica_url": json.dumps([replica])}
        async with serve_daemon(url, Path(folder) / "d.sock", **flags) as client:
            yield client


async def test_only_marked_reads_go_there_and_only_within_their_lag(state: Any, standby: PostgresServer) -> None:
    new = ["a"]

    async def answers(lag: float, expected: list[str]) -> bool:
        return bool(expected == await state.stale_ok(max_lag_seconds=lag).get_progression("p"))

    async def lags() -> bool:
        # A replica of which nothing is proved yet gets no read: the primary answers, and that is as good as new.
        standby.execute("SELECT pg_wal_replay_pause()")
        new.append(f"late-{len(new)}")
        await state.append_to_progression("p", new[-1])
        if await answers(LONG, new[:-1]):
            return True
        standby.execute("SELECT pg_wal_replay_resume()")
        return False

    await eventually(lags)
    old = new[:-1]
    assert new == await state.get_progression("p")
    assert old == await state.stale_ok(max_lag_seconds=LONG).get_progression("p")
    # Once the replica's last proof is older than that, and never after.
    await eventually(lambda: answers(1.0, new))
    assert new == await state.stale_ok(max_lag_seconds=1.0).get_progression("p")
    assert old == await state.stale_ok(max_lag_seconds=LONG).get_progression("p")
    standby.execute("SELECT pg_wal_replay_resume()")
    await eventually(lambda: answers(LONG, new))


async def test_the_primary_answers_for_a_replica_that_is_away(state: Any, standby: PostgresServer) -> None:
    assert OLD == await state.stale_ok(max_lag_seconds=LONG).get_progression("p")
    standby.crash()
    await state.append_to_progression("p", "late")
    for _ in range(3):
        assert NEW == await state.stale_ok(max_lag_seconds=LONG).get_progression("p")


async def test_a_promoted_replica_is_none(state: Any, standby: PostgresServer) -> None:
    assert OLD == await state.stale_ok(max_lag_seconds=LONG).get_progression("p")
    standby.execute("SELECT pg_promote(true, 10)")
    await state.append_to_progression("p", "late")

    async def sees() -> bool:
        return bool(NEW == await state.stale_ok(max_lag_seconds=LONG).get_progression("p"))

    await eventually(sees)


async def test_what_is_no_replica_is_refused(primary: PostgresServer, tmp_path: Path) -> None:
    with pytest.raises(InvalidInputError, match="a SQLite store has no replicas"):
        await StateDB(tmp_path / "state.db", replica_url=[primary.dsn()]).open()
    with pytest.raises(InvalidInputError, match="begins with postgresql://"):
        await StateDB(url=database_of(primary, "replicated"), replica_url=[str(tmp_path / "state.db")]).open()
