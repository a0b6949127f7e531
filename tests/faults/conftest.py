"""``any_store``: an open store on each database, for faults that both can have."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from lionstate import StateDB
from lionstate.store import Store
from tests.support.backends import database_of, empty_database


@pytest.fixture
async def sqlite_store(tmp_path: Path) -> AsyncIterator[Store]:
    """A new SQLite store."""
    store = await Store.open(tmp_path / "state.db")
    yield store
    await store.close()


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql)])
async def any_store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    """A store of each database, empty."""
    if request.param == "sqlite":
        store = await Store.open(tmp_path / "state.db")
    else:
        dsn = database_of(request.getfixturevalue("postgres_18"), "faults")
        async with StateDB(url=dsn) as state:
            await empty_database(state)
        store = await Store.open(dsn)
    yield store
    await store.close()
