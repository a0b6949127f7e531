"""Two handles of one store call at once what creates, allocates or compares (ADR-0055 D1): one of them is first."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from lionstate.errors import UniqueConflictError
from tests.support.backends import Backend
from tests.support.conversations import conversation, message
from tests.support.records import put, put_session
from tests.support.scheduling import run, schedule, task

_TIMES = 6
Call = Callable[[Any, int], Awaitable[Any]]

# An id that exists is left as it is.
_KEPT: dict[str, tuple[str, Call]] = {
    "create_session": ("sessions", lambda s, n: s.create_session({"id": "x", "progression_id": "sp", "name": str(n)})),
    "create_branch": (
        "branches",
        lambda s, n: s.create_branch({"id": "x", "session_id": "s", "progression_id": "bp", "name": str(n)}),
    ),
    "create_show": ("shows", lambda s, n: s.create_show({"id": "x", "topic": "t", "show_dir": "/", "goal": str(n)})),
    "create_play": ("plays", lambda s, n: s.create_play({"id": "x", "show_id": "show", "name": "p", "effort": str(n)})),
    "create_team_message": (
        "team_messages",
        lambda s, n: s.create_team_message({"id": "x", "team_id": "t", "sender": "a", "content": str(n)}),
    ),
}
# An id or a name that exists is refused.
_REFUSED: dict[str, tuple[str, Call]] = {
    "create_engine_def": ("engine_defs", lambda s, n: s.create_engine_def({"id": str(n), "name": "x", "kind": "k"})),
    "create_workflow_def": ("workflow_defs", lambda s, n: s.create_workflow_def({"id": str(n), "name": "x"})),
    "create_schedule": ("schedules", lambda s, n: s.create_schedule(schedule(str(n), name="x"))),
    "create_schedule_run": ("schedule_runs", lambda s, n: s.create_schedule_run(run("x"))),
    "create_project": ("projects", lambda s, n: s.create_project("x", description=str(n))),
    "insert_engine_run": (
        "engine_runs",
        lambda s, n: s.insert_engine_run(run_id="x", kind="k", spec_json={"n": n}, started_at=1.0),
    ),
}


@pytest.fixture
async def handles(backend: Backend, state: Any) -> AsyncIterator[list[Any]]:
    """The facade under test and another handle of the same store, in turns."""
    async with type(backend.direct)(url=backend.direct.url) as other:
        yield [state, other] * (_TIMES // 2)


async def _parents(backend: Backend) -> None:
    await conversation(backend)
    at = {"created_at": 1.0, "updated_at": 1.0}
    await put(backend, "shows", id="show", topic="parent", show_dir="/", **at)
    await put(backend, "teams", id="t", name="t", **at)


async def _new(backend: Backend, table: str) -> int:
    (row,) = await backend.rows(f'SELECT count(*) AS n FROM "{table}"')
    return int(row["n"])


async def _at_once(handles: list[Any], call: Call) -> list[Any]:
    return await asyncio.gather(*(call(handle, n) for n, handle in enumerate(handles)), return_exceptions=True)


@pytest.mark.parametrize("name", _KEPT)
async def test_of_one_id_one_row_is_made(backend: Backend, handles: list[Any], name: str) -> None:
    await _parents(backend)
    table, call = _KEPT[name]
    before = await _new(backend, table)
    assert [None] * _TIMES == await _at_once(handles, call)
    assert before + 1 == await _new(backend, table)


@pytest.mark.parametrize("name", _REFUSED)
async def test_of_one_key_one_row_is_made_and_the_others_refused(
    backend: Backend, handles: list[Any], name: str
) -> None:
    table, call = _REFUSED[name]
    outcomes = await _at_once(handles, call)
    assert (1, _TIMES - 1) == (outcomes.count(None), sum(isinstance(one, UniqueConflictError) for one in outcomes))
    assert 1 == await _new(backend, table)


async def test_a_progression_that_is_there_stays_whoever_repairs(backend: Backend, handles: list[Any]) -> None:
    await conversation(backend)
    for name in "abcdef":
        await backend.put_progression(name, "[]")
    found = await _at_once(handles, lambda s, n: s.repair_session_progression("s", "abcdef"[n]))
    found += await _at_once(handles, lambda s, n: s.repair_branch_progression("b", "abcdef"[n]))
    assert ["sp"] * _TIMES + ["bp"] * _TIMES == found


async def test_a_progression_is_deleted_once(backend: Backend, handles: list[Any]) -> None:
    await backend.put_progression("p", '["m"]')
    assert 1 == (await _at_once(handles, lambda s, n: s.delete_progression("p"))).count(True)


async def test_an_imported_session_is_deleted_once(backend: Backend, handles: list[Any]) -> None:
    await put_session(backend, "x", source_kind="imported_fs")
    call: Call = lambda s, n: s.delete_imported_session("x", require_source_kind="imported_fs")  # noqa: E731
    assert 1 == (await _at_once(handles, call)).count(True)


async def test_the_last_of_replacements_stands_whole(backend: Backend, state: Any, handles: list[Any]) -> None:
    await state.create_progression("p")
    await _at_once(handles, lambda s, n: s.set_progression("p", [f"{n}-{m}" for m in range(20)]))
    found = await state.get_progression("p")
    assert found in [[f"{n}-{m}" for m in range(20)] for n in range(_TIMES)]


async def test_one_heartbeat_a_seat_and_epoch(backend: Backend, handles: list[Any]) -> None:
    """Seats in different orders, so that callers who wait for each other would wait crosswise."""
    seats = ["a", "b", "c"]
    call: Call = lambda s, n: s.enqueue_revival_heartbeat(seats[:: 1 - 2 * (n % 2)], reset_epoch=5.0)  # noqa: E731
    found = await _at_once(handles, call)
    assert [sorted(found[0])] * _TIMES == [sorted(one) for one in found]
    assert 3 == await _new(backend, "dispatch_outbox")


async def test_a_purge_counts_each_dispatch_once(backend: Backend, handles: list[Any]) -> None:
    for number in range(10):
        row = {"kind": "k", "deliver_to": "a", "payload": "{}", "status": "acked", "next_attempt_at": 1.0}
        await put(backend, "dispatch_outbox", id=str(number), created_at=1.0, updated_at=1.0, **row)
    found = await _at_once(handles, lambda s, n: s.purge_dispatches(status="acked", limit=4))
    assert (10, 0) == (sum(one["total"] for one in found), await _new(backend, "dispatch_outbox"))


async def test_of_creations_one_is_the_first(state: Any, handles: list[Any]) -> None:
    await _at_once(handles, lambda s, n: s.create_progression("p", [str(n)]))
    assert 1 == len(await state.get_progression("p"))


async def test_messages_of_several_callers_have_one_place_each(state: Any, handles: list[Any]) -> None:
    await state.create_progression("p")
    msgs = [message(f"m{number}") for number in range(10)]
    calls = await _at_once(handles, lambda s, n: s.insert_messages(msgs[n:] + msgs[:n], progression_ids=["p"]))
    assert [None] * _TIMES == calls
    assert sorted(row["id"] for row in msgs) == sorted(await state.get_progression("p"))


async def test_a_control_is_entered_by_each_and_settled_by_one(backend: Backend, handles: list[Any]) -> None:
    await put_session(backend, "s")
    ids = await _at_once(handles, lambda s, n: s.insert_session_control(session_id="s", verb="pause"))
    assert _TIMES == len(set(ids)) == await _new(backend, "session_controls")
    call: Call = lambda s, n: s.finalize_session_control(ids[0], result=str(n), only_if_unclaimed=True)  # noqa: E731
    assert 1 == (await _at_once(handles, call)).count(True)


async def test_a_task_is_cancelled_once(state: Any, handles: list[Any]) -> None:
    task_id = await state.submit_task(**task())
    assert 1 == (await _at_once(handles, lambda s, n: s.cancel_task(task_id, actor="a"))).count(True)


async def test_a_lease_is_renewed_and_ended_by_one(state: Any, handles: list[Any]) -> None:
    """Each shows the same end of the lease, which the first of them moves."""
    await state.submit_task(**task())
    (row,) = await state.claim_tasks(worker_id="w")
    lease: dict[str, Any] = {"worker_id": "w", "lease_expires_at": row["lease_expires_at"]}
    renewed = await _at_once(handles, lambda s, n: s.renew_task(row["id"], **lease, lease_seconds=900 + n))
    (expires,) = [found for found in renewed if found]
    assert (await state.get_schedule_run(row["id"]))["lease_expires_at"] == expires
    lease["lease_expires_at"] = expires
    ends = await _at_once(handles, lambda s, n: s.finish_task(row["id"], **lease, status="completed"))
    assert 1 == ends.count(True)


@pytest.mark.parametrize(
    ("kind", "status", "code"),
    [
        ("invocation", "failed", "run.failed.exception"),
        ("show", "completed", "show.completed.final_gate"),
        ("play", "merged", "play.merged.ok"),
    ],
)
async def test_one_of_several_changes_leaves_the_first_status(
    backend: Backend, state: Any, handles: list[Any], kind: str, status: str, code: str
) -> None:
    await _parents(backend)
    await state.create_invocation({"id": "invocation", "skill": "x", "started_at": 1.0})
    await state.create_play({"id": "play", "show_id": "show", "name": "p"})
    change: Call = lambda s, n: getattr(s, f"update_{kind}")(kind, status=status, reason_code=code)  # noqa: E731
    assert [None] * _TIMES == await _at_once(handles, change)
    history = await state.list_status_transitions(kind, kind)
    before = [row["previous_status"] for row in history if row["status"] == status]
    assert (_TIMES, _TIMES - 1) == (len(before), before.count(status))
