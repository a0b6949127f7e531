"""Projects with their counts, and the statistics over sessions."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from lionstate.errors import InvalidInputError, UniqueConflictError
from tests.support.backends import Backend
from tests.support.records import assert_refused_unchanged, pick, put, put_session


async def test_registering_again_moves_times_and_fills_places(backend: Backend, state: Any) -> None:
    await state.register_project("p", "git_remote", path="/a")
    first = await state.get_project("p")
    await state.register_project("p", "guess", github="g")
    second = await state.get_project("p")
    assert ("git_remote", "/a", "g", 0, 0) == pick(second, "source", "path", "github", "session_count", "running_count")
    assert first["created_at"] == second["created_at"]
    assert first["last_seen_at"] < second["last_seen_at"] == second["updated_at"]
    for source, kept in (("config_toml", "config_toml"), ("git_remote", "config_toml")):
        await state.register_project("p", source)
        assert kept == (await state.get_project("p"))["source"]
    await state.register_project("p", "global_override", path="/b")
    assert ("global_override", "/b", "g") == pick(await state.get_project("p"), "source", "path", "github")


async def test_concurrent_registrations_make_one_row(backend: Backend, state: Any) -> None:
    await asyncio.gather(*(state.register_project("p", "config_toml", path=f"/{n}") for n in range(8)))
    assert ["p"] == [row["name"] for row in await state.list_projects()]


async def test_projects_of_the_studio(backend: Backend, state: Any) -> None:
    await state.create_project("p", description="d", path="/p")
    assert ("studio", "d", "/p", None) == pick(await state.get_project("p"), "source", "description", "path", "github")
    await assert_refused_unchanged(backend, UniqueConflictError, state.create_project("p"))
    await state.register_project("q", "git_remote")
    assert await state.delete_project("q") is False
    assert await state.delete_project("p") is True
    assert await state.delete_project("p") is False
    assert ["q"] == [row["name"] for row in await state.list_projects()]


async def test_changes_of_projects(backend: Backend, state: Any) -> None:
    await state.create_project("p", github="g")
    before = await state.get_project("p")
    assert await state.update_project("p") is False
    assert await state.update_project("missing", path="/x") is False
    assert await state.update_project("p", path="/x", github=None) is True
    after = await state.get_project("p")
    assert ("/x", None) == pick(after, "path", "github")
    assert before["updated_at"] < after["updated_at"]
    await assert_refused_unchanged(
        backend,
        InvalidInputError,
        state.update_project("p", source="x"),
        state.update_project("p", path="a\0"),
        state.register_project("q", 3),
        state.create_project("q", description=3),
        state.list_projects(limit=0),
    )


async def test_projects_list_by_last_sight_with_their_sessions(backend: Backend, state: Any) -> None:
    assert await state.get_project("a") is None
    for name, seen in (("a", 3.0), ("b", None), ("c", 1.0)):
        await put(backend, "projects", name=name, source="x", created_at=1.0, updated_at=2.0, last_seen_at=seen)
    for number, (project, status) in enumerate((("a", "running"), ("a", "failed"), ("c", "running"), (None, None))):
        await put_session(backend, f"s{number}", project=project, status=status)
    found = await state.list_projects()
    assert [("a", 2, 1), ("b", 0, 0), ("c", 1, 1)] == [pick(r, "name", "session_count", "running_count") for r in found]
    assert found[1:2] == await state.list_projects(limit=1, offset=1)
    assert found[0] == await state.get_project("a")


async def test_activity_counts_by_bucket_and_status(backend: Backend, state: Any) -> None:
    now = int(time.time()) // 100 * 100
    times: tuple[dict[str, Any], ...] = (
        {"created_at": now + 1.0, "started_at": now - 150.0, "ended_at": now - 20.5, "status": "failed"},
        {"created_at": now - 1.0, "started_at": now - 99.6, "status": "running"},
        {"created_at": now - 150.0, "status": "running"},
        {"created_at": now - 100.0, "status": "running"},
        {"created_at": now - 900.0, "status": "running"},
    )
    for number, columns in enumerate(times):
        await put_session(backend, f"s{number}", **columns)
    assert [
        {"bucket_start": now - 200, "status": "running", "n": 1},
        {"bucket_start": now - 100, "status": "failed", "n": 1},
        {"bucket_start": now - 100, "status": "running", "n": 2},
    ] == await state.activity_stats(window_start=now - 200, bucket_seconds=100)
    for bad in ({"bucket_seconds": 0}, {"bucket_seconds": 1}, {"bucket_seconds": 1.5}):
        with pytest.raises(InvalidInputError):
            await state.activity_stats(window_start=1.0, **bad)


async def test_spend_counts_silence_apart(backend: Backend, state: Any) -> None:
    nothing = {"reported_usd": None, "reported_count": 0, "unreported_count": 0}
    assert nothing == await state.spend_stats(window_start=0.0)
    assert [] == await state.spend_rollup(window_start=0.0, dimension="agent")
    rows = (("a", 0.5), ("a", None), ("b", 2.0), ("c", None), (None, 0.0), ("old", 9.0))
    for number, (project, cost) in enumerate(rows):
        at = 1.0 if project == "old" else 10.0
        await put_session(
            backend, f"s{number}", project=project, agent_name=project, total_cost_usd=cost, created_at=at
        )
    assert {"reported_usd": 2.5, "reported_count": 3, "unreported_count": 2} == await state.spend_stats(
        window_start=10.0
    )
    for dimension in ("project", "agent"):
        found = await state.spend_rollup(window_start=10.0, dimension=dimension)
        assert [("b", 2.0, 1, 0), ("a", 0.5, 1, 1), (None, 0.0, 1, 0), ("c", None, 0, 1)] == [
            pick(row, "key", "reported_usd", "reported_count", "unreported_count") for row in found
        ]
    assert found[:1] == await state.spend_rollup(window_start=10.0, dimension="agent", limit=-5)
    assert found == await state.spend_rollup(window_start=10.0, dimension="agent", limit=500)
    assert [None] == [row["key"] for row in await state.spend_rollup(window_start=0.0, dimension="playbook")]
    with pytest.raises(InvalidInputError):
        await state.spend_rollup(window_start=0.0, dimension="status")


async def test_the_store_is_counted(backend: Backend, state: Any) -> None:
    empty = await state.store_stats()
    assert ({}, {}) == (empty["sessions_by_status"], empty["messages_by_role"])
    assert 29 == len(empty["rows"])
    await put_session(backend, "s")
    await put_session(backend, "t", status=None)
    found = await state.store_stats()
    assert (2, {"none": 1, "running": 1}) == (found["rows"]["sessions"], found["sessions_by_status"])
    assert 0 < empty["bytes"] and 0 < found["bytes"]
    # A server may give room back in between.
    assert backend.is_postgresql or empty["bytes"] <= found["bytes"]
