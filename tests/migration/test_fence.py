"""The fence as verbs, and detach: lionstate taken off a store again (design decisions 21, 32)."""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from lionstate import StateDB
from lionstate.detaching import detach_store
from lionstate.engine.ownership import StoreLock
from lionstate.errors import InvalidInputError, OwnershipConflictError, PhaseConflictError
from lionstate.migration import ProgressionMigrationService
from lionstate.schema import OWN_TABLES
from lionstate.store import Store
from tests.support.backends import Backend, database_of
from tests.support.lionagi_store import FIXTURE, copy_to_postgresql
from tests.support.migration import WHOLE, foreign, make_ids, patient, service_of, until_done

IDS = make_ids(20)


async def test_what_the_fence_is_and_what_follows(backend: Backend) -> None:
    """Decision 21: notice before the first cutover; a removed one is missing until the operator says so."""
    service = service_of(backend)
    found = await service.fence_status()
    assert (False, None, 0, None) == (found.installed, found.off_by, found.guarded, found.notice)
    await backend.put_progression("p", json.dumps(IDS))
    await service.step(max_items=5, max_seconds=60)
    found = (await service.status()).fence
    assert found.notice is not None and "the first cutover installs the fence" in found.notice
    await until_done(service)
    found = await service.fence_status()
    assert (True, 1, None) == (found.installed, found.guarded, found.notice)
    assert found.installed_at is not None
    with pytest.raises(InvalidInputError):
        await service.remove_fence(reason=" ")
    found = await service.remove_fence(reason="an old importer")
    assert (False, "test", "an old importer") == (found.installed, found.off_by, found.off_reason)
    assert found.notice is not None and "only the scrubber finds that" in found.notice
    assert found == (await service.status()).fence
    async with foreign(backend) as other:
        await other.append("p", "theirs")
    # Cutovers go on without it, and do not bring it back.
    await backend.put_progression("q", "[]")
    assert 1 == (await service.step(**WHOLE)).cut_over
    assert not (await service.fence_status()).installed
    found = await service.install_fence(reason="the importer is gone")
    assert (True, None, None) == (found.installed, found.off_by, found.notice)
    async with foreign(backend) as other:
        with pytest.raises(Exception, match="normalized"):
            await other.append("p", "theirs too")
    rows = await backend.rows("SELECT action FROM admin_events WHERE action LIKE 'progression_migrate.fence%'")
    assert {"fence.installed", "fence.off", "fence.on"} == {row["action"].split(".", 1)[1] for row in rows}


async def test_the_age_of_the_last_full_pass_is_told(backend: Backend) -> None:
    await backend.put_progression("p", json.dumps(IDS))
    service = service_of(backend)
    await until_done(service)
    assert (await service.fence_status()).last_full_pass_at is None
    while not (await service.scrub(max_seconds=60)).pass_ended:
        pass
    assert (await service.fence_status()).last_full_pass_at is not None


# Detach.


@pytest.fixture(params=["sqlite", "postgresql"])
async def legacy(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[str]:
    """The URL of a store that LionAGI made and lionstate has never opened."""
    if request.param == "sqlite":
        shutil.copyfile(FIXTURE, tmp_path / "state.db")
        yield str(tmp_path / "state.db")
    else:
        server = request.getfixturevalue("postgres_18")
        dsn = database_of(server, f"detach_{tmp_path.name.replace('-', '_')}")
        await copy_to_postgresql(FIXTURE, dsn)
        yield dsn


async def outside(url: str, query: str) -> list[tuple[Any, ...]]:
    """Rows of a plain query, with no store open."""
    if url.startswith("postgresql"):
        connection = await asyncpg.connect(url.replace("+asyncpg", ""))
        try:
            return [tuple(row) for row in await connection.fetch(query)]
        finally:
            await connection.close()
    with closing(sqlite3.connect(url)) as conn:
        return conn.execute(query).fetchall()


async def schema_of(url: str) -> list[tuple[Any, ...]]:
    """Every object of the store's schema, as it is stored."""
    if not url.startswith("postgresql"):
        return await outside(url, "SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY 1, 2")
    return await outside(
        url,
        "SELECT 'class', c.relname::text, c.relkind::text FROM pg_class c WHERE c.relnamespace = 'public'::regnamespace"
        " UNION ALL SELECT 'trigger', t.tgname::text, t.tgrelid::regclass::text FROM pg_trigger t"
        " WHERE NOT t.tgisinternal UNION ALL SELECT 'function', p.proname::text, '' FROM pg_proc p"
        " WHERE p.pronamespace = 'public'::regnamespace ORDER BY 1, 2, 3",
    )


async def test_a_detached_store_is_as_it_was(legacy: str) -> None:
    """sqlite_master is what it was before lionstate; a half copied progression is its JSON."""
    before, values = (
        await schema_of(legacy),
        await outside(legacy, "SELECT id, collection FROM progressions ORDER BY 1"),
    )
    meta = await outside(legacy, "SELECT key, value FROM schema_meta ORDER BY 1")
    with pytest.raises(PhaseConflictError, match="nothing of lionstate"):
        await detach_store(legacy)
    async with StateDB(url=legacy) as state:
        service = ProgressionMigrationService(state.store, accept_foreign_writers=True)
        await service.hold_all()
        await service.step(max_items=3, max_seconds=60)
        await service.install_fence()
        assert 0 < (await service.status()).phases["dual"]
    assert before != await schema_of(legacy)
    found = await detach_store(legacy, reason="back to LionAGI")
    assert (len(OWN_TABLES), True) == (found.tables, found.given_up > 0)
    assert before == await schema_of(legacy)
    assert values == await outside(legacy, "SELECT id, collection FROM progressions ORDER BY 1")
    assert meta == await outside(legacy, "SELECT key, value FROM schema_meta ORDER BY 1")
    told = await outside(legacy, "SELECT count(*) FROM admin_events WHERE action = 'progression_migrate.detach'")
    assert [(1,)] == told
    # It can be put on again.
    async with StateDB(url=legacy) as state:
        assert 0 == (await state.migration.status()).phases["dual"]


async def test_what_has_left_its_json_is_named_and_nothing_changes(legacy: str) -> None:
    async with StateDB(url=legacy) as state:
        await patient(Backend("legacy", state, state))
        service = ProgressionMigrationService(state.store, accept_foreign_writers=True)
        cut = 0
        while not cut:
            cut = (await service.step(max_items=10, max_seconds=60)).cut_over
        rows = await state.fetch_all("SELECT progression_id FROM progression_storage_state WHERE phase = 'items'")
    before = await schema_of(legacy)
    with pytest.raises(PhaseConflictError) as refused:
        await detach_store(legacy)
    assert all(row["progression_id"] in str(refused.value) for row in rows)
    assert before == await schema_of(legacy)


async def test_a_store_that_somebody_migrates_is_refused(legacy: str) -> None:
    async with StateDB(url=legacy) as state:
        await ProgressionMigrationService(state.store, owner="other/1").own()
    before = await schema_of(legacy)
    with pytest.raises(OwnershipConflictError, match=r"other/1 migrates this store.* wait 1\d s"):
        await detach_store(legacy)
    assert before == await schema_of(legacy)


async def test_a_store_that_a_daemon_owns_is_refused(tmp_path: Path, empty_store: Path) -> None:
    path = tmp_path / "owned.db"
    shutil.copyfile(empty_store, path)
    lock = StoreLock(path)
    lock.acquire()
    try:
        with pytest.raises(OwnershipConflictError):
            await detach_store(path)
    finally:
        lock.release()
    found = await detach_store(path)
    assert len(OWN_TABLES) == found.tables
    store = await Store.open(path)
    await store.close()
