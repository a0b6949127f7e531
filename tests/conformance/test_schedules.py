"""Schedules: an id is used once, cursors are compared and set, edges of ``enabled`` leave a history that survives."""

from __future__ import annotations

import asyncio
import dataclasses
from typing import Any

import pytest

from lionstate import NO_CURSOR_CLAIM
from lionstate.errors import InvalidInputError, UniqueConflictError
from lionstate.records import schedules
from tests.support.backends import Backend
from tests.support.records import assert_refused_unchanged, pick
from tests.support.scheduling import schedule

MANUAL = {"code": "schedule_definition.disabled.manual", "summary": "not now"}
CREATED = "schedule_definition.created.observed"


async def test_creation_fills_defaults_and_writes_first_history(backend: Backend, state: Any) -> None:
    await state.create_schedule(schedule("a", github_filter={"f": [None]}, notify_on=None, other="ignored", max_runs=3))
    row = await state.get_schedule("a")
    assert row == await state.get_schedule_by_name("name-a")
    assert row["created_at"] == row["updated_at"]
    assert (1, {"f": [None]}, [], None, "skip", 0, 3) == pick(
        row,
        "enabled",
        "github_filter",
        "action_extra_args",
        "notify_on",
        "overlap_policy",
        "poller_consecutive_401",
        "max_runs",
    )
    history = await state.get_schedule_history("a")
    assert history["available"] is True
    (event,) = history["events"]
    expected = (None, "enabled", CREATED, "", [], "unavailable", None)
    names = ("previous_status", "status", "reason_code", "reason_summary", "evidence_refs", "source", "actor")
    assert expected == pick(event, *names)
    assert "name-a" == event["metadata"]["schedule_name"]
    assert ("unavailable", "not_provided") == pick(event["metadata"]["provenance"], "origin", "failure_category")


@dataclasses.dataclass(frozen=True)
class _Context:
    """Shaped as LionAGI's."""

    actor: str | None = "ann"
    origin: str = "cli"
    source: str = "cli"
    actor_status: str = "available"
    assurance: str = "client_resolved"


async def test_the_history_says_who_and_why(backend: Backend, state: Any) -> None:
    reason = {"code": CREATED, "summary": "s", "evidence_refs": ({"e": 1},), "metadata": {"m": None}}
    await state.create_schedule(schedule("a", enabled=False), audit_context=_Context(), reason=reason)
    (event,) = (await state.get_schedule_history("a"))["events"]
    assert ("disabled", "s", [{"e": 1}], "cli", "ann") == pick(
        event, "status", "reason_summary", "evidence_refs", "source", "actor"
    )
    provenance = {
        "origin": "cli",
        "submitting_cwd": None,
        "actor_status": "available",
        "cwd_status": "unavailable",
        "assurance": "client_resolved",
        "failure_category": "not_provided",
    }
    assert {"m": None, "schedule_name": "name-a", "provenance": provenance} == event["metadata"]


async def test_an_id_is_used_once(backend: Backend, state: Any) -> None:
    await state.create_schedule(schedule("a"))
    await assert_refused_unchanged(backend, InvalidInputError, state.create_schedule(schedule("a", name="b")))
    assert await state.delete_schedule("a")
    await assert_refused_unchanged(backend, InvalidInputError, state.create_schedule(schedule("a")))


async def test_a_name_is_unique(backend: Backend, state: Any) -> None:
    await state.create_schedule(schedule("a"))
    await assert_refused_unchanged(backend, UniqueConflictError, state.create_schedule(schedule("b", name="name-a")))


async def test_of_concurrent_creations_of_an_id_one_wins(backend: Backend, state: Any) -> None:
    calls = (state.create_schedule(schedule("a", name=f"n{number}")) for number in range(6))
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    assert 1 == outcomes.count(None)
    assert 5 == sum(isinstance(outcome, InvalidInputError) for outcome in outcomes)
    assert 1 == len((await state.get_schedule_history("a"))["events"])


async def test_bad_schedules_change_nothing(backend: Backend, state: Any) -> None:
    await state.create_schedule(schedule("a"))
    create, update, delete = state.create_schedule, state.update_schedule, state.delete_schedule
    context = {"actor": "a", "actor_status": "available"}
    await assert_refused_unchanged(
        backend,
        InvalidInputError,
        create({"id": "b", "name": "b", "trigger_type": "cron"}),
        create("text"),
        create(schedule(" ", name="b")),
        create(schedule("b", enabled=2)),
        create(schedule("b", enabled=None)),
        create(schedule("b", trigger_type="moon")),
        create(schedule("b", action_kind="workflow")),
        create(schedule("b", overlap_policy="x")),
        create(schedule("b", managed_by="x")),
        create(schedule("b\0")),
        create(schedule("b", github_filter={"a": object()})),
        create(schedule("b"), reason={"code": "schedule_definition.enabled.observed"}),
        create(schedule("b"), reason={"code": "x"}),
        create(schedule("b"), reason={"code": CREATED, "evidence_refs": "e"}),
        create(schedule("b"), reason={"code": CREATED, "more": 1}),
        create(schedule("b"), audit_context={"origin": "moon"}),
        create(schedule("b"), audit_context={"actor": "a"}),
        create(schedule("b"), audit_context={"actor": " ", "actor_status": "available"}),
        create(schedule("b"), audit_context={"submitting_cwd": "x/y", "cwd_status": "available"}),
        create(schedule("b"), audit_context={**context, "origin": "http", "assurance": "system"}),
        create(schedule("b"), audit_context={**context, "origin": "browser"}),
        create(schedule("b"), audit_context={"who": "a"}),
        update("a", id="b"),
        update("a", created_at=1.0),
        update("a", updated_at=1.0),
        update("a", name=None),
        update("a", enabled=2),
        update("a", trigger_type="moon"),
        update("a", max_runs=2**40),
        update("a", expect_next_fire_at=float("nan")),
        update("a", enabled=0, reason={"code": "schedule_definition.enabled.observed"}),
        update("a", reason={"code": MANUAL["code"], "summary": "the schedule stays enabled"}),
        update("a", enabled=0, reason={"code": MANUAL["code"], "summary": " "}),
        delete("a", reason=MANUAL),
        state.get_schedule_history("a", limit=1001),
        state.get_schedule_history("a", offset=-1),
        state.list_schedules(limit=0),
        state.list_schedules_by_owner_key("o", limit=1001),
    )


async def test_missing_rows(backend: Backend, state: Any) -> None:
    assert await state.get_schedule("m") is None
    assert await state.get_schedule_by_name("m") is None
    assert [] == await state.list_schedules()
    assert [] == await state.list_schedules_by_owner_key("m")
    assert {"available": True, "events": []} == await state.get_schedule_history("m")
    assert await state.update_schedule("m", description="x") is False
    assert await state.update_schedule("m", enabled=0) is False
    assert await state.update_schedule("m", github_cursor="1", guard_cursor_forward=True) is False
    assert await state.delete_schedule("m") is False
    assert [] == await backend.rows("SELECT id FROM status_transitions")


async def test_only_edges_of_enabled_leave_history(backend: Backend, state: Any) -> None:
    await state.create_schedule(schedule("a", updated_at=1.0))
    assert await state.update_schedule("a", description="x", threshold_config={"k": [1]}, enabled=True)
    row = await state.get_schedule("a")
    assert ("x", {"k": [1]}) == pick(row, "description", "threshold_config")
    assert 1.0 < row["updated_at"]
    assert await state.update_schedule("a", enabled=0, reason=MANUAL, name="other")
    assert await state.update_schedule("a", enabled=0)
    assert await state.update_schedule("a", enabled=1)
    assert await state.delete_schedule("a", reason={"code": "schedule_definition.deleted.observed", "summary": "gone"})
    assert await state.get_schedule("a") is None
    events = (await state.get_schedule_history("a"))["events"]
    assert [
        ("enabled", "deleted", "schedule_definition.deleted.observed", "gone"),
        ("disabled", "enabled", "schedule_definition.enabled.observed", ""),
        ("enabled", "disabled", MANUAL["code"], "not now"),
        (None, "enabled", CREATED, ""),
    ] == [pick(event, "previous_status", "status", "reason_code", "reason_summary") for event in events]
    assert "other" == events[2]["metadata"]["schedule_name"]
    assert events[1:2] == (await state.get_schedule_history("a", limit=1, offset=1))["events"]


async def test_claims_are_compared_before_anything_is_written(backend: Backend, state: Any) -> None:
    await state.create_schedule(schedule("a", next_fire_at=5.5, owner_key="o"))
    update = state.update_schedule
    lost = (
        {"expect_next_fire_at": 5.0},
        {"expect_next_fire_at": None},
        {"expect_github_cursor": ""},
        {"expect_owner_key": "p"},
        {"expect_next_fire_at": 5.5, "expect_owner_key": None},
    )
    for expected in lost:
        assert await update("a", enabled=0, description="lost", **expected) is False, expected
    row = await state.get_schedule("a")
    assert (1, None) == pick(row, "enabled", "description")
    assert 1 == len((await state.get_schedule_history("a"))["events"])
    held = {"expect_next_fire_at": 5.5, "expect_github_cursor": None, "expect_owner_key": "o"}
    assert await update("a", next_fire_at=None, **held)
    assert await update("a", next_fire_at=7, expect_next_fire_at=None, expect_github_cursor=NO_CURSOR_CLAIM)
    assert 7.0 == (await state.get_schedule("a"))["next_fire_at"]


async def test_of_concurrent_claims_of_a_cursor_one_wins(backend: Backend, state: Any) -> None:
    await state.create_schedule(schedule("a", next_fire_at=1.0))
    calls = (
        state.update_schedule("a", expect_next_fire_at=1.0, next_fire_at=2.0 + number, enabled=number % 2)
        for number in range(8)
    )
    assert 1 == (await asyncio.gather(*calls)).count(True)


async def test_a_guarded_cursor_never_moves_back(backend: Backend, state: Any) -> None:
    await state.create_schedule(schedule("a"))
    update = state.update_schedule
    # Upper case sorts before lower case, as code points do and many collations do not.
    for cursor, expected in (("B", "B"), ("a", "a"), ("C", "a"), ("a", "a"), ("b", "b")):
        assert await update("a", github_cursor=cursor, guard_cursor_forward=True, description=cursor)
        assert (expected, cursor) == pick(await state.get_schedule("a"), "github_cursor", "description")
    assert await update("a", github_cursor="A")
    assert "A" == (await state.get_schedule("a"))["github_cursor"]
    assert await update("a", github_cursor=None, guard_cursor_forward=True)
    assert (await state.get_schedule("a"))["github_cursor"] is None


async def test_concurrent_guarded_cursors_keep_the_largest(backend: Backend, state: Any) -> None:
    await state.create_schedule(schedule("a"))
    cursors = ["3", "7", "1", "9", "5", "2"]
    await asyncio.gather(*(state.update_schedule("a", github_cursor=c, guard_cursor_forward=True) for c in cursors))
    assert "9" == (await state.get_schedule("a"))["github_cursor"]


async def test_pages_and_filters(backend: Backend, state: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for number, name in enumerate("abcd"):
        await state.create_schedule(
            schedule(name, updated_at=float(number // 2), project=name, owner_key="o" if name < "d" else None)
        )
    await state.create_schedule(schedule("e", enabled=0, trigger_type="cron", updated_at=9.0))
    assert ["e", "d", "c", "b", "a"] == [row["id"] for row in await state.list_schedules()]
    assert ["d", "c"] == [row["id"] for row in await state.list_schedules(limit=2, offset=1)]
    assert ["e"] == [row["id"] for row in await state.list_schedules(enabled=False)]
    assert ["b"] == [row["id"] for row in await state.list_schedules(enabled=True, project="b")]
    assert ["e"] == [row["id"] for row in await state.list_schedules(trigger_type="cron", limit=None)]
    assert ["a", "b"] == [row["id"] for row in await state.list_schedules_by_owner_key("o", limit=2)]
    assert ["c"] == [row["id"] for row in await state.list_schedules_by_owner_key("o", after_id="b")]
    monkeypatch.setattr(schedules, "MOST_SCHEDULES", 5)
    assert 5 == len(await state.list_schedules(limit=None))
    monkeypatch.setattr(schedules, "MOST_SCHEDULES", 4)
    with pytest.raises(InvalidInputError):
        await state.list_schedules(limit=None)
