"""Own tables are analyzed after creation and after a large cutover (design decision 10)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lionstate import StateDB
from lionstate.migration import StopReason
from tests.support.postgres import PostgresServer

_ROWS = "SELECT reltuples FROM pg_class WHERE relname = 'progression_items'"


@pytest.mark.parametrize("server", ["postgres_15", "postgres_18"])
@pytest.mark.postgresql
async def test_statistics_follow_creation_and_large_cutovers(server: str, request: pytest.FixtureRequest) -> None:
    postgres: PostgresServer = request.getfixturevalue(server)
    postgres.create_database("statistics")
    async with StateDB(url=postgres.dsn("statistics"), lionagi_compatible=True) as state:

        async def rows() -> float:
            found: Any = await state.fetch_one(_ROWS)
            return float(found["reltuples"])

        # -1 is what a table has that was never analyzed.
        assert 0 == await rows()
        await state.create_progression("p")
        async with state.transaction() as transaction:
            value = json.dumps([f"m{number}" for number in range(10_000)])
            await transaction.execute("UPDATE progressions SET collection = :value", {"value": value})
        step = await state.migration.step(max_items=20_000, max_seconds=60)
        assert (StopReason.DONE, 1) == (step.stop_reason, step.cut_over)
        assert 10_000 == await rows()
    postgres.drop_database("statistics")
