"""Two sessions on PostgreSQL: stages of migration against open foreign transactions (decision 10; faults 23, 16)."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, text

from lionstate import StateDB
from lionstate.migration import ProgressionMigrationService, StopReason
from lionstate.progression.append import append_to_progression
from tests.support.backends import IN_PROCESS, Backend
from tests.support.migration import (
    WHOLE,
    Foreign,
    Staged,
    assert_cut_over,
    foreign,
    items_of,
    make_ids,
    patient,
    service_of,
    state_of,
    until_done,
)
from tests.support.phases import put
from tests.support.stores import open_backend, params_of

IDS = make_ids(20)


@pytest.fixture(params=params_of([name for name in IN_PROCESS if "postgresql" in name]))
async def backend(request: pytest.FixtureRequest, empty_store: Path, tmp_path: Path) -> AsyncIterator[Backend]:
    """A backend with row locks."""
    async with open_backend(request, empty_store, tmp_path) as found:
        await patient(found)
        yield found


@asynccontextmanager
async def waiting_for_a_lock(backend: Backend) -> AsyncIterator[None]:
    """The block begins when some session waits for a lock that another one holds."""
    async with foreign(backend) as watcher:
        async with asyncio.timeout(20):
            while not await watcher.connection.fetchval("SELECT count(*) FROM pg_locks WHERE NOT granted"):
                await watcher.connection.execute("SELECT pg_sleep(0.005)")
        yield


async def append_and_hold(other: Foreign, message_id: str) -> None:
    """A legacy append whose transaction stays open."""
    await other.execute("BEGIN")
    await other.append("p", message_id)


async def test_an_admission_waits_for_an_open_foreign_append(backend: Backend, state: Any) -> None:
    """fault 23: the foreign session has looked and written; admission must see what it commits."""
    await backend.put_progression("p", json.dumps(IDS))
    service = service_of(backend)
    async with foreign(backend) as other:
        await append_and_hold(other, "theirs")
        step = asyncio.ensure_future(service.step(progression_id="p", max_items=5, max_seconds=60))
        async with waiting_for_a_lock(backend):
            await other.execute("COMMIT")
        assert StopReason.CAP_ITEMS == (await step).stop_reason
    row = await state_of(backend)
    assert ("dual", 21) == (row["phase"], row["next_ordinal"])
    await until_done(service)
    await assert_cut_over(backend, [*IDS, "theirs"])


async def test_an_admission_between_look_and_write_of_a_foreign_append(backend: Backend, state: Any) -> None:
    """fault 23: the foreign transaction looked before the admission and writes after it; the element is not lost."""
    await backend.put_progression("p", json.dumps(IDS))
    service = service_of(backend)
    async with foreign(backend) as other:
        await other.execute("BEGIN")
        assert 0 == await other.connection.fetchval("SELECT count(*) FROM progression_storage_state")
        assert 5 == (await service.step(progression_id="p", max_items=5, max_seconds=60)).items
        await other.append("p", "theirs")
        await other.execute("COMMIT")
    await state.append_to_progression("p", "ours")
    row = await state_of(backend)
    assert ("blocked", "json", "foreign_write") == (row["phase"], row["authority"], row["blocked_reason"])
    assert [*IDS, "theirs", "ours"] == await state.get_progression("p")


async def test_an_own_append_never_ends_in_json_alone_during_an_admission(backend: Backend, state: Any) -> None:
    """fault 23, with lionstate's own append as the other session: JSON and item, or JSON before the admission."""
    await backend.put_progression("p", json.dumps(IDS))
    staged = Staged(backend)
    appends: list[asyncio.Future[Any]] = []

    async def before(name: str) -> None:
        if name in ("admit", "chunk"):
            appends.extend(
                asyncio.ensure_future(state.append_to_progression("p", f"ours-{len(appends)}-{n}")) for n in range(4)
            )
            await asyncio.sleep(0)

    staged.before = before
    await ProgressionMigrationService(staged).step(**WHOLE)
    await asyncio.gather(*appends)
    await until_done(service_of(backend))
    found = await state.get_progression("p")
    assert len(IDS) + len(appends) == len(found) == len(set(found))
    await assert_cut_over(backend, found)


async def complete(backend: Backend) -> None:
    """A store with its fence, and a dual progression that waits for its cutover only."""
    await backend.put_progression("first", "[]")
    await until_done(service_of(backend))
    await backend.put_progression("p", json.dumps(IDS))


async def test_a_cutover_behind_an_open_foreign_append(backend: Backend, state: Any) -> None:
    """Decision 10: the foreign append came first and is acknowledged: it must not be lost."""
    await complete(backend)
    staged = Staged(backend)
    async with foreign(backend) as other:

        async def before(name: str) -> None:
            if name == "cutover" and not staged.results("cutover"):
                await append_and_hold(other, "theirs")

        staged.before = before
        step = asyncio.ensure_future(ProgressionMigrationService(staged).step(**WHOLE))
        async with waiting_for_a_lock(backend):
            await other.execute("COMMIT")
        result = await step
        assert ({"foreign_write": 1}, 0) == (result.blocked, result.cut_over)
        assert [*IDS, "theirs"] == await state.get_progression("p")


async def test_a_foreign_append_behind_an_open_cutover(backend: Backend, state: Any) -> None:
    """Decision 10: the cutover came first; the waiting append is refused by the fence, not swallowed."""
    await complete(backend)
    staged = Staged(backend)
    plain = staged.maintain

    async with foreign(backend) as other, foreign(backend) as holder:
        append: asyncio.Future[Any] | None = None

        async def maintain(name: str, script: Any, *, progressions: Any = ()) -> Any:
            nonlocal append
            if not name.endswith("cutover"):
                return await plain(name, script, progressions=progressions)

            # The cutover's transaction, held open until the foreign append waits for it.
            async with backend.direct.transaction() as transaction:
                result = await transaction.run(script)
                append = asyncio.ensure_future(other.append("p", "theirs"))
                async with waiting_for_a_lock(backend):
                    return result

        staged.maintain = maintain  # type: ignore[method-assign]
        step = await ProgressionMigrationService(staged).step(**WHOLE)
        assert 1 == step.cut_over
        assert append is not None
        with pytest.raises(Exception, match="normalized"):
            await append
        assert await holder.connection.fetchval("SELECT 1") == 1
    assert IDS == await state.get_progression("p")
    await assert_cut_over(backend, IDS)


@pytest.mark.parametrize("end", ["cutover", "rollback"])
async def test_a_foreign_snapshot_from_before_is_refused(backend: Backend, state: Any, end: str) -> None:
    """Decision 10: the fence of a REPEATABLE READ transaction sees the old state; the touched parent ends it."""
    await complete(backend)
    service = service_of(backend)
    await service.step(progression_id="p", max_items=5, max_seconds=60)
    async with foreign(backend) as other:
        await other.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        assert 2 == await other.connection.fetchval("SELECT count(*) FROM progressions")
        if end == "cutover":
            assert 1 == (await service.step(progression_id="p", **WHOLE)).cut_over
        else:
            await service.rollback("p")
        with pytest.raises(Exception, match="could not serialize"):
            await other.append("p", "theirs")
        await other.execute("ROLLBACK")
    assert IDS == await state.get_progression("p")


async def test_a_rollback_behind_an_open_foreign_append(backend: Backend, state: Any) -> None:
    await backend.put_progression("p", json.dumps(IDS))
    service = service_of(backend)
    await service.step(max_items=5, max_seconds=60)
    async with foreign(backend) as other:
        await append_and_hold(other, "theirs")
        rollback = asyncio.ensure_future(service.rollback("p"))
        async with waiting_for_a_lock(backend):
            await other.execute("COMMIT")
        await rollback
    assert [*IDS, "theirs"] == await state.get_progression("p")
    await service.release("p")
    await until_done(service)
    await assert_cut_over(backend, [*IDS, "theirs"])


async def test_the_fence_is_installed_beside_open_writers(backend: Backend, state: Any) -> None:
    """Decision 21: its table lock waits for open writers, within the lock timeout, and is tried again."""
    await backend.put_progression("p", json.dumps(IDS))
    await backend.put_progression("q", json.dumps(IDS))
    service = service_of(backend)
    async with foreign(backend) as other:
        await other.execute("BEGIN")
        await other.append("q", "theirs")
        step = asyncio.ensure_future(service.step(progression_id="p", **WHOLE))
        async with waiting_for_a_lock(backend):
            # Own appends go on meanwhile: the installation gives way before they would.
            await state.append_to_progression("p", "ours")
            await other.execute("COMMIT")
        assert 1 == (await step).cut_over
    await assert_cut_over(backend, [*IDS, "ours"])


async def test_a_deadlock_in_a_step_is_one_more_try(backend: Backend, state: Any) -> None:
    """faults 15, 16: a foreign session takes rows in the other order; nobody needs a hand on the tables."""
    await backend.put_progression("p", json.dumps(IDS))
    service = service_of(backend)
    await service.step(progression_id="p", max_items=5, max_seconds=60)
    async with foreign(backend) as other:
        await other.execute("BEGIN")
        await other.execute("SELECT 1 FROM progression_storage_state WHERE progression_id = 'p' FOR UPDATE")
        step = asyncio.ensure_future(service.step(progression_id="p", max_items=5, max_seconds=60))
        async with waiting_for_a_lock(backend):
            took = asyncio.ensure_future(other.execute("SELECT 1 FROM progressions WHERE id = 'p' FOR UPDATE"))
            await took
            await other.execute("COMMIT")
        assert 5 == (await step).items
    await until_done(service)
    await assert_cut_over(backend, IDS)
    assert 20 == len(await items_of(backend))


def _appending(message_id: str) -> Callable[[Connection], None]:
    return lambda conn: append_to_progression(conn, "p", message_id)


def _replacing(conn: Connection) -> None:
    """As many rows as before, others, and what every replacement leaves."""
    conn.execute(text("SELECT FROM progressions WHERE id = 'p' FOR NO KEY UPDATE"))
    conn.execute(text("UPDATE progression_storage_state SET generation = generation + 1 WHERE progression_id = 'p'"))
    conn.execute(text("UPDATE progression_items SET message_id = 'x' WHERE progression_id = 'p'"))


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (_appending("x"), "x", ["a", "x"]),
        (_appending("x"), "y", ["a", "x", "y"]),
        (_replacing, "x", ["x"]),
        (_replacing, "a", ["x", "a"]),
    ],
)
async def test_an_append_that_waited_decides_by_what_it_waited_for(
    backend: Backend, first: Callable[[Connection], None], second: str, expected: list[str]
) -> None:
    """Decision 10: its one statement looked with a snapshot from before the wait, which counts for nothing then."""
    await put(backend, "p", "items", ["a"])
    async with StateDB(url=backend.direct.store.url) as other:
        async with backend.direct.transaction() as held:
            await held.run(first)
            waiting = asyncio.ensure_future(other.append_to_progression("p", second))
            async with waiting_for_a_lock(backend):
                pass
        await waiting
    assert list(enumerate(expected)) == await items_of(backend)
    assert len(expected) == (await state_of(backend))["next_ordinal"]
