"""Runs of schedules: creation with first history, create-and-advance, tombstones, changes, lists."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from lionstate import NO_CURSOR_CLAIM
from lionstate.errors import (
    ForeignKeyError,
    InvalidInputError,
    NotFoundError,
    TransitionRejectedError,
    UniqueConflictError,
)
from tests.support.backends import Backend
from tests.support.records import assert_refused_unchanged, pick
from tests.support.scheduling import run, schedule

NEVER = "run.failed.never_dispatched"


async def _ids(call: Any) -> list[str]:
    return [row["id"] for row in await call]


async def test_creation_fills_defaults(backend: Backend, state: Any) -> None:
    await state.create_schedule(schedule("a"))
    await state.create_schedule_run(run("r", "a", other="ignored", status=None))
    row = await state.get_schedule_run("r")
    assert ("running", 0, {"t": 1}, {"a": [None]}, None, None, "run.started.ok") == pick(
        row,
        "status",
        "chain_depth",
        "trigger_context",
        "action_args",
        "resume_packet",
        "queued_at",
        "status_reason_code",
    )


async def test_context_and_arguments_may_be_null(backend: Backend, state: Any) -> None:
    await state.create_schedule_run(run("r", trigger_context=None, action_args=None))
    assert (None, None) == pick(await state.get_schedule_run("r"), "trigger_context", "action_args")


@pytest.mark.parametrize(
    ("status", "code"),
    [
        ("queued", "schedule.queued.created"),
        ("running", "run.started.ok"),
        ("failed", "run.failed.exception"),
        ("skipped", "schedule.skipped.precondition"),
        ("completed", None),
        ("retry_wait", None),
    ],
)
async def test_first_history_by_status(backend: Backend, state: Any, status: str, code: str | None) -> None:
    await state.create_schedule_run(run("r", status=status))
    history = await state.list_status_transitions("schedule_run", "r")
    names = ("previous_status", "status", "reason_code", "source", "actor")
    expected = [] if code is None else [(None, status, code, "system", "create_schedule_run")]
    assert expected == [pick(entry, *names) for entry in history]
    assert code == (await state.get_schedule_run("r"))["status_reason_code"]


async def test_bad_runs_change_nothing(backend: Backend, state: Any) -> None:
    await state.create_schedule(schedule("a", next_fire_at=1.0))
    await state.create_schedule_run(run("r", "a"))
    create, update = state.create_schedule_run, state.update_schedule_run
    advance, replace = state.create_schedule_run_and_advance, state.tombstone_and_replace_schedule_run
    moving: dict[str, Any] = {"schedule_id": "a", "schedule_fields": {}, "expect_next_fire_at": 1.0}
    await assert_refused_unchanged(
        backend,
        InvalidInputError,
        create({key: value for key, value in run("n").items() if key != "schedule_id"}),
        create({key: value for key, value in run("n").items() if key != "trigger_context"}),
        create("text"),
        create(run("n", status="moving")),
        create(run("n", fired_at="soon")),
        create(run("n", action_args={"a": object()})),
        create(run("n\0")),
        advance(run("n", status="moving"), **moving),
        advance(run("n"), **{**moving, "schedule_fields": {"id": "b"}}),
        advance(run("n"), **{**moving, "schedule_fields": {"enabled": 2}}),
        advance(run("n"), **{**moving, "schedule_fields": "text"}),
        advance(run("n"), **{**moving, "expect_next_fire_at": "soon"}),
        advance(run("n"), **{**moving, "schedule_fields": {"enabled": 0}}, reason={"code": "run.started.ok"}),
        replace("r", run("n", status="moving")),
        replace("r", run("n"), expected_orphan_status="completed"),
        replace("r", run("n"), expected_orphan_status="moving"),
        replace("r", run("n"), evidence_refs="e"),
        update("r", id="s"),
        update("r", fired_at=1.0),
        update("r", status="moving", reason_code="run.started.ok"),
        update("r", status="failed", reason_code="x"),
        update("r", exit_code="1"),
        state.list_schedule_runs("a", limit=0),
        state.list_schedule_runs("a", status=["x"] * 1001),
        state.list_undispatched_schedule_runs(limit=1001),
        state.schedule_run_exists_since("a", float("inf")),
    )
    await assert_refused_unchanged(backend, UniqueConflictError, create(run("r")), advance(run("r"), **moving))
    await assert_refused_unchanged(backend, UniqueConflictError, replace("r", run("r")))
    await assert_refused_unchanged(
        backend,
        ForeignKeyError,
        create(run("n", "missing")),
        create(run("n", invocation_id="missing")),
        advance(run("n", chain_parent_id="missing"), **moving),
    )


async def test_missing_rows(backend: Backend, state: Any) -> None:
    assert await state.get_schedule_run("m") is None
    assert await state.get_schedule_run_by_invocation("m") is None
    assert [] == await state.list_schedule_runs("m")
    assert [] == await state.list_running_schedule_runs("m")
    assert [] == await state.list_undispatched_schedule_runs()
    assert [] == await state.list_dispatched_running_schedule_runs()
    assert await state.schedule_run_exists_since("m", 0.0) is False
    await state.update_schedule_run("m", exit_code=1)
    with pytest.raises(NotFoundError):
        await state.update_schedule_run("m", status="failed", reason_code="run.failed.exception")
    moved = await state.create_schedule_run_and_advance(
        run("n"), schedule_id="m", schedule_fields={"next_fire_at": 1.0}, expect_next_fire_at=NO_CURSOR_CLAIM
    )
    assert moved is False
    assert await state.tombstone_and_replace_schedule_run("m", run("n")) is False
    assert [] == await backend.rows("SELECT id FROM schedule_runs")


async def test_a_run_and_its_cursor_move_together(backend: Backend, state: Any) -> None:
    await state.create_schedule(schedule("a", next_fire_at=1.0, github_cursor="m"))

    async def advance(run_id: str, fields: dict[str, Any], **expected: Any) -> Any:
        return await state.create_schedule_run_and_advance(
            run(run_id, "a"), schedule_id="a", schedule_fields=fields, **expected
        )

    assert await advance("r1", {"next_fire_at": 2.0, "last_fired_at": 1.0}, expect_next_fire_at=1.0)
    assert not await advance("r2", {"next_fire_at": 3.0}, expect_next_fire_at=1.0)
    assert not await advance("r2", {"next_fire_at": 3.0}, expect_next_fire_at=None)
    assert not await advance("r2", {}, expect_next_fire_at=2.0, expect_github_cursor="a")
    assert await state.get_schedule_run("r2") is None
    # The cursor never moves back here, whoever holds the claim.
    assert await advance("r3", {"github_cursor": "b"}, expect_next_fire_at=2.0, expect_github_cursor="m")
    assert await advance("r4", {"enabled": 0}, expect_next_fire_at=NO_CURSOR_CLAIM)
    names = ("next_fire_at", "last_fired_at", "github_cursor", "enabled")
    assert (2.0, 1.0, "m", 0) == pick(await state.get_schedule("a"), *names)
    assert 2 == len((await state.get_schedule_history("a"))["events"])
    (entry,) = await state.list_status_transitions("schedule_run", "r1")
    assert ("running", "create_schedule_run_and_advance") == pick(entry, "status", "actor")


async def test_of_concurrent_firings_of_one_instant_one_wins(backend: Backend, state: Any) -> None:
    await state.create_schedule(schedule("a", next_fire_at=1.0))
    calls = (
        state.create_schedule_run_and_advance(
            run(f"r{number}", "a"), schedule_id="a", schedule_fields={"next_fire_at": 2.0}, expect_next_fire_at=1.0
        )
        for number in range(8)
    )
    outcomes = await asyncio.gather(*calls)
    assert 1 == outcomes.count(True)
    assert [f"r{outcomes.index(True)}"] == await _ids(state.list_schedule_runs("a"))


async def test_an_undispatched_orphan_is_replaced(backend: Backend, state: Any) -> None:
    await state.create_schedule(schedule("a"))
    for name in ("orphan", "launched"):
        await state.create_schedule_run(run(name, "a"))
    await state.update_schedule_run("launched", dispatched_at=2.0)
    replace = state.tombstone_and_replace_schedule_run
    assert await replace("orphan", run("n", "a"), expected_orphan_status="queued") is False
    assert await replace("launched", run("n", "a")) is False
    assert await replace("orphan", run("n", "a"), reason_summary="why", evidence_refs=[{"e": 1}])
    names = ("status", "status_reason_code", "status_reason_summary", "status_evidence_refs")
    assert ("failed", NEVER, "why", [{"e": 1}]) == pick(await state.get_schedule_run("orphan"), *names)
    assert "running" == (await state.get_schedule_run("n"))["status"]
    (last, _) = await state.list_status_transitions("schedule_run", "orphan")
    actor = "tombstone_and_replace_schedule_run"
    assert ("running", "failed", "scheduler", actor) == pick(last, "previous_status", "status", "source", "actor")
    assert await replace("orphan", run("o", "a")) is False


async def test_of_concurrent_replacements_one_wins(backend: Backend, state: Any) -> None:
    await state.create_schedule(schedule("a"))
    await state.create_schedule_run(run("orphan", "a"))
    calls = (state.tombstone_and_replace_schedule_run("orphan", run(f"n{number}", "a")) for number in range(6))
    assert 1 == (await asyncio.gather(*calls)).count(True)
    assert 2 == len(await state.list_schedule_runs("a"))


async def test_an_update_changes_status_and_columns_together(backend: Backend, state: Any) -> None:
    await state.create_schedule_run(run("r"))
    await state.update_schedule_run("r", resume_packet={"at": [None]})
    first = await state.get_schedule_run("r")
    assert {"at": [None]} == first["resume_packet"]
    await state.update_schedule_run("r", resume_packet=None)
    assert [{"id": "r"}] == await backend.rows("SELECT id FROM schedule_runs WHERE resume_packet IS NULL")
    await state.update_schedule_run(
        "r", status="failed", exit_code=3, error_detail="e", ended_at=9.0, reason_code="run.failed.exit_nonzero"
    )
    row = await state.get_schedule_run("r")
    assert ("failed", 3, "e", 9.0) == pick(row, "status", "exit_code", "error_detail", "ended_at")
    assert first["updated_at"] < row["updated_at"]
    with pytest.raises(TransitionRejectedError):
        await state.update_schedule_run("r", status="running", exit_code=0, reason_code="run.started.ok")
    assert 3 == (await state.get_schedule_run("r"))["exit_code"]


async def test_a_default_reason_is_deprecated(backend: Backend, state: Any) -> None:
    await state.create_schedule_run(run("r"))
    with pytest.warns(DeprecationWarning, match="update_schedule_run") as caught:
        await state.update_schedule_run("r", status="timed_out")
    assert __file__ == caught[0].filename
    assert "run.timed_out.deadline" == (await state.get_schedule_run("r"))["status_reason_code"]
    with pytest.warns(DeprecationWarning), pytest.raises(InvalidInputError, match="needs a reason_code"):
        await state.update_schedule_run("r", status="queued")


async def test_concurrent_ends_of_a_run_leave_one(backend: Backend, state: Any) -> None:
    await state.create_schedule_run(run("r"))
    ends = (("completed", "run.completed.ok"), ("failed", "run.failed.exception"))
    calls = [state.update_schedule_run("r", status=status, reason_code=code) for status, code in ends]
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    assert 1 == sum(isinstance(outcome, TransitionRejectedError) for outcome in outcomes)
    assert 2 == len(await state.list_status_transitions("schedule_run", "r"))


async def test_pages_and_filters(backend: Backend, state: Any) -> None:
    for name in "ab":
        await state.create_schedule(schedule(name))
    await state.create_invocation({"id": "i", "skill": "x", "started_at": 1.0})
    rows = (("r1", 2.0, "running"), ("r2", 2.0, "completed"), ("r3", 3.0, "skipped"), ("r4", 1.0, "running"))
    for name, fired_at, status in rows:
        await state.create_schedule_run(run(name, "a", fired_at=fired_at, status=status, created_at=fired_at))
    await state.create_schedule_run(run("other", "b"))
    await state.create_schedule_run(run("loose"))
    listed = state.list_schedule_runs
    assert ["r3", "r2", "r1", "r4"] == await _ids(listed("a"))
    assert ["r2", "r1"] == await _ids(listed("a", limit=2, offset=1))
    assert ["r1", "r4"] == await _ids(listed("a", status="running"))
    assert ["r3", "r2"] == await _ids(listed("a", status=["skipped", "completed"]))
    assert 4 == len(await listed("a", status=[]))
    assert ["r1", "r4"] == await _ids(state.list_running_schedule_runs("a"))
    assert ["r4"] == await _ids(state.list_running_schedule_runs("a", after_id="r1"))
    assert ["other", "r1", "r4"] == await _ids(state.list_undispatched_schedule_runs())
    for name, invocation in (("r1", "i"), ("r4", None), ("r2", "i")):
        await state.update_schedule_run(name, dispatched_at=5.0, invocation_id=invocation)
    assert ["other"] == await _ids(state.list_undispatched_schedule_runs(limit=1))
    assert [] == await _ids(state.list_undispatched_schedule_runs(after_id="other"))
    assert ["r1"] == await _ids(state.list_dispatched_running_schedule_runs())
    assert [] == await _ids(state.list_dispatched_running_schedule_runs(after_id="r1"))
    assert "r2" == (await state.get_schedule_run_by_invocation("i"))["id"]


async def test_what_fired_since(backend: Backend, state: Any) -> None:
    await state.create_schedule(schedule("a"))
    await state.create_schedule_run(run("r", "a", fired_at=5.0))
    await state.create_schedule_run(run("s", "a", fired_at=9.0, status="skipped"))
    await state.create_schedule_run(run("c", "a", fired_at=9.0, chain_depth=1, chain_parent_id="r"))
    assert [True, False] == [await state.schedule_run_exists_since("a", since) for since in (5.0, 5.1)]


async def test_the_deletion_of_a_schedule_takes_its_runs_along(backend: Backend, state: Any) -> None:
    await state.create_schedule(schedule("a"))
    await state.create_schedule_run(run("r", "a"))
    await state.create_schedule_run(run("c", "a", chain_parent_id="r", chain_depth=1))
    await state.create_schedule_run(run("loose"))
    assert await state.delete_schedule("a")
    assert [{"id": "loose"}] == await backend.rows("SELECT id FROM schedule_runs")
