"""update_status: the order of its checks, the terminal floor, overrides, history and what ends with a status."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import pytest

from lionstate.engine import NotWritten, Written
from lionstate.errors import InvalidInputError, NotFoundError, TransitionRejectedError
from lionstate.operations import OPERATIONS
from tests.support.backends import Backend
from tests.support.records import assert_refused_unchanged, put, put_session

_OK = {"new_status": "completed", "reason_code": "run.completed.ok"}


async def _session(backend: Backend) -> dict[str, Any]:
    (row,) = await backend.rows("SELECT * FROM sessions")
    return row


async def _events(backend: Backend) -> list[tuple[str, str, str]]:
    rows = await backend.rows("SELECT action, target_id, actor FROM admin_events")
    return [(row["action"], row["target_id"], row["actor"]) for row in rows]


async def test_a_change_writes_the_row_and_its_history(backend: Backend, state: Any) -> None:
    await put_session(backend, "s", started_at=10.0)
    changed = await state.update_status(
        "session",
        "s",
        **_OK,
        reason_summary="done",
        evidence_refs=[{"kind": "log"}],
        source="agent",
        actor="a",
        metadata={"k": [1, None]},
    )
    assert changed is True
    row = await _session(backend)
    assert ("completed", "run.completed.ok", "done") == (
        row["status"],
        row["status_reason_code"],
        row["status_reason_summary"],
    )
    (entry,) = await state.list_status_transitions("session", "s")
    assert 32 == len(entry.pop("id"))
    assert row["updated_at"] == entry.pop("created_at")
    assert {
        "entity_type": "session",
        "entity_id": "s",
        "previous_status": "running",
        "status": "completed",
        "reason_code": "run.completed.ok",
        "reason_summary": "done",
        "evidence_refs": [{"kind": "log"}],
        "source": "agent",
        "actor": "a",
        "metadata": {"k": [1, None]},
    } == entry


async def test_checks_are_made_in_their_order(backend: Backend, state: Any) -> None:
    """Each call is wrong from one check on; the message names the first that fails."""
    wrong = {
        "source": "x",
        "override": True,
        "entity_type": "x",
        "reason_code": "x",
        "new_status": "x",
        "extra_fields": {"x": 1},
    }
    right: dict[str, Any] = {
        "source": "admin",
        "override": False,
        "entity_type": "session",
        "reason_code": "run.completed.ok",
        "new_status": "completed",
        "extra_fields": {},
    }
    says = ("source is", "an override needs", "entity_type is", "reason_code is", "new_status is", "takes no x")
    for position, message in enumerate(says):
        names = list(wrong)
        call = {**{name: right[name] for name in names[:position]}, **{name: wrong[name] for name in names[position:]}}
        with pytest.raises(InvalidInputError, match=message):
            await state.update_status(call.pop("entity_type"), "missing", **call)
    with pytest.raises(NotFoundError):
        await state.update_status("session", "missing", **_OK, expected_statuses={"failed"})
    assert [] == await _events(backend)


async def test_bad_values_change_nothing(backend: Backend, state: Any) -> None:
    await put_session(backend, "s")
    bad: tuple[dict[str, Any], ...] = (
        {"evidence_refs": "text"},
        {"evidence_refs": [math.nan]},
        {"metadata": {"k": object()}},
        {"reason_summary": "a\0b"},
        {"actor": 3},
        {"override": 1},
        {"expected_statuses": "running"},
        {"expected_updated_at": math.inf},
        {"extra_fields": {"ended_at": "soon"}},
        {"extra_fields": {"progression_id": "p"}},
    )
    await assert_refused_unchanged(
        backend, InvalidInputError, *(state.update_status("session", "s", **{**_OK, **found}) for found in bad)
    )


async def test_guards_that_do_not_hold_return_false_and_write_nothing(backend: Backend, state: Any) -> None:
    await put_session(backend, "s", updated_at=7.0)
    assert await state.update_status("run", "s", **_OK, expected_statuses={"failed", None}) is False
    assert await state.update_status("run", "s", **_OK, expected_updated_at=8.0) is False
    assert [] == await state.list_status_transitions("session")
    assert await state.update_status("run", "s", **_OK, expected_statuses={"running"}, expected_updated_at=7.0) is True


async def test_a_row_without_a_status_is_changed_from_none(backend: Backend, state: Any) -> None:
    await put_session(backend, "s", status=None)
    assert await state.update_status("sessions", "s", **_OK, expected_statuses=[None]) is True
    (entry,) = await state.list_status_transitions("session", "s")
    assert entry["previous_status"] is None


async def test_the_terminal_floor_keeps_the_row_and_commits_its_event(backend: Backend, state: Any) -> None:
    await put_session(backend, "s", status="failed", updated_at=5.0)
    with pytest.raises(TransitionRejectedError):
        await state.update_status("session", "s", new_status="running", reason_code="run.started.ok", actor="me")
    row = await _session(backend)
    assert ("failed", 5.0) == (row["status"], row["updated_at"])
    assert [] == await state.list_status_transitions("session")
    assert [("status_transition_rejected", "s", "me")] == await _events(backend)


async def test_a_status_guard_comes_before_the_floor_and_a_time_guard_after_it(backend: Backend, state: Any) -> None:
    await put_session(backend, "s", status="failed", updated_at=5.0)
    reopen = {"new_status": "running", "reason_code": "session.reopened.by_resume"}
    assert await state.update_status("session", "s", **reopen, expected_statuses={"running"}) is False
    assert [] == await _events(backend)
    with pytest.raises(TransitionRejectedError):
        await state.update_status("session", "s", **reopen, expected_updated_at=1.0)
    by_admin = {"override": True, "override_actor": "root", "override_justification": "resume"}
    assert await state.update_status("session", "s", **reopen, **by_admin, expected_updated_at=1.0) is False
    assert ["status_transition_rejected"] == [found[0] for found in await _events(backend)]


async def test_an_override_reopens_keeps_the_end_and_is_audited(backend: Backend, state: Any) -> None:
    await put_session(backend, "s", status="failed", started_at=1.0, ended_at=3.0, duration_ms=2000.0)
    by_admin = {"override": True, "override_actor": "root", "override_justification": "resume"}
    reopen = {"new_status": "running", "reason_code": "session.reopened.by_resume"}
    assert await state.update_status("session", "s", **reopen, **by_admin) is True
    row = await _session(backend)
    assert ("running", 3.0, 2000.0) == (row["status"], row["ended_at"], row["duration_ms"])
    assert [("status_transition_override", "s", "root")] == await _events(backend)
    assert await state.update_status("session", "s", **_OK, **by_admin) is True
    assert 1 == len(await _events(backend))


async def test_the_same_status_again_adds_history_even_when_terminal(backend: Backend, state: Any) -> None:
    await put_session(backend, "s", status="completed", ended_at=3.0)
    assert await state.update_status("session", "s", **_OK) is True
    assert 3.0 == (await _session(backend))["ended_at"]
    assert 1 == len(await state.list_status_transitions("session", "s"))


async def test_ends_of_sessions(backend: Backend, state: Any) -> None:
    """(stored, given, ended_at, approximate, duration); NOW is the change's own time."""
    now = "NOW"
    cases: tuple[tuple[dict[str, Any], dict[str, Any], Any, int, Any], ...] = (
        ({"started_at": 10.0}, {}, now, 0, now),
        ({}, {}, now, 0, None),
        ({"started_at": 10.0}, {"ended_at": 12.5}, 12.5, 0, 2500.0),
        ({"started_at": 10.0}, {"ended_at": 9.0}, 9.0, 0, 0.0),
        ({"started_at": 10.0}, {"ended_at": 12.0, "duration_ms": 7.0}, 12.0, 0, 7.0),
        ({"started_at": 10.0, "ended_at": 11.0}, {}, 11.0, 0, 1000.0),
        ({"started_at": 10.0, "ended_at": 11.0, "ended_at_is_approximate": 1}, {}, now, 0, now),
        ({"started_at": 10.0}, {"ended_at": None, "ended_at_is_approximate": 1}, now, 0, now),
        (
            {"started_at": 10.0, "duration_ms": 5.0},
            {"ended_at": 12.0, "ended_at_is_approximate": True},
            12.0,
            1,
            None,
        ),
    )
    for number, (stored, given, *_) in enumerate(cases):
        await put_session(backend, f"s{number}", **stored)
        await state.update_status("session", f"s{number}", **_OK, extra_fields=given)
    rows = await backend.rows("SELECT * FROM sessions ORDER BY id")
    for row, (_, _, ended_at, approximate, duration) in zip(rows, cases, strict=True):
        expected_end = row["updated_at"] if ended_at == now else ended_at
        length = (row["updated_at"] - 10.0) * 1000 if duration == now else duration
        assert (expected_end, approximate, length) == (
            row["ended_at"],
            row["ended_at_is_approximate"],
            row["duration_ms"],
        )


async def test_only_a_change_into_a_terminal_status_ends_a_session(backend: Backend, state: Any) -> None:
    await put_session(backend, "s")
    await state.update_status("session", "s", new_status="running", reason_code="run.paused.operator")
    assert (await _session(backend))["ended_at"] is None


async def test_a_second_cancellation_keeps_the_first_end_and_reason(backend: Backend, state: Any) -> None:
    await state.create_invocation({"id": "i", "skill": "x", "started_at": 1.0})
    for end, code in ((5.0, "run.cancelled.sigint"), (9.0, "run.cancelled.sigterm")):
        await state.update_status(
            "invocation", "i", new_status="cancelled", reason_code=code, extra_fields={"ended_at": end}
        )
    row = await state.get_invocation("i")
    assert (5.0, "run.cancelled.sigint") == (row["ended_at"], row["status_reason_code"])
    entries = await state.list_status_transitions("invocation", "i")
    assert ["run.cancelled.sigterm", "run.cancelled.sigint", "run.started.ok"] == [
        found["reason_code"] for found in entries
    ]


async def test_a_first_cancellation_keeps_a_recorded_end_and_takes_the_reason(backend: Backend, state: Any) -> None:
    await state.create_invocation({"id": "i", "skill": "x", "started_at": 1.0, "ended_at": 4.0})
    await state.update_status(
        "invocation", "i", new_status="cancelled", reason_code="run.cancelled.sigint", extra_fields={"ended_at": 9.0}
    )
    row = await state.get_invocation("i")
    assert (4.0, "run.cancelled.sigint") == (row["ended_at"], row["status_reason_code"])


@pytest.mark.parametrize(
    ("entity", "table", "terminal"),
    [
        ("show", "shows", "aborted"),
        ("play", "plays", "merged"),
        ("team", "teams", "archived"),
        ("schedule_run", "schedule_runs", "skipped"),
    ],
)
async def test_every_other_record_has_its_floor(
    backend: Backend, state: Any, entity: str, table: str, terminal: str
) -> None:
    rows: dict[str, dict[str, Any]] = {
        "shows": {"topic": "t", "show_dir": "d", "status": "imported"},
        "plays": {"show_id": "x", "name": "n"},
        "teams": {"name": "n"},
        "schedule_runs": {"trigger_context": "{}", "action_kind": "agent", "action_args": "{}", "fired_at": 1.0},
    }
    times = {"created_at": 1.0, "updated_at": 1.0}
    if table == "plays":
        await put(backend, "shows", id="x", **rows["shows"], **times)
    await put(backend, table, id="x", **rows[table], **times)
    change = {"reason_code": "legacy.imported", "reason_summary": "s"}
    assert await state.update_status(entity, "x", new_status=terminal, **change) is True
    first = {"show": "active", "play": "pending", "team": "active", "schedule_run": "running"}[entity]
    with pytest.raises(TransitionRejectedError):
        await state.update_status(table, "x", new_status=first, **change)
    assert [(table[:-1], terminal)] == [
        (found["entity_type"], found["status"]) for found in await state.list_status_transitions(entity, "x")
    ]


async def test_of_many_changes_from_one_status_one_wins(backend: Backend, state: Any) -> None:
    await put_session(backend, "s")
    outcomes = await asyncio.gather(
        *(state.update_status("session", "s", **_OK, expected_statuses={"running"}) for _ in range(20))
    )
    assert [False] * 19 + [True] == sorted(outcomes)
    assert 1 == len(await state.list_status_transitions("session", "s"))


async def test_a_rejection_does_not_disturb_its_neighbours(backend: Backend, state: Any) -> None:
    for number in range(6):
        await put_session(backend, f"s{number}", status="failed" if number % 2 else "running")
    outcomes = await asyncio.gather(
        *(state.update_status("session", f"s{number}", **_OK) for number in range(6)), return_exceptions=True
    )
    assert [True, TransitionRejectedError] * 3 == [found if found is True else type(found) for found in outcomes]
    assert 3 == len(await _events(backend))


async def test_history_pages(backend: Backend, state: Any) -> None:
    await put_session(backend, "s")
    assert [] == await state.list_status_transitions("session", "missing")
    for code in ("run.started.ok", "run.paused.operator", "run.started.ok"):
        await state.update_status("session", "s", new_status="running", reason_code=code)
    found = await state.list_status_transitions("run", "s", limit=2)
    assert ["run.started.ok", "run.paused.operator"] == [entry["reason_code"] for entry in found]
    assert 1 == len(await state.list_status_transitions("session", "s", limit=2, offset=2))
    assert 2 == len(await state.list_status_transitions("session", reason_code="run.started.ok"))
    await assert_refused_unchanged(
        backend,
        InvalidInputError,
        state.list_status_transitions("session", limit=0),
        state.list_status_transitions("session", limit=1001),
        state.list_status_transitions("session", offset=-1),
        state.list_status_transitions("x"),
    )


async def test_an_end_is_announced_by_a_dispatch_in_its_transaction(backend: Backend, state: Any) -> None:
    """As the class says: both are there, or neither."""

    async def end(name: str) -> None:
        async with state.batch() as batch:
            batch.enqueue_dispatch(kind="ended", deliver_to="ops", body={"session": name}, dedup_key=f"ended:{name}")
            batch.update_status("session", name, **_OK)

    await put_session(backend, "s")
    await put_session(backend, "t", status="failed")
    await end("s")
    for name, error in (("t", TransitionRejectedError), ("missing", NotFoundError)):
        with pytest.raises(error):
            await end(name)
    (dispatch,) = await state.list_dispatches()
    assert {"session": "s"} == dispatch["payload"]["body"]
    assert "completed" == (await state.get_session("s"))["status"]


async def test_a_rejection_inside_an_atomic_batch_takes_everything_back(backend: Backend, state: Any) -> None:
    await put_session(backend, "s")
    await put_session(backend, "t", status="failed")
    change = OPERATIONS["update_status"]
    calls = [(change, {"entity_type": "session", "entity_id": name, **_OK}) for name in "st"]
    outcomes = await backend.direct.store.run_batch(calls, atomic=True)
    assert [TransitionRejectedError] * 2 == [type(found.error) for found in outcomes if isinstance(found, NotWritten)]
    assert [] == await _events(backend) == await state.list_status_transitions("session")
    outcomes = await backend.direct.store.run_batch(calls, atomic=False)
    assert [Written, NotWritten] == [type(found) for found in outcomes]
    assert 1 == len(await _events(backend)) == len(await state.list_status_transitions("session"))
