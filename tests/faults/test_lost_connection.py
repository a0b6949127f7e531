"""PostgreSQL: a connection that is lost before, in and after COMMIT (design §2.1; faults 34, 57, 58)."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from contextlib import suppress

import pytest
from sqlalchemy import Connection, text

from lionstate import StateDB
from lionstate.engine import EngineSettings, postgresql
from lionstate.errors import BackendUnavailableError, DeadlineExceededError, OutcomeUnknownError, StateError
from lionstate.operations import OPERATIONS
from lionstate.progression.append import append_to_progression
from lionstate.store import Store
from tests.support.backends import database_of, empty_database
from tests.support.postgres import PostgresServer
from tests.support.proxy import CuttingProxy, cutting_proxy
from tests.support.store_calls import append, gathered, put_progression, read_ids

# As asyncpg sends it; BEGIN names READ COMMITTED.
_COMMIT = b"COMMIT;\0"


@pytest.fixture(params=["postgres_15", "postgres_18"])
async def proxy(request: pytest.FixtureRequest) -> AsyncIterator[CuttingProxy]:
    """A proxy before an empty database."""
    server: PostgresServer = request.getfixturevalue(request.param)
    dsn = database_of(server, "lost")
    async with StateDB(url=dsn) as state:
        await empty_database(state)
    async with cutting_proxy(dsn) as found:
        yield found


@pytest.fixture
async def store(proxy: CuttingProxy) -> AsyncIterator[Store]:
    """A store that is reached through the proxy, without cached statements: their text shows where to cut."""
    found = await Store.open(proxy.dsn, EngineSettings(pooler="transaction"))
    await put_progression(found, "p")
    yield found
    await found.close()


async def _code(store: Store, message_id: str) -> str:
    try:
        await append(store, "p", message_id)
    except StateError as error:
        return error.code
    return "written"


@pytest.mark.parametrize("needle", [b"UPDATE progressions", b"pg_current_xact_id", b"FOR NO KEY UPDATE"])
async def test_a_lane_lost_inside_a_script_writes_nothing(store: Store, proxy: CuttingProxy, needle: bytes) -> None:
    """Nothing was committed, so the outcome is ``not_written``, not unknown; the next batch has a new connection."""
    proxy.cut(needle, "after")
    assert "backend_unavailable" == await _code(store, "a")
    assert 1 == proxy.cuts
    assert "written" == await _code(store, "b")
    assert ["b"] == await read_ids(store, "p")


async def test_a_lost_lane_starts_no_replay(store: Store, proxy: CuttingProxy) -> None:
    """A failure of the store ends the whole batch ``not_written``."""
    proxy.cut(b"UPDATE progressions", "before")
    results = await gathered(store, *(append(store, "p", f"m{number}") for number in range(10)))
    assert {"BackendUnavailableError"} == {type(found).__name__ for found in results}
    assert [] == await read_ids(store, "p")


async def test_commit_cut_before_the_server_saw_it_is_not_written(store: Store, proxy: CuttingProxy) -> None:
    """``pg_xact_status`` says aborted once the server has noticed."""
    proxy.cut(_COMMIT, "before")
    assert "backend_unavailable" == await _code(store, "a")
    assert 1 == proxy.cuts
    assert [] == await read_ids(store, "p")


async def test_commit_whose_answer_is_lost_is_written(store: Store, proxy: CuttingProxy) -> None:
    """Fault 34: ``pg_xact_status`` says committed, and a retry of the same id changes nothing."""
    proxy.cut(_COMMIT, "after")
    assert "written" == await _code(store, "a")
    assert 1 == proxy.cuts
    await append(store, "p", "a")
    assert ["a"] == await read_ids(store, "p")


async def test_commit_that_nobody_can_be_asked_about_is_unknown(
    store: Store, proxy: CuttingProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server is gone, which ends the asking early; when it is back the store goes on, the row is there or not."""
    monkeypatch.setattr(postgresql, "_STATUS_WAIT", 20.0)
    monkeypatch.setattr(postgresql, "_GONE_SECONDS", 0.3)
    proxy.cut(_COMMIT, "after", then_refuse=True)
    async with asyncio.timeout(10):
        with pytest.raises(OutcomeUnknownError):
            await append(store, "p", "a")
    assert "backend_unavailable" == await _code(store, "b")
    proxy.refusing = False
    await append(store, "p", "c")
    assert await read_ids(store, "p") in (["a", "c"], ["c"])


async def test_an_explicit_transaction_is_decided_alike(store: Store, proxy: CuttingProxy) -> None:
    """``transaction()`` asks the server too."""
    insert = "INSERT INTO progressions (id, created_at, collection) VALUES (:id, 1, '[]')"
    proxy.cut(_COMMIT, "after")
    async with store.transaction() as turn:
        await turn.execute(insert, {"id": "there"})
    proxy.cut(_COMMIT, "before")
    with pytest.raises(BackendUnavailableError):
        async with store.transaction() as turn:
            await turn.execute(insert, {"id": "not there"})
    async with store.snapshot() as snapshot:
        found = await snapshot.fetch_all("SELECT id FROM progressions ORDER BY id")
    assert ["p", "there"] == [row["id"] for row in found]


async def test_a_read_is_tried_once_more(store: Store, proxy: CuttingProxy) -> None:
    """Reading twice is harmless, so a caller does not see one lost connection."""
    proxy.cut(b"FROM progressions", "before")
    assert [] == await read_ids(store, "p")
    assert 1 == proxy.cuts


async def test_a_swallowed_error_does_not_turn_commit_into_a_rollback_unseen(any_store: Store) -> None:
    """After an error PostgreSQL answers COMMIT with ROLLBACK and no error; the block must not end as written."""
    insert = "INSERT INTO progressions (id, created_at, collection) VALUES ('x', 1, '[]')"
    async with any_store.transaction() as turn:
        await turn.execute(insert)
    try:
        async with any_store.transaction() as turn:
            await turn.execute("INSERT INTO progressions (id, created_at, collection) VALUES ('y', 1, '[]')")
            with pytest.raises(StateError):
                await turn.execute(insert)
        said_written = True
    except StateError:
        said_written = False
    async with any_store.snapshot() as snapshot:
        found = await snapshot.fetch_one("SELECT count(*) AS n FROM progressions WHERE id = 'y'")
    assert found == {"n": int(said_written)}


async def test_an_error_swallowed_behind_an_append_takes_the_append_along(any_store: Store) -> None:
    """The append has brought the transaction's mark, so nothing is asked before COMMIT; its answer tells."""
    await any_store.run(OPERATIONS["create_progression"], {"progression_id": "p", "collection": ["a"]})

    def script(conn: Connection) -> None:
        append_to_progression(conn, "p", "b")
        with suppress(Exception):
            conn.execute(text("SELECT nothing FROM nowhere"))

    try:
        await any_store.write("test", script, progressions=["p"])
        expected = ["a", "b"]
    except StateError:
        expected = ["a"]
    assert expected == await read_ids(any_store, "p")
    assert (any_store.url.dialect == "sqlite") is ("b" in expected)


async def test_a_transaction_has_a_time_limit(any_store: Store) -> None:
    """Past the limit it is rolled back and says so; the writer is free again."""
    limited = await Store.open(any_store.url, dataclasses.replace(any_store.settings, transaction_limit_seconds=0.2))
    try:
        with pytest.raises(DeadlineExceededError):
            async with limited.transaction() as turn:
                await turn.execute("INSERT INTO progressions (id, created_at, collection) VALUES ('z', 1, '[]')")
                while True:
                    await turn.fetch_one("SELECT 1")
        assert [] == await read_ids(limited, "z")
        await put_progression(limited, "z")
    finally:
        await limited.close()
