"""How often a call goes to a PostgreSQL server and back, counted on the wire."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest
from sqlalchemy import Connection
from sqlalchemy.util import await_only

from lionstate import StateDB
from lionstate.dialects.statement import Statement
from lionstate.engine.reader import PostgresqlReader
from lionstate.progression import reads
from lionstate.records.branch_messages import page_query
from tests.support.backends import Backend, database_of, open_postgresql
from tests.support.conversations import conversation, message
from tests.support.proxy import CuttingProxy, cutting_proxy


@pytest.fixture(params=[15, 18])
async def reached(request: pytest.FixtureRequest) -> AsyncIterator[tuple[StateDB, CuttingProxy]]:
    """A store with a conversation in ``items``, reached through a proxy that counts."""
    dsn = database_of(request.getfixturevalue(f"postgres_{request.param}"), "trips")
    async with open_postgresql(dsn) as direct:
        await conversation(Backend("postgresql", direct, direct), items=True)
        for number in range(5):
            await direct.record_message(message(f"m{number}"), session_id="s", branch_progression_id="bp")
    async with cutting_proxy(dsn) as proxy, StateDB(url=proxy.dsn) as state:
        yield state, proxy


async def _counted(proxy: CuttingProxy, call: Callable[[int], Awaitable[Any]]) -> int:
    """The round trips of a call, once its statements are prepared."""
    for number in range(3):
        await call(number)
    proxy.heard = 0
    await call(3)
    return proxy.heard


async def test_a_page_is_one_round_trip(reached: tuple[StateDB, CuttingProxy]) -> None:
    """No transaction around it; and what is read after it in the same script has one, as planned elsewhere."""
    state, proxy = reached

    async def ids(_: int) -> None:
        assert 5 == len(await state.list_progression_items("bp", newest_first=True, limit=200))

    async def content(_: int) -> None:
        assert 5 == len(await state.get_branch_messages("b", limit=200))

    async def lean(_: int) -> None:
        assert 5 == len(await state.get_branch_messages("b", limit=200, columns=("role", "content")))

    async def beyond(_: int) -> None:
        assert [] == await state.list_progression_items("bp", after_ordinal=4)

    assert 1 == await _counted(proxy, ids)
    assert 1 == await _counted(proxy, content)
    assert 1 == await _counted(proxy, lean)
    # The page, BEGIN, the state row, the switch of compat reads, the planner's settings, the page again, ROLLBACK.
    assert 7 == await _counted(proxy, beyond)


async def test_a_transaction_plans_as_the_server_does(reached: tuple[StateDB, CuttingProxy]) -> None:
    """What lets a page do without a transaction is undone by every BEGIN."""
    state, _ = reached
    await state.list_progression_items("bp")
    row = await state.fetch_one(
        "SELECT current_setting('enable_seqscan') AS scan, current_setting('enable_sort') AS sort"
    )
    assert {"scan": "on", "sort": "on"} == row


async def test_an_append_is_three_round_trips(reached: tuple[StateDB, CuttingProxy]) -> None:
    """BEGIN, the append with the transaction's mark, COMMIT; a repeat takes no more."""
    state, proxy = reached

    async def append(number: int) -> None:
        await state.append_to_progression("bp", f"n{number}")

    assert 3 == await _counted(proxy, append)
    assert 3 == await _counted(proxy, append)
    assert ["n0", "n1", "n2", "n3"] == (await state.get_progression("bp"))[5:]


async def test_a_live_message_is_ten_round_trips(reached: tuple[StateDB, CuttingProxy]) -> None:
    """BEGIN, seven statements, the mark, COMMIT."""
    state, proxy = reached

    async def record(number: int) -> None:
        await state.record_message(message(f"r{number}"), session_id="s", branch_progression_id="bp")

    assert 10 == await _counted(proxy, record)


@pytest.mark.parametrize("forward", [False, True])
async def test_a_page_planned_once_seeks_as_well(reached: tuple[StateDB, CuttingProxy], forward: bool) -> None:
    """Outside of a transaction one plan serves every page, whatever its limit and however small the tables were."""
    state, _ = reached
    reader = state.store.reader
    assert isinstance(reader, PostgresqlReader)
    await state.fetch_all("SELECT 1 AS one")
    conn = await reader._lender.take()

    def planned(sync: Connection, statement: Statement, *values: str) -> str:
        driver: Any = sync.connection.dbapi_connection
        raw, sql = driver.driver_connection, statement.on_driver(sync)[1]
        await_only(raw.execute(f"DEALLOCATE ALL; PREPARE page AS {sql}"))
        return "\n".join(row[0] for row in await_only(raw.fetch(f"EXPLAIN EXECUTE page({', '.join(values)})")))

    def pages(sync: Connection) -> tuple[str, str]:
        ids = reads.PLAIN_PAGE if forward else reads.PLAIN_PAGE_BACK
        bound = ["'itemsitems'", "0", "'k'", "'off'", "-1", "5", "200"]
        found = []
        for statement, first in ((ids, "'bp'"), (page_query(sync, forward=forward, plain=True), "'b'")):
            found.append(planned(sync, statement, first, *bound))
        return found[0], found[1]

    try:
        plans = await conn.run_sync(pages)
    finally:
        await conn.invalidate()
        await reader._lender.give_back(conn, clean=False)
    for plan in plans:
        assert "$6" in plan, plan
        assert "progression_items_pkey" in plan and "idx_progression_items_message" not in plan, plan
        assert not [name for name in ("Seq Scan", "Sort", "Material", "Hash", "Merge", "Bitmap") if name in plan], plan
