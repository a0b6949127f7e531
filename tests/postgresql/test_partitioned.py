"""The contract on a store whose ``progression_items`` an operator has partitioned with the script of ``deploy/``."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from sqlalchemy.engine import make_url

from lionstate import StateDB
from tests.conformance import test_progression_append, test_progression_whole
from tests.migration import test_cutover_lock, test_path
from tests.support.backends import Backend, database_of, open_postgresql
from tests.support.borrowed import borrowed_from
from tests.support.migration import patient, service_of, until_done
from tests.support.phases import put, whole
from tests.support.postgres import PostgresServer

SCRIPT = Path(__file__).parents[2] / "deploy" / "postgresql" / "partition_items.sql"
SERVERS = ["postgres_15", "postgres_18"]

globals().update(borrowed_from(test_progression_append, test_progression_whole, test_cutover_lock, test_path))


async def partition(dsn: str) -> None:
    """Run the script as psql does: its text, outside any transaction."""
    connection = await asyncpg.connect(make_url(dsn).set(drivername="postgresql").render_as_string(hide_password=False))
    try:
        await connection.execute(SCRIPT.read_text(encoding="utf-8"))
    finally:
        await connection.close()


@pytest.fixture(scope="module", params=SERVERS)
def server(request: pytest.FixtureRequest) -> PostgresServer:
    """Both servers, one after the other."""
    found: PostgresServer = request.getfixturevalue(request.param)
    return found


_partitioned: set[str] = set()


@pytest.fixture
async def backend(server: PostgresServer) -> AsyncIterator[Backend]:
    """An empty store that is partitioned."""
    dsn = database_of(server, "partitioned")
    if dsn not in _partitioned:
        async with StateDB(url=dsn):
            pass
        await partition(dsn)
        _partitioned.add(dsn)
    async with open_postgresql(dsn) as state:
        backend = Backend(f"postgresql-{server.version}", state, state)
        await patient(backend)
        yield backend
        kinds = await backend.rows("SELECT relkind::text AS kind FROM pg_class WHERE relname = 'progression_items'")
        assert [{"kind": "p"}] == kinds


@pytest.fixture
async def filled(server: PostgresServer) -> AsyncIterator[str]:
    """A store with a progression in every phase and another role's grant, not partitioned."""
    name = f"to_partition_{server.version}"
    server.drop_database(name)
    dsn = server.create_database(name)
    async with StateDB(url=dsn) as state:
        backend = Backend("", state, state)
        await patient(backend)
        for number in range(40):
            await backend.put_progression(f"p{number}", f'["a{number}", "b", "c"]')
        await until_done(service_of(backend))
        await put(backend, "dual", "dual", ["a", "b", "c"])
        await backend.execute("GRANT SELECT ON progression_items TO pg_monitor")
    yield dsn
    server.drop_database(name)


GRANTS = "SELECT has_table_privilege('pg_monitor', 'progression_items', 'SELECT') AS may"
SHAPE = """SELECT conname::text AS name, pg_get_constraintdef(oid) AS text FROM pg_constraint
WHERE conrelid = 'progression_items'::regclass AND contype IN ('p', 'f')
UNION ALL SELECT indexrelid::regclass::text, pg_get_indexdef(indexrelid) FROM pg_index
WHERE indrelid = 'progression_items'::regclass ORDER BY 1, 2"""


async def shape_of(backend: Backend) -> list[dict[str, Any]]:
    rows = await backend.rows(SHAPE)
    return [{name: value.replace(" ON ONLY ", " ON ") for name, value in row.items()} for row in rows]


async def test_a_filled_table_keeps_its_rows_keys_and_grants(filled: str) -> None:
    async with StateDB(url=filled) as state:
        backend = Backend("", state, state)
        before = [await whole(backend, f"p{number}") for number in range(40)]
        dual, shape = await whole(backend, "dual"), await shape_of(backend)
    await partition(filled)
    async with StateDB(url=filled) as state:
        backend = Backend("", state, state)
        assert state.store.report is not None
        assert not state.store.report.created_own
        assert shape == await shape_of(backend)
        assert [{"may": True}] == await backend.rows(GRANTS)
        assert before == [await whole(backend, f"p{number}") for number in range(40)]
        assert dual == await whole(backend, "dual")
        await state.append_to_progression("p7", "d")
        assert ["a7", "b", "c", "d"] == await state.get_progression("p7")
        parts = await backend.rows("SELECT count(DISTINCT tableoid) AS used FROM progression_items")
        assert parts[0]["used"] > 8
        used = await state.store.read(state.store.dialect.used_bytes)
        assert used > 16 * 3 * 8192


async def test_a_read_and_an_append_look_into_one_partition(filled: str) -> None:
    await partition(filled)
    async with StateDB(url=filled) as state:
        plan = await state.fetch_all(
            "EXPLAIN SELECT ordinal FROM progression_items WHERE progression_id = 'p7' AND ordinal > 1 ORDER BY ordinal"
        )
        text = "\n".join(row["QUERY PLAN"] for row in plan)
        assert 1 == text.count("on progression_items_p"), text


async def test_a_second_conversion_is_refused(filled: str) -> None:
    await partition(filled)
    with pytest.raises(asyncpg.RaiseError, match="partitioned already: nothing was changed"):
        await partition(filled)


async def test_a_foreign_view_on_the_table_leaves_everything_as_it_was(filled: str) -> None:
    async with StateDB(url=filled) as state:
        await state.execute("CREATE VIEW looks AS SELECT count(*) AS c FROM progression_items")
    with pytest.raises(asyncpg.DependentObjectsStillExistError):
        await partition(filled)
    async with StateDB(url=filled) as state:
        assert ["a7", "b", "c"] == await state.get_progression("p7")
