"""``rehearse()``: a copy is migrated whole, the store is only read, and nothing is left behind."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from lionstate import StateDB
from lionstate.engine import StoreURL
from lionstate.errors import BackendUnavailableError, ConflictError, InvalidInputError, NotEmptyError
from lionstate.migration import Rehearsal, RehearsalStage
from lionstate.rehearse import rehearse
from tests.support.backends import Backend, serve_daemon
from tests.support.migration import make_ids
from tests.support.whole_store import contents

pytestmark = pytest.mark.anyio

IDS = make_ids(700)
KINDS = ("sqlite", pytest.param("postgresql", marks=pytest.mark.postgresql))


@pytest.fixture(params=KINDS)
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Backend]:
    """An open store with progressions in several phases."""
    if request.param == "sqlite":
        url = str(tmp_path / "state.db")
    else:
        server = request.getfixturevalue("postgres_18")
        server.drop_database("rehearse_source")
        url = str(server.create_database("rehearse_source"))
    async with StateDB(url=url, normalized=False) as state:
        found = Backend(state.dialect, state, state)
        for number in range(4):
            await state.create_progression(f"p{number}", IDS[: 1 + 200 * number])
        await found.put_progression("bad", '["a", ')
        await state.migration.step(progression_id="p3", max_items=500, max_seconds=60)
        # What keeps the store itself from moving keeps no copy.
        await state.migration.hold_all(reason="not yet")
        await state.migration.pause(reason="not yet")
        yield found


def names(folder: Path) -> set[str]:
    return set(os.listdir(folder))


def target_of(request: pytest.FixtureRequest, store: Backend) -> str | None:
    """An empty database where one is needed."""
    if not store.is_postgresql:
        return None
    server = request.getfixturevalue("postgres_18")
    server.drop_database("rehearse_target")
    return str(server.create_database("rehearse_target"))


def assert_rehearsed(found: Rehearsal) -> None:
    assert ({"json": 0, "dual": 0, "items": 4, "blocked": 1}, {"malformed_json": 1}, {}) == (
        found.phases,
        found.blocked,
        found.held,
    )
    # One of them was copied up to its 501st element before.
    assert (4, 1 + 201 + 401 + 101, {"match": 4}) == (found.cut_over, found.items, dict(found.verified))
    assert 0 < found.cutover_lock_seconds and 0 < found.longest_hold_seconds and 0 < found.growth_bytes
    assert IDS[0] not in str(found)


async def test_the_copy_is_migrated_and_the_store_is_as_it_was(
    request: pytest.FixtureRequest, store: Backend, tmp_path: Path
) -> None:
    """While it is open and written by others; byte for byte in its tables."""
    before, there = await contents(store.direct), names(tmp_path)
    target = target_of(request, store)
    stages: list[str] = []
    found = await rehearse(store.direct.url, target=target, on_progress=lambda stage, *_: stages.append(stage))
    assert_rehearsed(found)
    assert before == await contents(store.direct)
    assert there == names(tmp_path)
    assert "migrate" == stages[-1]
    assert store.is_postgresql == (found.copy is not None) == (found.log_written_bytes is None)
    if target is not None:
        with pytest.raises(NotEmptyError):
            await rehearse(store.direct.url, target=target)


async def test_writers_do_not_disturb_it(request: pytest.FixtureRequest, store: Backend) -> None:
    """One snapshot, on PostgreSQL REPEATABLE READ: what is appended while it is copied is not in the copy."""
    target = target_of(request, store)
    written = 0

    def append(stage: str, done: int, total: int) -> None:
        nonlocal written
        if stage in ("backup", "copy"):
            asyncio.run_coroutine_threadsafe(store.direct.append_to_progression("p0", f"late{written}"), loop)
            written += 1

    loop = asyncio.get_running_loop()
    assert_rehearsed(await rehearse(store.direct.url, target=target, on_progress=append))
    assert written


async def test_a_copy_can_be_kept(tmp_path: Path) -> None:
    async with StateDB(tmp_path / "state.db", normalized=False) as state:
        await state.create_progression("p", IDS)
    kept = tmp_path / "kept.db"
    found = await rehearse(tmp_path / "state.db", keep=kept)
    assert str(kept) == found.copy
    assert {"state.db", "kept.db"} == names(tmp_path)
    async with StateDB(kept) as copy:
        assert (IDS, 1) == (await copy.get_progression("p"), (await copy.migration.status()).phases["items"])
    with pytest.raises(NotEmptyError):
        await rehearse(tmp_path / "state.db", keep=kept)


async def test_a_failure_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with StateDB(tmp_path / "state.db", normalized=False) as state:
        await state.create_progression("p", IDS)

    async def failing(*_: Any, **__: Any) -> Any:
        raise asyncio.CancelledError

    monkeypatch.setattr("lionstate.rehearse.step_until_done", failing)
    for keep in (None, tmp_path / "kept.db"):
        with pytest.raises(asyncio.CancelledError):
            await rehearse(tmp_path / "state.db", keep=keep)
        assert {"state.db"} == names(tmp_path)


async def test_a_full_disk_is_told_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with StateDB(tmp_path / "state.db", normalized=False) as state:
        await state.create_progression("p", IDS)
    monkeypatch.setattr("lionstate.rehearse._sizes", lambda *_: (9_000, 10_000))
    with pytest.raises(BackendUnavailableError, match=r"10,000 are free.*--keep"):
        await rehearse(tmp_path / "state.db")
    assert {"state.db"} == names(tmp_path)


async def test_what_cannot_be_rehearsed_is_refused(tmp_path: Path) -> None:
    for store, options in (
        (":memory:", {}),
        ("postgresql://nobody@127.0.0.1:1/none", {}),
        ("postgresql://nobody@127.0.0.1:1/none", {"keep": tmp_path / "x"}),
        (str(tmp_path / "state.db"), {"target": "postgresql://nobody@127.0.0.1:1/none"}),
    ):
        with pytest.raises(InvalidInputError):
            await rehearse(store, **options)


async def test_a_daemon_says_how_far_its_rehearsal_is(
    request: pytest.FixtureRequest, store: Backend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it runs, to whoever asks; nothing before it and nothing after."""
    reached, go_on = asyncio.Event(), asyncio.Event()

    async def stopping(url: StoreURL, **given: Any) -> Rehearsal:
        found = await rehearse(url, **given)
        reached.set()
        await go_on.wait()
        return found

    monkeypatch.setattr("lionstated.assembly.rehearse", stopping)
    await store.direct.close()
    async with serve_daemon(store.direct.url, tmp_path / "d.sock") as client:
        assert await client.migration.rehearsal() is None
        running = asyncio.create_task(client.migration.rehearse(target=target_of(request, store)))
        await reached.wait()
        assert RehearsalStage("migrate", 4, 4) == await client.migration.rehearsal()
        go_on.set()
        assert_rehearsed(await running)
        assert await client.migration.rehearsal() is None


async def test_a_daemon_rehearses_its_store(request: pytest.FixtureRequest, store: Backend, tmp_path: Path) -> None:
    """In its own process, while it serves; one at a time."""
    await store.direct.close()
    async with serve_daemon(store.direct.url, tmp_path / "d.sock") as client:
        target = target_of(request, store)
        twice = [client.migration.rehearse(target=target) for _ in range(2)]
        found = await asyncio.gather(*twice, client.append_to_progression("p1", "new"), return_exceptions=True)
        assert [1, 1] == [sum(isinstance(one, kind) for one in found) for kind in (Rehearsal, ConflictError)], found
        assert 4 == (await client.migration.status()).phases["json"]
        if store.is_postgresql:
            with pytest.raises(InvalidInputError, match=r"--target"):
                await client.migration.rehearse()
