"""Shows and plays: creation with first history, order, changes with a status, uniqueness and references."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from lionstate.errors import (
    ForeignKeyError,
    InvalidInputError,
    NotFoundError,
    TransitionRejectedError,
    UniqueConflictError,
)
from tests.support.backends import Backend
from tests.support.records import assert_refused_unchanged, pick, put_session


def _show(show_id: str, **columns: Any) -> dict[str, Any]:
    return {"id": show_id, "topic": f"topic {show_id}", "show_dir": "/d", **columns}


def _play(play_id: str, **columns: Any) -> dict[str, Any]:
    return {"id": play_id, "show_id": "s", "name": play_id, **columns}


async def _reasons(state: Any, entity: str, entity_id: str) -> list[str]:
    return [found["reason_code"] for found in await state.list_status_transitions(entity, entity_id)]


async def test_shows_are_found_by_id_and_topic(backend: Backend, state: Any) -> None:
    await state.create_show(_show("s", goal="g", updated_at=1.0))
    row = await state.get_show("s")
    assert row == await state.get_show_by_topic("topic s")
    assert ("active", "g", "unknown", "show.active.created") == pick(
        row, "status", "goal", "status_source", "status_reason_code"
    )
    assert 1.0 < row["updated_at"]
    assert ["show.active.created"] == await _reasons(state, "show", "s")


async def test_first_history_of_shows_and_plays(backend: Backend, state: Any) -> None:
    await state.create_show(_show("s", status="imported"))
    await state.create_show(_show("t", status="completed"))
    await state.create_play(_play("p"))
    await state.create_play(_play("q", status="merged"))
    found = [await _reasons(state, *key) for key in (("show", "s"), ("show", "t"), ("play", "p"), ("play", "q"))]
    assert [["legacy.imported"], [], ["play.pending.created"], []] == found


async def test_the_same_id_is_ignored_and_the_same_topic_or_name_refused(backend: Backend, state: Any) -> None:
    await state.create_show(_show("s", goal="first"))
    await state.create_show(_show("s", goal="second"))
    await state.create_play(_play("p"))
    await state.create_play(_play("p", effort="x"))
    await assert_refused_unchanged(
        backend,
        UniqueConflictError,
        state.create_show(_show("t", topic="topic s")),
        state.create_play(_play("q", name="p")),
    )
    assert "first" == (await state.get_show("s"))["goal"]
    assert (await state.get_play("p"))["effort"] is None


async def test_concurrent_shows_on_one_topic(backend: Backend, state: Any) -> None:
    outcomes = await asyncio.gather(
        *(state.create_show(_show(f"s{n}", topic="one")) for n in range(6)), return_exceptions=True
    )
    assert 5 == sum(isinstance(found, UniqueConflictError) for found in outcomes)
    (row,) = await state.list_shows()
    assert ["show.active.created"] == await _reasons(state, "show", row["id"])
    assert 1 == len(await state.list_status_transitions("show"))


async def test_bad_shows_and_plays_change_nothing(backend: Backend, state: Any) -> None:
    await state.create_show(_show("s"))
    await state.create_play(_play("p"))
    await assert_refused_unchanged(
        backend,
        InvalidInputError,
        state.create_show({"id": "t", "topic": "t"}),
        state.create_show(_show("t", status="running")),
        state.create_play({"id": "q", "show_id": "s"}),
        state.create_play(_play("q", status="x")),
        state.create_play(_play("q", attempt="one")),
        state.update_show("s", id="x"),
        state.update_show("s", topic=None),
        state.update_show("s", status="running", reason_code="show.active.created"),
        state.update_play("p", show_id="x"),
        state.update_play("p", sort_order=None),
        state.list_shows(limit=0),
        state.list_plays("s", limit=1001),
    )
    for call in (state.update_show("s", status="imported"), state.update_play("p", status="running")):
        with pytest.warns(DeprecationWarning), pytest.raises(InvalidInputError, match="needs a reason_code"):
            await call
    await assert_refused_unchanged(
        backend,
        ForeignKeyError,
        state.create_play(_play("q", show_id="missing")),
        state.create_play(_play("q", session_id="missing")),
        state.update_play("p", session_id="missing"),
    )


async def test_a_bad_column_takes_its_status_back(backend: Backend, state: Any) -> None:
    await state.create_show(_show("s"))
    await state.create_play(_play("p"))
    await assert_refused_unchanged(
        backend,
        ForeignKeyError,
        state.update_play("p", status="running", reason_code="run.started.ok", session_id="missing"),
    )


async def test_missing_shows_and_plays(backend: Backend, state: Any) -> None:
    for call in (state.get_show("m"), state.get_show_by_topic("m"), state.get_play("m")):
        assert await call is None
    assert [] == await state.list_shows() == await state.list_plays("m")
    await state.update_show("m", goal="x")
    await state.update_play("m", effort="x")
    for call in (
        state.update_show("m", status="aborted", reason_code="show.aborted.operator"),
        state.update_play("m", status="running", reason_code="run.started.ok"),
    ):
        with pytest.raises(NotFoundError):
            await call


async def test_shows_list_by_change_and_status(backend: Backend, state: Any) -> None:
    for name in "abc":
        await state.create_show(_show(name))
    await state.update_show("a", goal="g")
    await state.update_show("b", status="completed", reason_code="show.completed.all_plays_merged")
    assert ["b", "a", "c"] == [row["id"] for row in await state.list_shows()]
    assert ["b"] == [row["id"] for row in await state.list_shows(status="completed")]
    assert ["a"] == [row["id"] for row in await state.list_shows(limit=1, offset=1)]


async def test_plays_list_in_their_order(backend: Backend, state: Any) -> None:
    await state.create_show(_show("s"))
    for name, order, created in (("a", 2, 1.0), ("b", 1, 2.0), ("c", 1, 1.0)):
        await state.create_play(_play(name, sort_order=order, created_at=created, depends_on=[name]))
    found = await state.list_plays("s")
    assert [("c", ["c"]), ("b", ["b"]), ("a", ["a"])] == [(row["id"], row["depends_on"]) for row in found]
    assert ["b"] == [row["id"] for row in await state.list_plays("s", limit=1, offset=1)]


async def test_a_play_runs_through_its_statuses(backend: Backend, state: Any) -> None:
    await put_session(backend, "x")
    await state.create_show(_show("s"))
    await state.create_play(_play("p"))
    assert ([], 1) == pick(await state.get_play("p"), "depends_on", "attempt")
    await state.update_play("p", status="running", reason_code="run.started.ok", session_id="x", started_at=1.0)
    with pytest.warns(DeprecationWarning, match="update_play"):
        await state.update_play("p", status="merged", ended_at=2.0, merge_sha="abc", gate_passed=1)
    row = await state.get_play("p")
    assert ("merged", 2.0, "abc", 1, "x") == pick(row, "status", "ended_at", "merge_sha", "gate_passed", "session_id")
    assert ["play.merged.ok", "run.started.ok", "play.pending.created"] == await _reasons(state, "play", "p")
    with pytest.raises(TransitionRejectedError):
        await state.update_play("p", status="redoing", reason_code="play.pending.ready")
    with pytest.warns(DeprecationWarning, match="update_show"):
        await state.update_show("s", status="completed")
    assert "show.completed.final_gate" == (await state.get_show("s"))["status_reason_code"]
