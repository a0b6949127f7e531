"""Engine runs with their keyset pages, engine and workflow definitions."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from lionstate.errors import ForeignKeyError, InvalidInputError, UniqueConflictError
from tests.support.backends import Backend
from tests.support.records import assert_refused_unchanged, pick, put_session


def _run(run_id: str, **columns: Any) -> dict[str, Any]:
    return {"run_id": run_id, "kind": "k", "spec_json": {"a": [None]}, "started_at": 1.0, **columns}


async def test_a_run_from_start_to_outcome(backend: Backend, state: Any) -> None:
    for name in "xyz":
        await put_session(backend, name)
    await state.create_invocation({"id": "i", "skill": "s", "started_at": 1.0})
    await state.insert_engine_run(**_run("r", session_id="x"))
    row = await state.get_engine_run("r")
    assert ("running", {"a": [None]}, "x", None) == pick(row, "status", "spec_json", "session_id", "outcome_json")
    await state.set_engine_run_lineage("r", invocation_id="i", signal_session_id="y", parent_session_id="z")
    await state.record_engine_run_outcome("r", {"ok": True})
    await state.update_engine_run("r", status="failed", ended_at=2.0, export_dir="/e", error="e")
    row = await state.get_engine_run("r")
    assert ("i", "y", "z", {"ok": True}) == pick(
        row, "invocation_id", "signal_session_id", "parent_session_id", "outcome_json"
    )
    assert ("failed", 2.0, "/e", "e") == pick(row, "status", "ended_at", "export_dir", "error")
    await state.update_engine_run("r", status="running")
    assert ("running", None, None, None) == pick(
        await state.get_engine_run("r"), "status", "ended_at", "export_dir", "error"
    )


async def test_missing_runs_are_silent(backend: Backend, state: Any) -> None:
    assert await state.get_engine_run("m") is None
    await state.update_engine_run("m", status="failed")
    await state.set_engine_run_lineage("m", invocation_id=None, signal_session_id=None, parent_session_id=None)
    await state.record_engine_run_outcome("m", {})
    assert [] == await state.list_engine_runs() == await state.list_engine_run_summaries()


async def test_of_runs_with_one_id_the_first_stays(backend: Backend, state: Any) -> None:
    outcomes = await asyncio.gather(
        *(state.insert_engine_run(**_run("r", kind=str(n))) for n in range(6)), return_exceptions=True
    )
    assert [None] + [UniqueConflictError] * 5 == [found and type(found) for found in outcomes]
    assert "0" == (await state.get_engine_run("r"))["kind"]


async def test_bad_runs_change_nothing(backend: Backend, state: Any) -> None:
    await state.insert_engine_run(**_run("r"))
    await assert_refused_unchanged(
        backend,
        InvalidInputError,
        state.insert_engine_run(**_run("q", spec_json="x")),
        state.insert_engine_run(**_run("q", started_at=None)),
        state.update_engine_run("r", status="aborted"),
        state.record_engine_run_outcome("r", {"a": float("nan")}),
        state.list_engine_runs(limit=0),
        state.list_engine_run_summaries(before_id="r"),
        state.list_engine_run_summaries(before_started_at=1.0),
        state.list_engine_run_summaries(limit=1001),
    )
    nowhere = {"invocation_id": "m", "signal_session_id": None, "parent_session_id": None}
    await assert_refused_unchanged(
        backend,
        ForeignKeyError,
        state.insert_engine_run(**_run("q", session_id="m")),
        state.set_engine_run_lineage("r", **nowhere),
    )


async def test_runs_page_by_start_and_id(backend: Backend, state: Any) -> None:
    await put_session(backend, "x")
    for name, start, kind in (("a", 1.0, "k"), ("b", 2.0, "k"), ("c", 2.0, "other"), ("d", 3.0, "k")):
        await state.insert_engine_run(
            **_run(name, started_at=start, kind=kind, session_id="x" if name == "b" else None)
        )
    await state.update_engine_run("c", status="completed", export_dir="/e")
    await state.update_engine_run("a", status="failed", error="e")
    assert ["d", "c", "b", "a"] == [row["id"] for row in await state.list_engine_runs()]
    assert ["c"] == [row["id"] for row in await state.list_engine_runs(limit=1, offset=1)]
    assert ["d", "b", "a"] == [row["id"] for row in await state.list_engine_runs(kind="k")]
    assert ["b"] == [row["id"] for row in await state.list_engine_runs(session_id="x", status="running")]
    page = await state.list_engine_run_summaries(limit=2)
    assert [("d", False, False), ("c", True, False)] == [pick(row, "id", "has_output", "has_error") for row in page]
    rest = await state.list_engine_run_summaries(before_started_at=2.0, before_id="c")
    assert [("b", False, False), ("a", False, True)] == [pick(row, "id", "has_output", "has_error") for row in rest]
    assert {"spec_json", "export_dir", "error"}.isdisjoint(rest[0])
    assert ["a"] == [row["id"] for row in await state.list_engine_run_summaries(kind="k", status="failed")]


@pytest.mark.parametrize("what", ["engine", "workflow"])
async def test_definitions(backend: Backend, state: Any, what: str) -> None:
    create, get, by_name, update, delete, page = (
        getattr(state, name.format(what))
        for name in (
            "create_{}_def",
            "get_{}_def",
            "get_{}_def_by_name",
            "update_{}_def",
            "delete_{}_def",
            "list_{}_defs",
        )
    )
    value = {"options": {"a": 1}} if what == "engine" else {"spec_json": [{"a": None}]}
    kind = {"kind": "k"} if what == "engine" else {}
    assert [None, None, False, []] == [await get("m"), await by_name("m"), await delete("m"), await page()]
    await update("m", description="x")
    for name in "abc":
        await create({"id": name, "name": f"n{name}", **kind, **value, "other": 1})
    row = await get("b")
    assert row == await by_name("nb")
    assert value == {name: row[name] for name in value}
    assert row["created_at"] == row["updated_at"]
    await update("b")
    assert row == await get("b")
    await update("b", name="new", description="d")
    assert ("new", "d") == pick(await get("b"), "name", "description")
    assert ["b", "c", "a"] == [found["id"] for found in await page()]
    assert ["c"] == [found["id"] for found in await page(limit=1, offset=1)]
    await assert_refused_unchanged(
        backend,
        UniqueConflictError,
        create({"id": "a", "name": "x", **kind}),
        create({"id": "x", "name": "na", **kind}),
        update("b", name="na"),
    )
    await assert_refused_unchanged(
        backend,
        InvalidInputError,
        create({"id": "x", **kind}),
        create({"id": "x", "name": 3, **kind}),
        update("b", id="x"),
        update("b", updated_at=1.0),
        update("b", name=None),
        page(limit=0),
    )
    assert await delete("b") is True
    assert await get("b") is None


async def test_of_engine_definitions_with_one_name_one_is_made(backend: Backend, state: Any) -> None:
    outcomes = await asyncio.gather(
        *(state.create_engine_def({"id": str(n), "name": "one", "kind": "k"}) for n in range(6)),
        return_exceptions=True,
    )
    assert 5 == sum(isinstance(found, UniqueConflictError) for found in outcomes)
    assert 1 == len(await state.list_engine_defs(kind="k"))
