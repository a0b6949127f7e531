"""Artifacts and the audit trail (ADR-0055 D1, D4)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from lionstate.errors import ForeignKeyError, InvalidInputError, UniqueConflictError
from tests.support.backends import Backend
from tests.support.conversations import conversation


async def _parents(backend: Backend) -> None:
    await conversation(backend)
    await backend.execute(
        "INSERT INTO invocations (id, skill, started_at, created_at, updated_at) VALUES ('i', 'x', 1.0, 1.0, 1.0)"
    )


SHAPES: list[dict[str, str]] = [
    {},
    {"invocation_id": "i"},
    {"session_id": "s"},
    {"invocation_id": "i", "session_id": "s"},
]


async def test_a_natural_key_has_four_shapes(backend: Backend, state: Any) -> None:
    await _parents(backend)
    made = []
    for number, shape in enumerate(SHAPES):
        made.append(await state.insert_artifact(kind="k", name="n", content={"v": number}, file_path="/a", **shape))
    assert 4 == len(set(made))
    for number, (artifact_id, shape) in enumerate(zip(made, SHAPES, strict=True)):
        assert 12 == len(artifact_id) == len(bytes.fromhex(artifact_id)) * 2
        found = await state.get_artifact(artifact_id)
        parents = {"invocation_id": None, "session_id": None, **shape}
        now = found["created_at"]
        expected = {"id": artifact_id, "kind": "k", "name": "n", "content": {"v": number}, "file_path": "/a"}
        assert {**expected, **parents, "created_at": now, "updated_at": now} == found
    assert made[1::2] == [row["id"] for row in await state.list_artifacts_for_invocation("i")]
    assert made[2:] == [row["id"] for row in await state.list_artifacts_for_session("s")]


async def test_a_hit_keeps_the_row_and_takes_the_rest(backend: Backend, state: Any) -> None:
    await _parents(backend)
    for shape in SHAPES:
        first = await state.insert_artifact(kind="k", name="n", content={"v": 1}, file_path="/a", **shape)
        await backend.execute("UPDATE artifacts SET created_at = 1.0, updated_at = 1.0")
        assert first == await state.insert_artifact(kind="k", name="n", content={"v": 2}, **shape)
        found = await state.get_artifact(first)
        assert ({"v": 2}, None, 1.0) == (found["content"], found["file_path"], found["created_at"])
        assert found["updated_at"] > 1_000_000_000.0
        assert first != await state.insert_artifact(kind="k", name="m", content={}, **shape)
        assert first != await state.insert_artifact(kind="j", name="n", content={}, **shape)


async def test_what_is_refused_changes_nothing(backend: Backend, state: Any) -> None:
    good: dict[str, Any] = {"kind": "k", "name": "n", "content": {}}
    for bad in ({"kind": ""}, {"name": ""}, {"name": None}, {"content": {"x": float("nan")}}, {"file_path": 3}):
        with pytest.raises(InvalidInputError):
            await state.insert_artifact(**{**good, **bad})
    for bad in ({"invocation_id": "missing"}, {"session_id": "missing"}):
        with pytest.raises(ForeignKeyError):
            await state.insert_artifact(**{**good, **bad})
    assert [] == await backend.rows("SELECT id FROM artifacts")
    assert await state.get_artifact("missing") is None
    assert [[], []] == [
        await state.list_artifacts_for_invocation("missing"),
        await state.list_artifacts_for_session("missing"),
    ]


async def test_paths_are_stored_as_given(state: Any) -> None:
    """A reference, not a claim: unlike LionAGI 0.36.0 nothing looks at it (reference 4, row 4)."""
    for path in ("/abs", "../up", "C:\\x", "~/*", ""):
        found = await state.insert_artifact(kind="k", name="n", content={}, file_path=path)
        assert path == (await state.get_artifact(found))["file_path"]


async def test_concurrent_inserts_of_one_key_end_with_one_row(backend: Backend, state: Any) -> None:
    calls = [state.insert_artifact(kind="k", name="n", content={"v": n}) for n in range(10)]
    found = await asyncio.gather(*calls)
    assert 1 == len(set(found))
    assert {"v": 9} == (await state.get_artifact(found[0]))["content"]


async def test_a_race_with_another_process_surfaces(backend: Backend, state: Any) -> None:
    """The other process's row is there, but not yet visible to the look-up: the unique index decides (D4)."""
    if not backend.is_postgresql:
        return
    insert = (
        "INSERT INTO artifacts (id, created_at, updated_at, kind, name, content) VALUES ('x', 1, 1, 'k', 'n', '{}')"
    )
    async with backend.direct.transaction() as other:
        await other.execute(insert)
        racing = asyncio.ensure_future(state.insert_artifact(kind="k", name="n", content={}))
        waiting: list[Any] = []
        while not waiting:
            await other.execute("SELECT pg_stat_clear_snapshot()")
            waiting = await other.fetch_all(
                "SELECT pid FROM pg_stat_activity WHERE wait_event = 'transactionid' AND state = 'active'"
                " AND datname = current_database() AND query LIKE 'INSERT INTO artifacts%'"
            )
    with pytest.raises(UniqueConflictError):
        await racing
    assert [{"id": "x"}] == await backend.rows("SELECT id FROM artifacts")


async def test_events_are_listed_newest_first_and_decoded(backend: Backend, state: Any) -> None:
    made = [
        await state.insert_admin_event(action=f"a{number % 2}", details={"n": number}, target_id=f"t{number}")
        for number in range(4)
    ]
    listed = await state.list_admin_events()
    assert list(reversed(made)) == [row["id"] for row in listed]
    newest = listed[0]
    expected = {"id": made[3], "action": "a1", "target_id": "t3", "details": {"n": 3}, "actor": "admin"}
    assert {**expected, "created_at": newest["created_at"]} == newest
    assert 12 == len(made[0])
    assert [made[3], made[1]] == [row["id"] for row in await state.list_admin_events(action="a1")]
    assert made[:1:-1] == [row["id"] for row in await state.list_admin_events(limit=2)]
    for bad in (0, 1001, -5):
        with pytest.raises(InvalidInputError):
            await state.list_admin_events(limit=bad)


async def test_a_target_is_found_in_its_column_and_quoted_in_the_details(state: Any) -> None:
    async def event(target: str | None, details: Any) -> str:
        found: str = await state.insert_admin_event(action="a", details=details, target_id=target, actor="me")
        return found

    column = await event("x%é", {})
    quoted = await event(None, {"ids": ["other", "x%é"]})
    key = await event("y", {"x%é": 1})
    await event("X%É", {"ids": ["X%É", "x_é", "xx%éx"]})
    assert [key, quoted, column] == [row["id"] for row in await state.list_admin_events(target_id="x%é")]
    assert [key] == [row["id"] for row in await state.list_admin_events(target_id="y", action="a")]
    assert [] == await state.list_admin_events(target_id="y", action="b")


async def test_details_must_have_a_json_form(backend: Backend, state: Any) -> None:
    for bad in ({"x": float("inf")}, {"x": object()}):
        with pytest.raises(InvalidInputError):
            await state.insert_admin_event(action="a", details=bad)
    assert [] == await backend.rows("SELECT id FROM admin_events")
