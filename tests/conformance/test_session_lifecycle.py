"""update_session, finalize_branch, attach_session_invocation, sessions_by_source_kind."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from lionstate.errors import ForeignKeyError, InvalidInputError, NotFoundError, TransitionRejectedError
from tests.support.backends import Backend
from tests.support.records import assert_refused_unchanged, pick, put, put_session


async def test_a_new_running_session_has_first_history(backend: Backend, state: Any) -> None:
    for name, status in (("s", "running"), ("t", "failed"), ("u", None)):
        await backend.put_progression(name, "[]")
        await state.create_session({"id": name, "progression_id": name, "status": status})
    await state.create_session({"id": "s", "progression_id": "s", "status": "running"})
    (entry,) = await state.list_status_transitions("session")
    assert ("s", None, "running", "run.started.ok", "system", "create_session") == pick(
        entry, "entity_id", "previous_status", "status", "reason_code", "source", "actor"
    )
    assert ("run.started.ok", []) == pick(await state.get_session("s"), "status_reason_code", "status_evidence_refs")


async def test_columns_change_without_a_status(backend: Backend, state: Any) -> None:
    await put_session(backend, "s")
    await state.update_session("s", user="u", total_cost_usd=1, node_metadata={"a": [None]}, model=None)
    row = await state.get_session("s")
    assert ("u", 1.0, {"a": [None]}, "running") == pick(row, "user", "total_cost_usd", "node_metadata", "status")
    assert 1.0 < row["updated_at"]
    await state.update_session("s", node_metadata='{"b": 1}')
    assert {"b": 1} == (await state.get_session("s"))["node_metadata"]
    before = await state.get_session("s")
    await state.update_session("s", status=None)
    assert before == await state.get_session("s")


async def test_a_status_takes_its_columns_along(backend: Backend, state: Any) -> None:
    await put_session(backend, "s", started_at=1.0)
    await state.update_session(
        "s",
        status="failed",
        reason_code="run.failed.exception",
        ended_at=3.0,
        current_phase="p",
        node_metadata={"a": 1},
        model="m",
        reason_actor="me",
    )
    row = await state.get_session("s")
    assert ("failed", 3.0, 2000.0, "p", {"a": 1}, "m") == pick(
        row, "status", "ended_at", "duration_ms", "current_phase", "node_metadata", "model"
    )
    with pytest.raises(TransitionRejectedError):
        await state.update_session("s", status="running", reason_code="run.started.ok", model="x")
    assert "m" == (await state.get_session("s"))["model"]
    await state.update_session(
        "s",
        status="running",
        reason_code="session.reopened.by_resume",
        override=True,
        override_actor="root",
        override_justification="resume",
    )
    with pytest.warns(DeprecationWarning, match="update_session"):
        await state.update_session("s", status="aborted")
    found = await state.list_status_transitions("session", "s")
    assert ["run.aborted.user", "session.reopened.by_resume", "run.failed.exception"] == [
        entry["reason_code"] for entry in found
    ]
    assert [None, None, "me"] == [entry["actor"] for entry in found]


async def test_set_if_null_fills_only_what_is_absent(backend: Backend, state: Any) -> None:
    await put_session(backend, "s", model="m", node_metadata="null")
    await put_session(backend, "t", ended_at=5.0)
    await state.update_session(
        "s", set_if_null={"model", "effort", "node_metadata"}, model="x", effort="e", node_metadata={"a": 1}, name="n"
    )
    row = await state.get_session("s")
    assert ("m", "e", {"a": 1}, "n") == pick(row, "model", "effort", "node_metadata", "name")
    await state.update_session("s", set_if_null=["node_metadata"], node_metadata={"b": 1})
    later = await state.get_session("s")
    assert {"a": 1} == later["node_metadata"]
    assert row["updated_at"] < later["updated_at"]
    await state.update_session(
        "t", set_if_null=["ended_at"], ended_at=9.0, status="failed", reason_code="run.failed.exception"
    )
    assert 5.0 == (await state.get_session("t"))["ended_at"]
    await state.update_session("missing", set_if_null=["model"], model="m")


async def test_bad_sessions_change_nothing(backend: Backend, state: Any) -> None:
    await put_session(backend, "s")
    await assert_refused_unchanged(
        backend,
        InvalidInputError,
        state.update_session("s", progression_id="p"),
        state.update_session("s", id="x"),
        state.update_session("s", ended_at_is_approximate=1),
        state.update_session("s", updated_at=None),
        state.update_session("s", invocation_kind="x"),
        state.update_session("s", source_kind="x"),
        state.update_session("s", node_metadata="{"),
        state.update_session("s", input_tokens=1.5),
        state.update_session("s", set_if_null=["id"], model="x"),
        state.update_session("s", status="x", reason_code="run.failed.exception"),
        state.update_session("s", status="failed", reason_code="run.failed.exception", override=True),
        state.sessions_by_source_kind("live", limit=0),
    )
    await assert_refused_unchanged(
        backend,
        ForeignKeyError,
        state.update_session("s", invocation_id="missing"),
        state.update_session("s", status="failed", reason_code="run.failed.exception", first_msg_id="missing"),
        state.attach_session_invocation("s", "missing"),
    )
    await state.update_session("missing", model="m")
    with pytest.raises(NotFoundError):
        await state.update_session("missing", status="failed", reason_code="run.failed.exception")


async def test_a_branch_ends_once(backend: Backend, state: Any) -> None:
    await put_session(backend, "s")
    for name, status in (("a", None), ("b", "running"), ("c", "failed"), ("d", "odd")):
        await put(backend, "branches", id=name, created_at=1.0, session_id="s", progression_id="p-s", status=status)
    assert await state.finalize_branch("a", status="running") is False
    assert await state.finalize_branch("missing", status="failed") is False
    ended = [await state.finalize_branch(name, status="completed", ended_at=4.0) for name in "abcd"]
    assert [True, True, False, False] == ended
    assert ("completed", 4.0) == pick(await state.get_branch("a"), "status", "ended_at")
    assert await state.finalize_branch("a", status="failed") is False
    with pytest.raises(InvalidInputError):
        await state.finalize_branch("a", status="failed", ended_at="now")


async def test_of_many_ends_of_a_branch_one_is_written(backend: Backend, state: Any) -> None:
    await put_session(backend, "s")
    await put(backend, "branches", id="b", created_at=1.0, session_id="s", progression_id="p-s")
    outcomes = await asyncio.gather(*(state.finalize_branch("b", status="failed") for _ in range(8)))
    assert 1 == sum(outcomes)
    assert (await state.get_branch("b"))["ended_at"] is not None


async def test_moving_sessions_keeps_the_counts_in_step(backend: Backend, state: Any) -> None:
    for name in "ab":
        await state.create_invocation({"id": name, "skill": "x", "started_at": 1.0})
    for number in range(4):
        await put_session(backend, f"s{number}")
        await state.attach_session_invocation(f"s{number}", "a")
        await state.attach_session_invocation(f"s{number}", "a")
    await state.attach_session_invocation("missing", "a")

    async def counts() -> list[int]:
        return [(await state.get_invocation(name))["session_count"] for name in "ab"]

    assert [4, 0] == await counts()
    await asyncio.gather(*(state.attach_session_invocation(f"s{n % 4}", "ab"[(n // 4) % 2]) for n in range(32)))
    rows = await backend.rows("SELECT invocation_id FROM sessions")
    assert [sum(row["invocation_id"] == name for row in rows) for name in "ab"] == await counts()
    await backend.execute("UPDATE invocations SET session_count = 0")
    await state.attach_session_invocation("s0", "a" if (await state.get_session("s0"))["invocation_id"] == "b" else "b")
    assert [0, 1] == sorted(await counts())


async def test_sessions_of_a_kind_page_by_id(backend: Backend, state: Any) -> None:
    for name in "cab":
        await put_session(backend, name, source_kind="imported_fs", node_metadata='{"k": 1}')
    await put_session(backend, "d", source_kind="live")
    found = await state.sessions_by_source_kind("imported_fs", limit=2)
    assert [{"id": "a", "node_metadata": {"k": 1}}, {"id": "b", "node_metadata": {"k": 1}}] == found
    assert ["c"] == [row["id"] for row in await state.sessions_by_source_kind("imported_fs", after_id="b")]
    assert [] == await state.sessions_by_source_kind("other")
