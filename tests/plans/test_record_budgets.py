"""How many statements a live message takes, alone and in a batch, and that they seek."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection

from lionstate import StateDB
from lionstate.dialects import records_postgresql
from lionstate.progression.parsed import ParsedValues
from lionstate.records.live import checked_record, record_many
from tests.support.backends import Backend, database_of, open_postgresql
from tests.support.conversations import conversation, message
from tests.support.statements import seen_on_postgresql


def _calls(count: int, *, first: int = 0) -> list[dict[str, Any]]:
    return [
        checked_record(
            {
                "msg": message(f"m{number:04d}", node_metadata={"lion_class": "pkg.Known"}),
                "session_id": "s",
                "branch_progression_id": "bp",
                "session_progression_id": "sp",
                "activity_at": 11.0,
            }
        )
        for number in range(first, first + count)
    ]


def _counted_on_the_driver(conn: Connection, work: Callable[[], Any]) -> list[str]:
    """What a SQLite connection executes, one entry per execution."""
    seen: list[str] = []
    driver: Any = conn.connection.dbapi_connection
    driver.set_trace_callback(seen.append)
    try:
        work()
    finally:
        driver.set_trace_callback(None)
    return seen


def _counted_round_trips(conn: Connection, work: Callable[[], Any]) -> list[str]:
    """The statements that go to a PostgreSQL server."""
    seen: list[str] = []
    with seen_on_postgresql(seen.append, conn):
        work()
    return seen


@pytest.fixture
async def sqlite_state(tmp_path: Path) -> AsyncIterator[StateDB]:
    async with StateDB(tmp_path / "state.db") as state:
        await conversation(Backend("sqlite", state, state), items=True)
        yield state


@pytest.fixture(params=[15, 18])
async def postgresql_state(request: pytest.FixtureRequest) -> AsyncIterator[StateDB]:
    server = request.getfixturevalue(f"postgres_{request.param}")
    async with open_postgresql(database_of(server, "budgets")) as state:
        await conversation(Backend("postgresql", state, state), items=True)
        yield state


async def test_one_live_message_on_sqlite(sqlite_state: StateDB) -> None:
    parsed = ParsedValues()

    def script(conn: Connection) -> list[str]:
        (first,) = record_many(conn, _calls(1), parsed)
        first.after_commit()
        return _counted_on_the_driver(conn, lambda: record_many(conn, _calls(1, first=1), parsed))

    async with sqlite_state.transaction() as transaction:
        seen = await transaction.run(script)
    # Phase with membership, item and allocator of two progressions; the message; the session.
    assert 2 * 3 + 1 + 1 == len(seen), seen


async def test_a_batch_on_sqlite_adds_only_its_rows(sqlite_state: StateDB) -> None:
    parsed = ParsedValues()

    def script(conn: Connection) -> list[str]:
        (first,) = record_many(conn, _calls(1), parsed)
        first.after_commit()
        return _counted_on_the_driver(conn, lambda: record_many(conn, _calls(64, first=1), parsed))

    async with sqlite_state.transaction() as transaction:
        seen = await transaction.run(script)
    # Phases, two allocators and one session for the batch; a row, two memberships and two items for each message.
    assert 1 + 2 + 1 + 64 * 5 == len(seen)


async def test_statements_on_postgresql_do_not_grow_with_the_batch(postgresql_state: StateDB) -> None:
    parsed = ParsedValues()

    def script(conn: Connection) -> tuple[list[str], list[str]]:
        (first,) = record_many(conn, _calls(1), parsed)
        first.after_commit()
        one = _counted_round_trips(conn, lambda: record_many(conn, _calls(1, first=1), parsed))
        many = _counted_round_trips(conn, lambda: record_many(conn, _calls(200, first=2), parsed))
        return one, many

    async with postgresql_state.transaction() as transaction:
        one, many = await transaction.run(script)
    # Parents, states, membership, messages, items, allocators, sessions.
    assert 7 == len(one), one
    assert one == many


async def test_the_touch_seeks_on_tables_without_statistics(postgresql_state: StateDB) -> None:
    """Design decision 10: without statistics a plain join was seen to scan the whole table."""
    await Backend("postgresql", postgresql_state, postgresql_state).execute(
        "INSERT INTO sessions (id, created_at, updated_at, progression_id)"
        " SELECT 'x' || n, 1, 1, 'sp' FROM generate_series(1, 20000) AS n"
    )
    ids = [f"x{number}" for number in range(1, 65)]

    def script(conn: Connection) -> str:
        dialect = postgresql_state.store.dialect
        return dialect.explain(
            conn, records_postgresql._TOUCH_SESSIONS.statement, {"ids": ids, "ats": [2.0] * len(ids)}
        )

    async with postgresql_state.transaction() as transaction:
        touch = await transaction.run(script)
    assert "Seq Scan on sessions" not in touch, touch
    assert "sessions_pkey" in touch, touch


async def test_messages_are_written_in_id_order(sqlite_state: StateDB, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two transactions that overwrite the same messages never wait for each other crosswise."""
    dialect = sqlite_state.store.dialect
    written: list[list[str]] = []
    monkeypatch.setattr(
        type(dialect), "upsert_messages", lambda _self, _conn, rows: written.append([row[0] for row in rows])
    )
    await sqlite_state.insert_messages([message(name) for name in ("c", "a", "d", "b", "a")])
    assert [["a", "b", "c", "d"]] == written
