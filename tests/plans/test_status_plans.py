"""Plans of what ``status()`` asks of a large store: no value is read, nothing is sorted (fault 48)."""

from __future__ import annotations

import pytest
from sqlalchemy import Connection, Executable

from lionstate.dialects import dialect_of
from lionstate.migration import progress
from tests.support.backends import Backend
from tests.support.phases import run

_SEED = {
    False: "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 20000)"
    " INSERT INTO progressions SELECT 'p' || i, 1.0, '[]' FROM n",
    True: "INSERT INTO progressions SELECT 'p' || i, 1.0, '[]' FROM generate_series(1, 20000) AS i",
}


@pytest.fixture
async def large(backend: Backend) -> Backend:
    await backend.execute(_SEED[backend.is_postgresql])
    await backend.execute(
        "INSERT INTO progression_storage_state (progression_id, phase, generation, updated_at, source_count)"
        " SELECT id, 'dual', 1, length(id), 2 FROM progressions"
    )
    await backend.execute(
        "INSERT INTO progression_sizes (progression_id, bytes, measured_at) SELECT id, 2, 1.0 FROM progressions"
    )
    return backend


async def _plan(backend: Backend, statement: Executable) -> str:
    def script(conn: Connection) -> str:
        return dialect_of(conn).explain(conn, statement, {})

    found: str = await run(backend.direct, script)
    return found


async def test_the_copies_under_way_are_an_index_range(large: Backend) -> None:
    if large.is_postgresql:
        await large.execute("ANALYZE progression_storage_state")
    plan = await _plan(large, progress.UNDER_WAY)
    assert "idx_progression_storage_state_phase" in plan, plan
    assert "Sort" not in plan and "TEMP B-TREE" not in plan, plan


async def test_sums_read_own_tables_only(large: Backend) -> None:
    for statement in (progress._SIZED, progress._MEASURED, progress._FROZEN, progress.UNDER_WAY):
        plan = await _plan(large, statement)
        assert "progressions" not in plan.replace("progressions_pkey", ""), plan
    plan = await _plan(large, progress._MEASURED)
    if not large.is_postgresql:
        assert "SEARCH progression_sizes" in plan and "TEMP B-TREE" not in plan, plan
