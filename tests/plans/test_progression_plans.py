"""Plans of tail, count and membership, and the statement budget of an append (ADR-0117 D6; design decisions 5, 10)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pytest
from sqlalchemy import Connection, Executable

from lionstate.dialects import appends, appends_postgresql, dialect_of, postgresql, sqlite
from lionstate.progression import items, reads
from lionstate.records.branch_messages import page_query
from lionstate.records.messages import WHOLE, present_query
from tests.support.backends import Backend
from tests.support.phases import put, run
from tests.support.statements import statements

ROWS = 20_000


STATISTICS = ["none", "stale", "fresh"]


async def _seed(backend: Backend, statistics: str = "none") -> None:
    """One large progression among a thousand small ones; the statistics may know nothing, or not of the large one."""
    await _forget_statistics(backend)
    if statistics == "stale":
        # One progression was all there was: the planner expects not one row of any other.
        await put(backend, "first", "items", [f"m{number:06d}" for number in range(100)])
        await backend.execute("ANALYZE progression_items")
    await _seed_small(backend)
    await put(backend, "large", "items", [f"m{number:06d}" for number in range(ROWS)])
    if statistics == "fresh":
        await backend.execute("ANALYZE progression_items")
    elif statistics == "none":
        # The server may have looked meanwhile, at a table that was nearly empty.
        await _forget_statistics(backend)


async def _forget_statistics(backend: Backend) -> None:
    if backend.is_postgresql:
        await backend.execute("DELETE FROM pg_statistic WHERE starelid = CAST('progression_items' AS regclass)")
        await backend.execute("UPDATE pg_class SET reltuples = -1 WHERE relname = 'progression_items'")


async def _seed_small(backend: Backend) -> None:
    rows = [(f"p{number:04d}", place, f"x{place}") for number in range(1_000) for place in range(10)]

    def script(conn: Connection) -> None:
        for number in range(1_000):
            conn.exec_driver_sql(
                f"INSERT INTO progressions (id, created_at, collection) VALUES ('p{number:04d}', 1.0, '[]')"
            )
        dialect_of(conn).insert_items(conn, rows)

    await run(backend.direct, script)


async def _plan(backend: Backend, statement: Executable, params: Mapping[str, Any], *, preferring: bool = False) -> str:
    def script(conn: Connection) -> str:
        if preferring:
            dialect_of(conn).prefer_indexes(conn)
        return dialect_of(conn).explain(conn, statement, params)

    found: str = await run(backend.direct, script)
    return found


def _uses_no_json(backend: Backend, plan: str) -> None:
    names = backend.direct.store.dialect.capabilities.json_functions
    assert [] == [name for name in (*names, "json_each", "jsonb_array_elements_text") if name in plan], plan


TAIL = {"pid": "large", "after": -1, "before": items.MAX_ORDINAL, "count": 200}


@pytest.mark.parametrize("statistics", STATISTICS)
@pytest.mark.parametrize("newest_first", [False, True])
async def test_a_page_is_a_range_of_the_primary_key(backend: Backend, statistics: str, newest_first: bool) -> None:
    await _seed(backend, statistics)
    plan = await _plan(backend, (items.PAGE_BACK if newest_first else items.PAGE).statement, TAIL, preferring=True)
    _is_key_range(backend, plan)
    assert "Sort" not in plan and "TEMP B-TREE" not in plan, plan
    plain = (reads.PLAIN_PAGE_BACK if newest_first else reads.PLAIN_PAGE).statement
    plan = await _plan(backend, plain, {**TAIL, **reads.PLAIN_ITEMS}, preferring=True)
    _is_key_range(backend, plan[plan.rindex("progression_items_pkey") :] if backend.is_postgresql else plan)
    assert "Sort" not in plan and "TEMP B-TREE" not in plan, plan
    assert "idx_progression_storage_state_phase" not in plan, plan


@pytest.mark.parametrize(("statistics", "forward"), [("stale", False), ("fresh", True)])
async def test_a_page_of_messages_is_that_range_and_a_seek_each(
    backend: Backend, statistics: str, forward: bool
) -> None:
    await _seed(backend, statistics)
    await backend.state.create_session({"id": "s", "progression_id": "p0000"})
    await backend.state.create_branch({"id": "b", "session_id": "s", "progression_id": "large"})
    content = "CAST('{}' AS JSON)" if backend.is_postgresql else "'{}'"
    await backend.execute(
        "INSERT INTO messages (id, created_at, role, lion_class, content)"
        f" SELECT message_id, 1.0, 'user', 0, {content} FROM progression_items WHERE progression_id = 'large'"
    )
    if statistics == "fresh":
        await backend.execute("ANALYZE messages")

    await _seeks_messages(backend, forward)
    await _seeks_messages(backend, forward, ("content", "role"))
    # Nor where nearly all of them are gone, which is when a whole table looks cheap.
    await backend.execute("DELETE FROM messages WHERE id > 'm000009'")
    if statistics == "fresh":
        await backend.execute("ANALYZE messages")
    await _seeks_messages(backend, forward)


async def _seeks_messages(backend: Backend, forward: bool, read: tuple[str, ...] = WHOLE) -> None:
    message_key = "messages_pkey" if backend.is_postgresql else "sqlite_autoindex_messages_1 (id=?)"
    of_progression = {"pid": "large", "generation": 1}
    for plain, named in ((True, {"branch": "b", **reads.PLAIN_ITEMS}), (False, of_progression)):

        def page(conn: Connection, plain: bool = plain, named: dict[str, Any] = named) -> str:
            dialect_of(conn).prefer_indexes(conn)
            bound = {"after": -1, "before": items.MAX_ORDINAL, "count": 200, **named}
            query = page_query(conn, forward=forward, plain=plain, read=read).statement
            # Nothing but what is read, and names of classes for their own sake only.
            of_messages = re.findall(r"messages\.(\w+)", str(query).partition("progression_items.ordinal")[0])
            assert [name for name in read if name != "lion_class_str"] == of_messages
            assert ("lion_class_str" in read) is ("message_types" in str(query))
            return dialect_of(conn).explain(conn, query, bound)

        plan: str = await run(backend.direct, page)
        assert "idx_progression_storage_state_phase" not in plan, plan
        # Filters are only where the progression is found, which happens once and comes first.
        _is_key_range(backend, plan[plan.rindex("progression_items_pkey") :] if backend.is_postgresql else plan)
        assert message_key in plan, plan
        for bad in ("Sort", "TEMP B-TREE", "Hash", "Seq Scan", "SCAN messages", "SCAN branches"):
            assert bad not in plan, plan

    def keys(conn: Connection) -> str:
        dialect_of(conn).prefer_indexes(conn)
        return dialect_of(conn).explain(conn, present_query(conn), {"ids": dialect_of(conn).bind_ids(["m1", "m2"])})

    plan = await run(backend.direct, keys)
    assert message_key in plan and "Seq Scan" not in plan and "SCAN messages" not in plan, plan


def _is_key_range(backend: Backend, plan: str) -> None:
    _uses_no_json(backend, plan)
    if backend.is_postgresql:
        assert "progression_items_pkey" in plan and "Seq Scan" not in plan, plan
        assert "Index Cond: (" in plan and "ordinal >" in plan, plan
        assert "Filter" not in plan, plan
    else:
        assert "SEARCH progression_items USING PRIMARY KEY (progression_id=? AND ordinal>" in plan, plan
        assert "SCAN progression_items" not in plan, plan


@pytest.mark.parametrize("statistics", STATISTICS)
async def test_a_count_is_a_range_of_the_primary_key(backend: Backend, statistics: str) -> None:
    await _seed(backend, statistics)

    def script(conn: Connection) -> tuple[str, int]:
        count = items.count_items(conn, "large")
        return dialect_of(conn).explain(conn, items.COUNT.statement, {"pid": "large", "first": 0}), count

    plan, count = await run(backend.direct, script)
    assert ROWS == count
    _is_key_range(backend, plan)


@pytest.mark.parametrize("statistics", STATISTICS)
async def test_an_append_in_one_statement_only_seeks(backend: Backend, statistics: str) -> None:
    """Only PostgreSQL has it; SQLite's statements are those of the next test."""
    if not backend.is_postgresql:
        return
    await _seed(backend, statistics)
    params = {"pid": "large", "mid": "m000007", "now": 1.0}
    plan = await _plan(backend, appends_postgresql.TRY_APPEND.statement, params)
    assert "Seq Scan" not in plan, plan

    assert "progression_items_pkey" not in plan, plan
    assert "message_id = " in plan and "Filter: (message_id" not in plan, plan


@pytest.mark.parametrize("statistics", STATISTICS)
async def test_membership_seeks_the_message_index(backend: Backend, statistics: str) -> None:
    """Decision 10: without statistics a join was seen to scan the whole table."""
    await _seed(backend, statistics)
    if backend.is_postgresql:
        params = {"pids": ["large"] * 64, "mids": [f"m{number:06d}" for number in range(64)]}
        plan = await _plan(backend, postgresql._EXISTING_ITEMS.statement, params)
        assert "idx_progression_items_message" in plan and "Seq Scan" not in plan, plan
    else:
        for found in (sqlite._ITEM_EXISTS, appends.LOOK):
            plan = await _plan(backend, found.statement, {"pid": "large", "mid": "m000007"})
            assert "idx_progression_items_message (progression_id=? AND message_id=?)" in plan, plan
            assert "SCAN progression_items" not in plan, plan


async def test_the_orphan_probe_is_a_seek(backend: Backend) -> None:
    await _seed(backend)
    if backend.is_postgresql:
        plan = await _plan(backend, postgresql._WITH_ITEMS.statement, {"pids": ["large"] * 64})
        assert "progression_items_pkey" in plan and "Seq Scan" not in plan, plan
    else:
        plan = await _plan(backend, sqlite._WITH_ITEMS.statement, {"ids": '["large"]'})
        assert "SEARCH progression_items" in plan and "(progression_id=?)" in plan, plan


# On PostgreSQL an append to items is one statement; one that finds another phase has locked the parent.
BUDGET = {"absent": 5, "dual": 6, "items": 1, "blocked-json": 4, "blocked-items": 5}
# On SQLite the transaction is the lock: parents, state rows and, for a single pair, membership are read at once.
SAVED = {"absent": 1, "dual": 1, "items": -2, "blocked-json": 1, "blocked-items": 2}


@pytest.mark.parametrize("shape", BUDGET)
async def test_an_append_sends_as_many_statements_at_any_length(backend: Backend, shape: str) -> None:
    """ADR-0117 D6: a structural gate; a duplicate sends no more than a new id."""
    counts = []
    for length in (0, 10, 1_000):
        name = f"p{length}"
        await put(backend, name, shape, [f"m{number}" for number in range(length)])
        # The statements counted are those of this process's own writer.
        async with statements(backend) as sent:
            await backend.direct.append_to_progression(name, "new")
        counts.append(len(sent))
        async with statements(backend) as repeated:
            await backend.direct.append_to_progression(name, "new")
        assert len(repeated) <= len(sent)
    assert [BUDGET[shape] - (0 if backend.is_postgresql else SAVED[shape])] * 3 == counts, sent
