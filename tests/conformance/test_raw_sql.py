"""The raw surface of an in-process store (reference §2.0 "Query surface"; design §1 "only in process")."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest

from lionstate import StateDB
from lionstate.errors import BackendError, InvalidInputError, StateError, TransitionRejectedError, UniqueConflictError
from lionstate.records.status import update_status
from tests.support.backends import Backend
from tests.support.eventually import eventually
from tests.support.records import put_session

_INSERT = "INSERT INTO projects (name, source, created_at, updated_at) VALUES (:name, :source, 1, 1)"


@pytest.fixture
def db(backend: Backend) -> StateDB:
    """The store in process."""
    return backend.direct


async def test_parameters_by_name_and_by_position(db: StateDB) -> None:
    await db.execute(_INSERT, {"name": "a", "source": "s"})
    await db.execute("INSERT INTO projects (name, source, created_at, updated_at) VALUES (?, ?, ?, 1)", ["b", "t", 2.5])
    assert [{"name": "a"}, {"name": "b"}] == await db.fetch_all("SELECT name FROM projects ORDER BY name")
    assert {"source": "t"} == await db.fetch_one("SELECT source FROM projects WHERE name = ?", ("b",))
    assert {"source": "s"} == await db.fetch_one("SELECT source FROM projects WHERE name = :n", {"n": "a"})
    assert await db.fetch_one("SELECT name FROM projects WHERE name = 'none'") is None
    assert [] == await db.fetch_all("SELECT name FROM projects WHERE name = 'none'")


async def test_placeholders_inside_quotes_and_comments_are_left_alone(db: StateDB) -> None:
    await db.execute(_INSERT, {"name": "what? :name it''s", "source": "?"})
    sql = """SELECT name, '12:30 ? :x' AS "odd:name?", 'it''s ?' AS quoted -- why? :why
        /* really? :really */ FROM projects WHERE source = ?"""
    row = await db.fetch_one(sql, ["?"])
    assert {"name": "what? :name it''s", "odd:name?": "12:30 ? :x", "quoted": "it's ?"} == row
    named = await db.fetch_one(sql.replace("= ?", "= :source"), {"source": "?"})
    assert row == named


async def test_a_count_that_does_not_match_is_refused(db: StateDB) -> None:
    for params in (["a"], ["a", "b", "c"], []):
        with pytest.raises(InvalidInputError):
            await db.fetch_all("SELECT name FROM projects WHERE name = ? AND source = ?", params)
    with pytest.raises(InvalidInputError):
        await db.execute("DELETE FROM projects WHERE name = ?", "a")


async def test_a_query_cannot_write(db: StateDB) -> None:
    insert = "INSERT INTO projects (name, source, created_at, updated_at) VALUES ('x', 's', 1, 1) RETURNING name"
    with pytest.raises(BackendError):
        await db.fetch_all(insert)
    assert [] == await db.fetch_all("SELECT name FROM projects")


async def test_a_failed_statement_says_so_and_leaves_the_store_usable(db: StateDB) -> None:
    await db.execute(_INSERT, {"name": "a", "source": "s"})
    with pytest.raises(UniqueConflictError):
        await db.execute(_INSERT, {"name": "a", "source": "s"})
    for sql in ("SELEC 1", "SELECT nothing FROM nowhere", "SELECT 1 WHERE"):
        for _ in range(4):
            with pytest.raises(StateError):
                await db.fetch_all(sql)
    assert {"n": 1} == await db.fetch_one("SELECT count(*) AS n FROM projects")


async def test_a_snapshot_does_not_see_what_commits_meanwhile(db: StateDB) -> None:
    await db.execute(_INSERT, {"name": "a", "source": "s"})
    async with db.read_snapshot() as snapshot:
        assert {"n": 1} == await snapshot.fetch_one("SELECT count(*) AS n FROM projects")
        await db.execute(_INSERT, {"name": "b", "source": "s"})
        assert {"n": 1} == await snapshot.fetch_one("SELECT count(*) AS n FROM projects")
        assert [{"name": "a"}] == await snapshot.fetch_all("SELECT name FROM projects WHERE source = ?", ["s"])
        with pytest.raises(StateError):
            await snapshot.fetch_all("DELETE FROM projects RETURNING name")
    assert {"n": 2} == await db.fetch_one("SELECT count(*) AS n FROM projects")


async def test_a_transaction_commits_at_its_end_and_rolls_back_on_an_error(db: StateDB) -> None:
    async with db.transaction() as turn:
        await turn.execute(_INSERT, {"name": "a", "source": "s"})
        assert [{"name": "a"}] == await turn.fetch_all("SELECT name FROM projects")
    with pytest.raises(ZeroDivisionError):
        async with db.transaction() as turn:
            await turn.execute("DELETE FROM projects WHERE name = ?", ["a"])
            raise ZeroDivisionError
    assert {"name": "a"} == await db.fetch_one("SELECT name FROM projects")


async def test_a_refusal_inside_a_transaction_raises_what_the_facade_call_raises(backend: Backend, db: StateDB) -> None:
    """What the refused script wrote is the transaction's: there when the block goes on, gone when it does not."""
    await put_session(backend, "s", status="failed")
    change: dict[str, Any] = {"new_status": "running", "reason_code": "run.started.ok"}
    events = "SELECT count(*) AS n FROM admin_events WHERE action = 'status_transition_rejected'"
    with pytest.raises(TransitionRejectedError) as facade:
        await db.update_status("session", "s", **change)

    def script(conn: Any) -> Any:
        return update_status(conn, "session", "s", **change)

    with pytest.raises(TransitionRejectedError) as uncaught:
        async with db.transaction() as turn:
            await turn.run(script)
    assert {"n": 1} == await db.fetch_one(events)
    async with db.transaction() as turn:
        with pytest.raises(TransitionRejectedError) as caught:
            await turn.run(script)
        await turn.execute(_INSERT, {"name": "a", "source": "s"})
    assert [str(facade.value)] * 2 == [str(uncaught.value), str(caught.value)]
    assert {"n": 2} == await db.fetch_one(events)
    assert {"name": "a"} == await db.fetch_one("SELECT name FROM projects")


async def test_transactions_of_several_tasks_take_turns(db: StateDB) -> None:
    await db.execute(_INSERT, {"name": "a", "source": "0"})

    async def increment() -> None:
        async with db.transaction() as turn:
            row = await turn.fetch_one("SELECT source FROM projects WHERE name = 'a' " + lock)
            assert row is not None
            await asyncio.sleep(0)
            await turn.execute("UPDATE projects SET source = ?", [str(int(row["source"]) + 1)])

    lock = "FOR UPDATE" if db.dialect == "postgresql" else ""
    await asyncio.gather(*(increment() for _ in range(10)))
    assert {"source": "10"} == await db.fetch_one("SELECT source FROM projects")


async def test_the_schema_version_is_the_one_of_lionagi(db: StateDB) -> None:
    assert "4" == await db.schema_version()


async def _checkpointed(db: StateDB, mode: str) -> bool:
    found = await db.checkpoint(mode)
    assert found is not None
    return found[0] == 0


async def test_vacuum_and_checkpoint(db: StateDB, backend: Backend) -> None:
    """None off SQLite; modes in any case, others refused."""
    await db.execute(_INSERT, {"name": "a", "source": "s"})
    await db.vacuum()
    for mode in ("PASSIVE", "full", "Restart", "TRUNCATE"):
        if backend.is_postgresql:
            assert await db.checkpoint(mode) is None
        else:
            # A reader of the store itself, which is looking just now, keeps it from the whole log.
            assert await eventually(partial(_checkpointed, db, mode), seconds=10)
    if not backend.is_postgresql:
        with pytest.raises(InvalidInputError):
            await db.checkpoint("LAZY")
    assert {"name": "a"} == await db.fetch_one("SELECT name FROM projects")
