"""Invocations: creation with first history, pages with facts of sessions and runs, changes, reaping."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from lionstate.errors import InvalidInputError, NotFoundError, TransitionRejectedError
from lionstate.records import invocations
from tests.support.backends import Backend
from tests.support.records import assert_refused_unchanged, pick, put, put_session


def _invocation(invocation_id: str, **columns: Any) -> dict[str, Any]:
    return {"id": invocation_id, "skill": "x", "started_at": 1.0, **columns}


async def test_creation_fills_defaults_and_writes_first_history(backend: Backend, state: Any) -> None:
    await state.create_invocation(_invocation("i", node_metadata={"a": [None]}, other="ignored", status=None))
    row = await state.get_invocation("i")
    assert row["created_at"] == row["updated_at"]
    assert ("running", 0, {"a": [None]}, "run.started.ok", []) == (
        row["status"],
        row["session_count"],
        row["node_metadata"],
        row["status_reason_code"],
        row["status_evidence_refs"],
    )
    (entry,) = await state.list_status_transitions("invocation", "i")
    assert (None, "running", "system", "create_invocation") == (
        entry["previous_status"],
        entry["status"],
        entry["source"],
        entry["actor"],
    )


async def test_an_invocation_born_finished_has_no_first_history(backend: Backend, state: Any) -> None:
    await state.create_invocation(_invocation("i", status="completed", ended_at=2.0))
    assert [] == await state.list_status_transitions("invocation", "i")
    assert (await state.get_invocation("i"))["status_reason_code"] is None


async def test_concurrent_creation_keeps_the_first_and_one_history_row(backend: Backend, state: Any) -> None:
    await asyncio.gather(*(state.create_invocation(_invocation("i", prompt=str(number))) for number in range(8)))
    assert "0" == (await state.get_invocation("i"))["prompt"]
    assert 1 == len(await state.list_status_transitions("invocation", "i"))


async def test_bad_invocations_change_nothing(backend: Backend, state: Any) -> None:
    await state.create_invocation(_invocation("i"))
    create, update = state.create_invocation, state.update_invocation
    await assert_refused_unchanged(
        backend,
        InvalidInputError,
        create({"id": "j", "skill": "x"}),
        create("text"),
        create(_invocation("j", status="queued")),
        create(_invocation("j", started_at="soon")),
        create(_invocation("j\0")),
        create(_invocation("j", node_metadata={"a": object()})),
        update("i", id="k"),
        update("i", created_at=1.0),
        update("i", skill=None),
        update("i", status="queued", reason_code="run.started.ok"),
        update("i", status="failed", reason_code="x"),
        update("i", status="failed", reason_code="run.failed.exception", reason_source="x"),
        state.merge_invocation_node_metadata("i", ["a"]),
        state.merge_invocation_node_metadata("i", {"a": float("nan")}),
        state.list_running_invocations_for_reaping(after_id="a"),
        state.list_running_invocations_for_reaping(limit=0),
        state.list_sessions_for_invocations("text"),
    )


async def test_missing_rows(backend: Backend, state: Any) -> None:
    assert await state.get_invocation("m") is None
    assert [] == await state.list_invocations()
    assert 0 == await state.count_invocations()
    await state.update_invocation("m", prompt="x")
    await state.merge_invocation_node_metadata("m", {"a": 1})
    assert [] == await state.list_sessions_for_invocation("m")
    assert {"m": []} == await state.list_sessions_for_invocations(["m", "m"])
    assert {} == await state.list_sessions_for_invocations([])
    with pytest.raises(NotFoundError):
        await state.update_invocation("m", status="failed", reason_code="run.failed.exception")
    assert [] == await backend.rows("SELECT id FROM invocations")


async def test_an_update_changes_status_and_columns_together(backend: Backend, state: Any) -> None:
    await state.create_invocation(_invocation("i", updated_at=1.0))
    await state.update_invocation("i", prompt="p")
    assert 1.0 < (await state.get_invocation("i"))["updated_at"]
    await state.update_invocation(
        "i",
        status="failed",
        ended_at=9.0,
        prompt="q",
        reason_code="run.failed.exit_nonzero",
        reason_summary="1",
        evidence_refs=[{"e": 1}],
        reason_source="agent",
        reason_actor="a",
    )
    row = await state.get_invocation("i")
    assert ("failed", 9.0, "q", "1") == pick(row, "status", "ended_at", "prompt", "status_reason_summary")
    (entry, _) = await state.list_status_transitions("invocation", "i")
    assert ("agent", "a", [{"e": 1}]) == (entry["source"], entry["actor"], entry["evidence_refs"])
    with pytest.raises(TransitionRejectedError):
        await state.update_invocation("i", status="running", prompt="r", reason_code="run.started.ok")
    assert "q" == (await state.get_invocation("i"))["prompt"]


async def test_a_default_reason_is_deprecated(backend: Backend, state: Any) -> None:
    await state.create_invocation(_invocation("i"))
    with pytest.warns(DeprecationWarning, match="update_invocation") as caught:
        await state.update_invocation("i", status="timed_out")
    assert __file__ == caught[0].filename
    assert "run.timed_out.deadline" == (await state.get_invocation("i"))["status_reason_code"]


async def test_pages_carry_the_latest_session_and_run(backend: Backend, state: Any) -> None:
    for number, name in enumerate("abc"):
        await state.create_invocation(_invocation(name, updated_at=float(number), skill=name, plugin="p"))
    for number in (1, 3, 2):
        await put_session(
            backend,
            f"s{number}",
            invocation_id="b",
            updated_at=float(number),
            project=f"p{number}",
            project_source="config_toml",
        )
        await put(
            backend,
            "schedule_runs",
            id=f"r{number}",
            invocation_id="b",
            trigger_context="{}",
            action_kind="agent",
            action_args="{}",
            fired_at=1.0,
            created_at=float(number),
            exit_code=number,
            error_detail=f"e{number}",
        )
    found = await state.list_invocations()
    assert ["c", "b", "a"] == [row["id"] for row in found]
    names = ("project", "project_source", "schedule_run_exit_code", "schedule_run_error_detail", "action_kind")
    assert ("p3", "config_toml", 3, "e3", "agent") == tuple(found[1][name] for name in names)
    assert (None,) * 5 == tuple(found[0][name] for name in names)
    assert ["b"] == [row["id"] for row in await state.list_invocations(limit=1, offset=1)]
    assert ["a"] == [row["id"] for row in await state.list_invocations(skill="a", plugin="p", status="running")]
    assert [3, 1, 0] == [
        await state.count_invocations(plugin="p"),
        await state.count_invocations(skill="a"),
        await state.count_invocations(status="failed"),
    ]


async def test_metadata_merges_and_keeps_what_was_no_object(backend: Backend, state: Any) -> None:
    await state.create_invocation(_invocation("i", node_metadata={"a": 1, "b": {"c": 1, "d": 2}}))
    await state.merge_invocation_node_metadata("i", {"a": None, "b": {"c": None, "e": {"f": None}}, "g": [None]})
    assert {"b": {"d": 2, "e": {}}, "g": [None]} == (await state.get_invocation("i"))["node_metadata"]
    await backend.execute("UPDATE invocations SET node_metadata = :value", value='["x"]')
    await state.merge_invocation_node_metadata("i", {"a": 1})
    merged = (await state.get_invocation("i"))["node_metadata"]
    assert 0 < merged.pop("_discarded_at")
    assert {"a": 1, "_discarded_node_metadata": ["x"]} == merged


async def test_concurrent_merges_all_land(backend: Backend, state: Any) -> None:
    await state.create_invocation(_invocation("i"))
    await asyncio.gather(*(state.merge_invocation_node_metadata("i", {f"k{n}": n}) for n in range(20)))
    assert {f"k{n}": n for n in range(20)} == (await state.get_invocation("i"))["node_metadata"]


async def test_reaping_pages_by_start_and_id(backend: Backend, state: Any) -> None:
    for name, start in (("b", 2.0), ("a", 2.0), ("c", 1.0), ("d", 3.0)):
        await state.create_invocation(_invocation(name, started_at=start))
    await state.update_invocation("d", status="failed", reason_code="run.failed.exception")
    first = await state.list_running_invocations_for_reaping(limit=2)
    assert ["c", "a"] == [row["id"] for row in first]
    rest = await state.list_running_invocations_for_reaping(after_started_at=2.0, after_id="a")
    assert ["b"] == [row["id"] for row in rest]


async def test_sessions_of_several_invocations(backend: Backend, state: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in "ab":
        await state.create_invocation(_invocation(name))
    for number, (session, of) in enumerate((("s3", "a"), ("s2", "b"), ("s1", "a"))):
        await put_session(backend, session, invocation_id=of, created_at=float(number), node_metadata='{"k": 1}')
    found = await state.list_sessions_for_invocations(["b", "missing", "a"])
    assert {"a": ["s3", "s1"], "b": ["s2"], "missing": []} == {
        name: [row["id"] for row in rows] for name, rows in found.items()
    }
    assert ({"k": 1}, False) == (found["b"][0]["node_metadata"], found["b"][0]["ended_at_is_approximate"])
    assert found["a"][:1] == await state.list_sessions_for_invocation("a", limit=1)
    monkeypatch.setattr(invocations, "MOST_SESSIONS", 2)
    with pytest.raises(InvalidInputError, match="more than 2 sessions"):
        await state.list_sessions_for_invocations(["a", "b"])
    assert 2 == sum(len(rows) for rows in (await state.list_sessions_for_invocations(["a", "b"], limit=1)).values())
