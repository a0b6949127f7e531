"""A store of the previous own schema version, written by the release that had it (design decision 32)."""

from __future__ import annotations

import asyncio
import gzip
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from lionstate import StateDB
from lionstate.engine import EngineSettings
from lionstate.errors import BackendError
from lionstate.migration import ProgressionMigrationService
from lionstate.schema import OWN_SCHEMA_VERSION, delete_trigger_exists, steps
from lionstate.schema.own import progression_orders, progression_proofs
from tests.support.backends import Backend
from tests.support.migration import service_of, until_done

STORED = Path(__file__).parents[1] / "fixtures" / "lionstate-schema-1.db.gz"
ITEMS = {
    "items-plain": [f"a-{i:03d}" for i in range(20)],
    "items-tail": [*(f"b-{i:03d}" for i in range(30)), "b-tail-0", "b-tail-1"],
    "items-born": [f"c-{i:03d}" for i in range(5)],
}
OTHERS = {
    "blocked-items": [f"e-{i:03d}" for i in range(10)],
    "rolled-back": [f"f-{i:03d}" for i in range(12)],
    "dual": [*(f"g-{i:03d}" for i in range(40)), "g-new"],
    "json": [*(f"h-{i:03d}" for i in range(3)), "h-new"],
}


@pytest.fixture
def stored(tmp_path: Path) -> Path:
    path = tmp_path / "stored.db"
    path.write_bytes(gzip.decompress(STORED.read_bytes()))
    return path


def bytes_of(path: Path) -> bytes:
    return path.read_bytes()


def contents(path: Path) -> dict[str, list[Any]]:
    """Every row of every table, the schema version left out."""
    with closing(sqlite3.connect(path)) as conn:
        tables = [name for (name,) in conn.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        found = {name: sorted(conn.execute(f'SELECT * FROM "{name}"').fetchall(), key=repr) for name in tables}
    found["schema_meta"] = [row for row in found["schema_meta"] if row[0] != "lionstate.schema_version"]
    return found


async def test_everything_is_still_there_and_goes_on(stored: Path) -> None:
    """faults 26, 28: progressions in every phase, their rows, holds and a pause survive the step of the schema."""
    before = contents(stored)
    async with StateDB(stored) as state:
        for name, ids in {**ITEMS, **OTHERS}.items():
            assert ids == await state.get_progression(name)
        status = await state.migration.status()
        assert {"json": 2, "dual": 1, "items": 3, "blocked": 2} == status.phases
        assert {"foreign_write": 1, "malformed_json": 1} == status.blocked
        assert status.pause is not None and "kept for later" == status.pause.reason
    after = contents(stored)
    assert [[], []] == [after.pop(table.name) for table in (progression_orders, progression_proofs)]
    # The writer's own number of its last batch, and statistics of tables that were empty.
    for changing in ("writer_batches", "sqlite_stat1", "sqlite_stat4"):
        before.pop(changing, None)
        after.pop(changing, None)
    assert before == after
    async with StateDB(stored) as state:
        rows = await state.fetch_all("SELECT value FROM schema_meta WHERE key = 'lionstate.schema_version'")
        assert [str(OWN_SCHEMA_VERSION)] == [row["value"] for row in rows]
        service = ProgressionMigrationService(state.store, actor="test")
        await service.resume()
        await service.release("rolled-back")
        await until_done(service)
        assert {"json": 0, "dual": 0, "items": 6, "blocked": 2} == (await service.status()).phases
        for name, ids in {**ITEMS, **OTHERS}.items():
            assert ids == await state.get_progression(name)


async def test_a_look_leaves_the_stored_file_as_it_is(stored: Path) -> None:
    before = bytes_of(stored)
    async with StateDB(stored, settings=EngineSettings(readonly=True, tidy=True)) as state:
        assert ITEMS["items-tail"] == await state.get_progression("items-tail")
        assert 3 == (await state.migration.status()).phases["items"]
        assert "dual" == (await state.migration.explain("dual")).phase
    assert before == bytes_of(stored)


# Both databases: a version 1 as this build can make it.


async def return_to_version_1(backend: Backend) -> None:
    await backend.put_progression("p", '["a"]')
    await until_done(service_of(backend))
    for table in ("orders", "proofs"):
        await backend.execute(f"DROP TABLE progression_{table}")
    await backend.execute("UPDATE schema_meta SET value = '1' WHERE key = 'lionstate.schema_version'")


async def version_of(backend: Backend) -> str:
    (row,) = await backend.rows("SELECT value FROM schema_meta WHERE key = 'lionstate.schema_version'")
    return str(row["value"])


async def orders_exist(backend: Backend) -> bool:
    names = "pg_catalog.pg_tables WHERE tablename" if backend.is_postgresql else "sqlite_master WHERE name"
    return bool(await backend.rows(f"SELECT 1 AS there FROM {names} = 'progression_orders'"))


class Crash(Exception):
    """Stands for the end of the process: the transaction is not committed."""


@pytest.mark.parametrize("at", ["install_delete_trigger", "update"])
async def test_a_step_that_does_not_commit_leaves_the_old_version(
    backend: Backend, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    """fault 26: between its statements, after tables were created."""
    await return_to_version_1(backend)

    def crash(*_args: Any) -> Any:
        raise Crash

    with monkeypatch.context() as patched:
        patched.setattr(steps, at, crash)
        with pytest.raises(BackendError, match="Crash"):
            async with StateDB(url=backend.direct.url):
                pass
    assert ("1", False) == (await version_of(backend), await orders_exist(backend))
    async with StateDB(url=backend.direct.url) as state:
        assert ["a"] == await state.get_progression("p")
        assert await state.store.read(delete_trigger_exists)
    assert (str(OWN_SCHEMA_VERSION), True) == (await version_of(backend), await orders_exist(backend))


async def test_several_openers_make_the_step_once(backend: Backend) -> None:
    await return_to_version_1(backend)

    async def opened() -> list[str] | None:
        async with StateDB(url=backend.direct.url) as state:
            found: list[str] | None = await state.get_progression("p")
            return found

    assert [["a"]] * 4 == await asyncio.gather(*(opened() for _ in range(4)))
    assert (str(OWN_SCHEMA_VERSION), True) == (await version_of(backend), await orders_exist(backend))


async def test_deletes_take_orders_along_after_the_step(stored: Path) -> None:
    """Also where the foreign keys are off, which is what the trigger is for."""
    async with StateDB(stored):
        pass
    with closing(sqlite3.connect(stored, isolation_level=None)) as conn:
        conn.execute("INSERT INTO progression_orders VALUES ('json', 'hold', 'a', NULL, 1.0, NULL)")
        conn.execute("DELETE FROM progressions WHERE id = 'json'")
        assert [] == conn.execute("SELECT * FROM progression_orders").fetchall()
