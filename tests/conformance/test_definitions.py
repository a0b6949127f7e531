"""Versioned definitions (ADR-0055 D2)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from lionstate.errors import InvalidInputError, VersionRaceError
from tests.support.backends import Backend


def _definition(**fields: Any) -> dict[str, Any]:
    return {"kind": "agent", "name": "a", "path": "/a.md", "content": "# a", **fields}


async def test_versions_count_from_one_per_kind_and_name(state: Any) -> None:
    assert 1 == await state.save_definition(**_definition())
    assert 2 == await state.save_definition(**_definition(content="# b", message="second"))
    assert 1 == await state.save_definition(**_definition(kind="playbook"))
    assert 1 == await state.save_definition(**_definition(name="", path="", content=""))
    latest = await state.get_definition("agent", "a")
    expected = {**_definition(content="# b", message="second"), "version": 2}
    assert {**expected, "id": latest["id"], "created_at": latest["created_at"]} == latest
    assert 36 == len(latest["id"])
    first = await state.get_definition("agent", "a", version=1)
    assert ("# a", None, 1) == (first["content"], first["message"], first["version"])
    for missing in (("agent", "a", 3), ("agent", "b", None), ("playbook", "a", 2), ("no kind", "a", None)):
        assert await state.get_definition(missing[0], missing[1], version=missing[2]) is None


async def test_lists_leave_path_and_content_out(state: Any) -> None:
    for number in range(3):
        await state.save_definition(**_definition(message=f"v{number + 1}"))
    await state.save_definition(**_definition(kind="playbook", name="z"))
    versions = await state.list_definition_versions("agent", "a")
    assert [3, 2, 1] == [row["version"] for row in versions]
    assert ["v3", "v2", "v1"] == [row["message"] for row in versions]
    assert {"id", "kind", "name", "version", "created_at", "message"} == versions[0].keys()
    assert [] == await state.list_definition_versions("agent", "missing")
    latest = await state.list_latest_definition_versions()
    assert [("agent", "a", 3), ("playbook", "z", 1)] == [(r["kind"], r["name"], r["version"]) for r in latest]
    assert versions[0]["created_at"] == latest[0]["created_at"]


async def test_other_kinds_are_refused_before_anything_is_written(backend: Backend, state: Any) -> None:
    for bad in ({"kind": "skill"}, {"kind": ""}, {"kind": None}, {"name": 3}, {"content": None}, {"path": "a\0"}):
        with pytest.raises(InvalidInputError) as one:
            await state.save_definition(**_definition(**bad))
        assert isinstance(one.value, ValueError)
    assert [] == await backend.rows("SELECT id FROM definitions")


async def test_concurrent_saves_get_distinct_versions(state: Any) -> None:
    found = await asyncio.gather(*(state.save_definition(**_definition(content=str(n))) for n in range(12)))
    assert list(range(1, 13)) == found


async def test_two_processes_race_for_the_next_version(backend: Backend, state: Any) -> None:
    async with type(backend.direct)(url=backend.direct.url) as other:
        calls = [handle.save_definition(**_definition()) for _ in range(6) for handle in (state, other)]
        found = await asyncio.gather(*calls)
    assert list(range(1, 13)) == sorted(found)


async def test_a_race_lost_every_time_says_so(backend: Backend, state: Any) -> None:
    """A trigger swallows the insert, as a conflict with another writer's row does."""
    if backend.is_postgresql:
        await backend.execute(
            "CREATE OR REPLACE FUNCTION test_swallow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'"
        )
        await backend.execute(
            "CREATE TRIGGER test_swallow BEFORE INSERT ON definitions FOR EACH ROW EXECUTE FUNCTION test_swallow()"
        )
    else:
        await backend.execute(
            "CREATE TRIGGER test_swallow BEFORE INSERT ON definitions BEGIN SELECT RAISE(IGNORE); END"
        )
    try:
        with pytest.raises(VersionRaceError, match="exists already") as lost:
            await state.save_definition(**_definition())
        assert isinstance(lost.value, RuntimeError)
    finally:
        suffix = " ON definitions" if backend.is_postgresql else ""
        await backend.execute(f"DROP TRIGGER test_swallow{suffix}")
    assert 1 == await state.save_definition(**_definition())
