"""The queue of tasks: submission, claims under leases, renewal, expiry, ends, cancellation."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from lionstate.errors import AdmissionRejectedError, InvalidInputError, NotFoundError
from tests.support.backends import Backend
from tests.support.records import assert_refused_unchanged, pick
from tests.support.scheduling import run, task

T0 = 1_000.0


async def _submit(state: Any, **columns: Any) -> str:
    found: str = await state.submit_task(**task(**columns))
    return found


async def _queue(backend: Backend, *names: str, **columns: Any) -> None:
    """Tasks in a known order, each submitted at a second of its own."""
    for number, name in enumerate(names):
        task_id = await _submit(backend.state, **columns)
        sql = "UPDATE schedule_runs SET id = :name, queued_at = :at WHERE id = :id"
        await backend.execute("DELETE FROM status_transitions WHERE entity_id = :id", id=task_id)
        await backend.execute(sql, name=name, at=float(number), id=task_id)


async def _claim(state: Any, worker: str = "w", **options: Any) -> list[str]:
    return [row["id"] for row in await state.claim_tasks(**{"worker_id": worker, "now": T0, **options})]


async def test_a_submitted_task_waits_with_first_history(backend: Backend, state: Any) -> None:
    task_id = await _submit(
        state,
        action_kind="playbook",
        args={"action_prompt": "p", "n": [None]},
        required_capabilities=["x", "x"],
        library_ref="l",
        library_content_hash="h",
    )
    row = await state.get_schedule_run(task_id)
    assert ("play", "queued", {"action_prompt": "p", "n": [None]}, None, None, 0) == pick(
        row, "action_kind", "status", "action_args", "schedule_id", "concurrency_key", "lease_attempts"
    )
    assert (["x", "x"], "host", {}, "l", "h") == pick(
        row, "required_capabilities", "execution_target", "trigger_context", "library_ref", "library_content_hash"
    )
    assert row["queued_at"] == row["fired_at"] == row["created_at"]
    (entry,) = await state.list_status_transitions("schedule_run", task_id)
    names = ("previous_status", "status", "reason_code", "source", "actor")
    assert (None, "queued", "schedule.queued.created", "system", "submit_task") == pick(entry, *names)


async def test_bad_tasks_change_nothing(backend: Backend, state: Any) -> None:
    await _queue(backend, "a")
    one: dict[str, Any] = {"worker_id": "w", "lease_expires_at": 1.0}
    await assert_refused_unchanged(
        backend,
        InvalidInputError,
        _submit(state, action_kind="moon"),
        _submit(state, args="text"),
        _submit(state, args={"a": object()}),
        _submit(state, execution_target="moon"),
        _submit(state, required_capabilities="text"),
        _submit(state, required_capabilities=[""]),
        _submit(state, library_ref="\0"),
        _claim(state, limit=0),
        _claim(state, limit=21),
        _claim(state, lease_seconds=0),
        _claim(state, lease_seconds=1e308),
        _claim(state, heartbeat_seconds=-1),
        _claim(state, advertised_capabilities="text"),
        _claim(state, now=float("nan")),
        state.renew_task("a", **one, lease_seconds=0),
        state.renew_task("a", worker_id="w", lease_expires_at=float("inf")),
        state.finish_task("a", **one, status="cancelled"),
        state.finish_task("a", **one, status="failed", reason_code="x"),
        state.finish_task("a", **one, status="failed", evidence_refs="x"),
        state.cancel_task("a", actor="a", source="moon"),
        state.reap_expired_leases(limit=0),
        state.list_tasks(limit=1001),
        state.count_tasks(status=["x"] * 1001),
    )
    too_long = {"admission": {"max_duration_seconds": 300}}
    await assert_refused_unchanged(backend, AdmissionRejectedError, _submit(state, args=too_long))
    with pytest.raises(ValueError) as caught:
        await _submit(state, args=too_long)
    assert isinstance(caught.value, AdmissionRejectedError)
    assert "run.skipped.duration_exceeds_lease" == caught.value.reason


async def test_missing_rows(backend: Backend, state: Any) -> None:
    assert [] == await _claim(state)
    assert [] == await state.list_tasks()
    assert 0 == await state.count_tasks()
    assert {"requeued": 0, "failed": 0} == await state.reap_expired_leases()
    one: dict[str, Any] = {"worker_id": "w", "lease_expires_at": 1.0}
    for call in (
        state.renew_task("m", **one),
        state.finish_task("m", **one, status="completed"),
        state.cancel_task("m", actor="a"),
    ):
        with pytest.raises(NotFoundError):
            await call


async def test_a_claim_leases_the_longest_waiting(backend: Backend, state: Any) -> None:
    await _queue(backend, "c", "b", "a")
    await backend.execute("UPDATE schedule_runs SET queued_at = 1.0 WHERE id = 'a'")
    (first, second) = await state.claim_tasks(worker_id="w", limit=2, lease_seconds=10, now=T0)
    assert ("c", "a") == (first["id"], second["id"])
    assert ("running", "w", T0 + 10, 1, T0) == pick(
        first, "status", "leased_by", "lease_expires_at", "lease_attempts", "updated_at"
    )
    assert first == await state.get_schedule_run("c")
    (entry,) = await state.list_status_transitions("schedule_run", "c")
    names = ("previous_status", "status", "reason_code", "source", "actor")
    assert ("queued", "running", "run.started.ok", "system", "w") == pick(entry, *names)
    assert ["b"] == await _claim(state)
    assert [] == await _claim(state)


async def test_only_tasks_of_the_queue_are_claimed(backend: Backend, state: Any) -> None:
    await _submit(state, action_kind="workflow")
    await state.create_schedule({"id": "s", "name": "s", "trigger_type": "cron", "action_kind": "agent"})
    await state.create_schedule_run(run("scheduled", "s", status="queued"))
    await state.create_schedule_run(run("retry", status="retry_wait"))
    assert [] == await _claim(state)
    await state.create_schedule_run(run("queued", status="queued", created_at=1.0))
    assert ["queued"] == await _claim(state)


async def test_a_worker_gets_what_it_can_serve(backend: Backend, state: Any) -> None:
    await _queue(backend, "plain")
    await _queue(backend, "cached", required_capabilities=["warmed-cache"])
    await _queue(backend, "both", required_capabilities=["a", "b", "warmed-cache"])
    await _queue(backend, "remote", execution_target="remote_agent")
    await backend.execute("UPDATE schedule_runs SET queued_at = 0.5 WHERE id <> 'plain'")
    for name, stored in (("odd", "[1]"), ("null", "null"), ("anywhere", None)):
        await _queue(backend, name)
        sql = "UPDATE schedule_runs SET required_capabilities = :stored, execution_target = NULL WHERE id = :name"
        await backend.execute(sql, stored=stored, name=name)
    assert ["anywhere", "null", "plain", "cached"] == await _claim(state, advertised_capabilities=["a"])
    assert ["remote"] == await _claim(state, execution_targets=["remote_agent"])
    assert ["both"] == await _claim(state, advertised_capabilities=["b", "a", "c"])
    assert 1 == await state.count_tasks(status="queued")


async def test_a_claim_takes_what_the_heartbeat_says(backend: Backend, state: Any) -> None:
    await _queue(backend, "a", required_capabilities=["x"], execution_target="process")
    await state.register_heartbeat(worker_id="w", advertised_capabilities=["x"], execution_targets=["process"], now=T0)
    assert [] == await _claim(state, now=T0 + 90.5)
    assert [] == await _claim(state, execution_targets=["host"])
    assert [] == await _claim(state, advertised_capabilities=[])
    assert ["a"] == await _claim(state, now=T0 + 90.0)


async def test_many_workers_share_the_queue_without_overlap(backend: Backend, state: Any) -> None:
    ids = [await _submit(state) for _ in range(30)]
    claims = await asyncio.gather(*(_claim(state, f"w{number}", limit=4) for number in range(10)))
    taken = [task_id for claim in claims for task_id in claim]
    assert sorted(ids) == sorted(taken)
    for number, claim in enumerate(claims):
        rows = await state.list_tasks(leased_by=f"w{number}")
        assert sorted(claim) == sorted(row["id"] for row in rows)


async def test_tasks_of_one_key_run_one_at_a_time(backend: Backend, state: Any) -> None:
    await _queue(backend, "a", "b", concurrency_key="k")
    await _queue(backend, "free")
    await backend.execute("UPDATE schedule_runs SET queued_at = 5.0 WHERE id = 'free'")
    assert ["a", "free"] == await _claim(state)
    assert [] == await _claim(state, "v")
    assert await state.finish_task("a", worker_id="w", lease_expires_at=T0 + 300, status="completed")
    assert ["b"] == await _claim(state, "v")


async def test_of_concurrent_claims_of_one_key_one_wins(backend: Backend, state: Any) -> None:
    for _ in range(3):
        await _queue(backend, "a", "b", concurrency_key="k")
        claims = await asyncio.gather(*(_claim(state, f"w{number}", limit=1) for number in range(6)))
        assert ["a"] == [task_id for claim in claims for task_id in claim]
        await backend.execute("DELETE FROM schedule_runs")


async def test_a_crowd_at_a_held_key_is_skipped_unless_it_parks(backend: Backend, state: Any) -> None:
    await _queue(backend, "a", "b", "c", "d", "other", concurrency_key="k")
    await _queue(backend, "parked", concurrency_key="k", args={"admission": {"allow_deferred_over_cap": True}})
    await backend.execute("UPDATE schedule_runs SET queued_at = 9.0 WHERE id = 'parked'")
    await backend.execute("UPDATE schedule_runs SET execution_target = 'daytona' WHERE id = 'other'")
    assert ["a"] == await _claim(state)
    rows = {row["id"]: row for row in await state.list_tasks()}
    expected = {"a": "running", "b": "queued", "c": "queued", "d": "skipped", "other": "queued", "parked": "queued"}
    assert expected == {name: row["status"] for name, row in rows.items()}
    assert "run.skipped.waiter_cap_exceeded" == rows["d"]["status_reason_code"]
    (last,) = await state.list_status_transitions("schedule_run", "d")
    assert ("queued", "skipped", "system", "task_admission") == pick(
        last, "previous_status", "status", "source", "actor"
    )


async def test_a_submission_to_a_crowd_is_refused_unless_it_parks(backend: Backend, state: Any) -> None:
    await _queue(backend, "a", "b", concurrency_key="k")
    assert "a" == (await _claim(state))[0]
    await _submit(state, concurrency_key="k")
    await assert_refused_unchanged(backend, AdmissionRejectedError, _submit(state, concurrency_key="k"))
    await _submit(state, concurrency_key="k", args={"admission": {"allow_deferred_over_cap": True}})
    await _submit(state, concurrency_key="other")
    assert 3 == await state.count_tasks(concurrency_key="k", status="queued")


async def test_of_concurrent_submissions_to_a_key_as_many_wait_as_may(backend: Backend, state: Any) -> None:
    await _queue(backend, "a", concurrency_key="k")
    await _claim(state)
    calls = (_submit(state, concurrency_key="k") for _ in range(8))
    outcomes = await asyncio.gather(*calls, return_exceptions=True)
    assert 6 == sum(isinstance(outcome, AdmissionRejectedError) for outcome in outcomes)
    assert 2 == await state.count_tasks(concurrency_key="k", status="queued")


async def test_what_is_exclusive_has_a_key_of_this_host(backend: Backend, state: Any) -> None:
    ids = [await _submit(state, required_capabilities=["gpu-exclusive", "x"]) for _ in range(2)]
    (first, second) = [await state.get_schedule_run(task_id) for task_id in ids]
    assert first["concurrency_key"] == second["concurrency_key"]
    assert first["concurrency_key"].endswith(":gpu-exclusive")


async def test_a_task_that_outlasts_the_lease_is_skipped(backend: Backend, state: Any) -> None:
    await _queue(backend, "long", "odd", args={"admission": {"max_duration_seconds": 100}})
    odd = '{"admission": {"max_duration_seconds": "long"}}'
    await backend.execute("UPDATE schedule_runs SET action_args = :odd WHERE id = 'odd'", odd=odd)
    await _queue(backend, "short", args={"admission": {"max_duration_seconds": 99.5}})
    assert ["short", "odd"] == await _claim(state, limit=2, lease_seconds=100)
    row = await state.get_schedule_run("long")
    assert ("skipped", "run.skipped.duration_exceeds_lease") == pick(row, "status", "status_reason_code")


async def test_who_asked_for_it_hears_of_a_skipped_task(backend: Backend, state: Any) -> None:
    """One dispatch per task and key, in the transaction that skips; what cannot be delivered to is left out."""
    asked: dict[str, Any] = {
        "told": {"deliver_to": "me"},
        "kind": {"deliver_to": "me", "kind": "k", "dedup_key": "x", "other": 1},
        "same": {"deliver_to": "me", "kind": "k", "dedup_key": "x"},
        "blank": {"deliver_to": " "},
        "number": {"deliver_to": 5},
        "null": {"deliver_to": "me", "kind": None},
        "nobody": {"kind": "k"},
        "text": "me",
    }
    for name, notify in asked.items():
        await _queue(backend, name, args={"admission": {"max_duration_seconds": 200, "notify": notify}})
    await _queue(backend, "claimed", args={"admission": {"notify": {"deliver_to": "me"}}})
    assert ["claimed"] == await _claim(state, lease_seconds=100)
    assert {"skipped"} == {(await state.get_schedule_run(name))["status"] for name in asked}
    found = await state.list_dispatches()
    assert [("k", "me", "pending", "x"), ("terminal_notify", "me", "pending", None)] == sorted(
        pick(row, "kind", "deliver_to", "status", "dedup_key") for row in found
    )
    bodies = {row["kind"]: (row["schedule_run_id"], row["payload"]["body"]) for row in found}
    run_id, body = bodies["terminal_notify"]
    row = await state.get_schedule_run("told")
    reason = {name: row[f"status_{name}"] for name in ("reason_code", "reason_summary")}
    assert ("told", {"schedule_run_id": "told", **reason}) == (run_id, body)
    assert bodies["k"][0] in ("kind", "same")


async def test_a_lease_is_renewed_by_who_holds_it(backend: Backend, state: Any) -> None:
    await _queue(backend, "a")
    await _claim(state)
    renew = state.renew_task
    lease = T0 + 300
    assert await renew("a", worker_id="v", lease_expires_at=lease) is None
    assert await renew("a", worker_id="w", lease_expires_at=lease + 1) is None
    renewed = await renew("a", worker_id="w", lease_expires_at=lease, lease_seconds=50, now=T0 + 290)
    assert T0 + 340 == renewed == (await state.get_schedule_run("a"))["lease_expires_at"]
    assert await renew("a", worker_id="w", lease_expires_at=lease) is None
    assert {"requeued": 0, "failed": 0} == await state.reap_expired_leases(now=T0 + 340)
    assert await state.finish_task("a", worker_id="w", lease_expires_at=lease, status="completed") is False
    assert await state.finish_task("a", worker_id="w", lease_expires_at=renewed, status="completed")
    assert await renew("a", worker_id="w", lease_expires_at=renewed) is None


@pytest.mark.parametrize(
    ("status", "given", "code"),
    [
        ("completed", {"exit_code": 0}, "run.completed.ok"),
        ("failed", {"exit_code": 3, "error_detail": "e"}, "run.failed.exit_nonzero"),
        ("failed", {}, "run.failed.exception"),
        ("timed_out", {"reason_summary": "late"}, "run.timed_out.deadline"),
        ("failed", {"reason_code": "run.failed.missing_cwd", "evidence_refs": [{"e": 1}]}, "run.failed.missing_cwd"),
    ],
)
async def test_ends(backend: Backend, state: Any, status: str, given: dict[str, Any], code: str) -> None:
    await _queue(backend, "a")
    await _claim(state)
    assert await state.finish_task("a", worker_id="w", lease_expires_at=T0 + 300, status=status, **given)
    row = await state.get_schedule_run("a")
    assert (status, code, "w") == pick(row, "status", "status_reason_code", "leased_by")
    assert (given.get("exit_code"), given.get("error_detail")) == pick(row, "exit_code", "error_detail")
    assert (given.get("reason_summary", ""), given.get("evidence_refs", [])) == pick(
        row, "status_reason_summary", "status_evidence_refs"
    )
    assert row["ended_at"] == row["updated_at"]
    (last, _) = await state.list_status_transitions("schedule_run", "a")
    assert ("running", status, "system", "w") == pick(last, "previous_status", "status", "source", "actor")
    assert await state.finish_task("a", worker_id="w", lease_expires_at=T0 + 300, status="failed") is False


async def test_an_expired_lease_gives_the_task_back_at_its_place(backend: Backend, state: Any) -> None:
    await _queue(backend, "a", "b")
    lease = T0
    for attempt in (1, 2):
        assert ["a"] == await _claim(state, f"w{attempt}", limit=1, now=lease)
        assert {"requeued": 0, "failed": 0} == await state.reap_expired_leases(now=lease + 300)
        assert {"requeued": 1, "failed": 0} == await state.reap_expired_leases(now=lease + 301)
        row = await state.get_schedule_run("a")
        assert ("queued", None, None, attempt, "run.queued.lease_expired") == pick(
            row, "status", "leased_by", "lease_expires_at", "lease_attempts", "status_reason_code"
        )
        late = await state.finish_task("a", worker_id=f"w{attempt}", lease_expires_at=lease + 300, status="completed")
        assert late is False
        lease += 301
    assert ["a", "b"] == await _claim(state, now=lease)
    assert {"requeued": 1, "failed": 1} == await state.reap_expired_leases(now=lease + 301)
    row = await state.get_schedule_run("a")
    assert ("failed", "run.failed.lease_attempts_exhausted", lease + 301) == pick(
        row, "status", "status_reason_code", "ended_at"
    )
    assert ["b"] == await _claim(state, now=lease + 302)


async def test_reaping_is_bounded_and_counts_once_under_concurrency(backend: Backend, state: Any) -> None:
    await _queue(backend, *"abcdef")
    await _claim(state)
    assert {"requeued": 2, "failed": 0} == await state.reap_expired_leases(now=T0 + 301, limit=2)
    found = await asyncio.gather(*(state.reap_expired_leases(now=T0 + 301, limit=1) for _ in range(8)))
    assert 4 == sum(counts["requeued"] for counts in found)
    assert 6 == await state.count_tasks(status="queued")


async def test_only_what_waits_is_cancelled(backend: Backend, state: Any) -> None:
    await _queue(backend, "a", "b")
    assert ["a"] == await _claim(state, limit=1)
    assert await state.cancel_task("a", actor="ann") is False
    assert await state.cancel_task("b", actor="ann", source="agent")
    assert await state.cancel_task("b", actor="ann") is False
    row = await state.get_schedule_run("b")
    assert ("cancelled", "run.cancelled.orchestrator") == pick(row, "status", "status_reason_code")
    (last,) = await state.list_status_transitions("schedule_run", "b")
    assert ("queued", "cancelled", "agent", "ann") == pick(last, "previous_status", "status", "source", "actor")
    assert [] == await _claim(state)


async def test_a_task_is_claimed_or_cancelled_never_both(backend: Backend, state: Any) -> None:
    for number in range(5):
        name = f"t{number}"
        await _queue(backend, name)
        claimed, cancelled = await asyncio.gather(_claim(state), state.cancel_task(name, actor="ann"))
        status = (await state.get_schedule_run(name))["status"]
        # A claim takes no notice of a row that the cancellation has at that moment.
        assert (status, bool(claimed), cancelled) in {("running", True, False), ("cancelled", False, True)}
        assert 1 == len(await state.list_status_transitions("schedule_run", name))


async def test_pages_and_filters(backend: Backend, state: Any) -> None:
    await _queue(backend, *"abcd")
    await _submit(state, action_kind="command", concurrency_key="k")
    await state.create_schedule_run(run("loose"))
    await _claim(state, limit=2)

    async def ids(**filters: Any) -> list[str]:
        return [row["id"] for row in await state.list_tasks(**filters)]

    assert ["a", "b", "c", "d"] == (await ids())[:4]
    assert ["b", "c"] == await ids(limit=2, offset=1)
    assert ["a", "b"] == await ids(status="running", leased_by="w")
    assert ["a", "b", "c", "d"] == await ids(status=["queued", "running"], action_kind="agent")
    assert 1 == len(await ids(concurrency_key="k"))
    assert [5, 3, 1, 2, 0] == [
        await state.count_tasks(),
        await state.count_tasks(status="queued"),
        await state.count_tasks(action_kind="command", concurrency_key="k"),
        await state.count_tasks(leased_by="w"),
        await state.count_tasks(status="failed"),
    ]
