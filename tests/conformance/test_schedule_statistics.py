"""What runs add up to: counts, streaks, evidence of health, spend, and the metrics of threshold schedules."""

from __future__ import annotations

import time
from typing import Any

import pytest

from lionstate.errors import InvalidInputError
from tests.support.backends import Backend
from tests.support.records import assert_refused_unchanged, put_session
from tests.support.scheduling import run, schedule


async def _runs(state: Any, schedule_id: str, *found: tuple[float, str], **columns: Any) -> None:
    await state.create_schedule(schedule(schedule_id))
    for number, (fired_at, status) in enumerate(found):
        name = f"{schedule_id}{number:02d}"
        await state.create_schedule_run(run(name, schedule_id, fired_at=fired_at, status=status, **columns))


async def test_counts_by_status_depth_and_time(backend: Backend, state: Any) -> None:
    statuses = ("completed", "failed", "cancelled", "timed_out", "running", "skipped", "queued")
    await _runs(state, "a", *((float(number), status) for number, status in enumerate(statuses)))
    await state.create_schedule_run(run("c", "a", chain_depth=1, chain_parent_id="a00", status="completed"))
    count = state.count_schedule_runs
    assert [4, 1, 0, 2, 1, 0] == [
        await count("a"),
        await count("a", chain_depth=1),
        await count("a", chain_depth=2),
        await count("a", fired_after=2.0),
        await count("a", statuses=["skipped"]),
        await count("missing"),
    ]
    batch = state.count_schedule_runs_batch
    assert {"a": 4, "missing": 0} == await batch(["a", "missing", "a"])
    assert {"a": 2} == await batch(["a"], statuses=["queued", "running"])
    assert {"a": 1} == await batch(["a"], chain_depth=1)
    assert {} == await batch([])


async def test_a_streak_ends_at_a_good_end(backend: Backend, state: Any) -> None:
    await _runs(state, "a", (1.0, "failed"), (2.0, "completed"), (3.0, "failed"), (4.0, "skipped"), (5.0, "failed"))
    await _runs(state, "b", (1.0, "failed"), (2.0, "cancelled"))
    await _runs(state, "c", *((float(number), "failed") for number in range(55)))
    await _runs(state, "d")
    await state.create_schedule_run(run("child", "b", fired_at=9.0, status="failed", chain_depth=1))
    expected = {"a": (2, "failed"), "b": (0, "cancelled"), "c": (50, "failed"), "d": (0, None), "missing": (0, None)}
    assert expected == await state.schedule_run_streaks(list(expected))
    assert expected == {name: await state.schedule_run_streak(name) for name in expected}
    assert {} == await state.schedule_run_streaks([])


async def test_of_runs_that_fired_together_the_larger_id_is_newer(backend: Backend, state: Any) -> None:
    await _runs(state, "a", (1.0, "failed"), (1.0, "completed"))
    assert (0, "completed") == await state.schedule_run_streak("a")
    assert {"a": (0, "completed")} == await state.schedule_run_streaks(["a"])


async def test_evidence_of_health(backend: Backend, state: Any) -> None:
    await _runs(state, "a", (1.0, "completed"), (2.0, "running"), (3.0, "queued"))
    await _runs(state, "b", (1.0, "skipped"))
    await state.create_schedule_run(run("child", "a", fired_at=9.0, chain_depth=1))
    names = ("last_recorded_run_at", "last_executed_status", "last_executed_run_at")
    expected = {"a": (3.0, "running", 2.0), "b": (1.0, None, None), "missing": (None, None, None)}
    found = await state.schedule_health_evidence(list(expected))
    assert {name: dict(zip(names, values, strict=True)) for name, values in expected.items()} == found
    assert {} == await state.schedule_health_evidence([])


async def test_spend_counts_each_session_once(backend: Backend, state: Any) -> None:
    for name in "ij":
        await state.create_invocation({"id": name, "skill": "x", "started_at": 1.0})
    await _runs(state, "a", (1.0, "completed"), (2.0, "failed"), invocation_id="i")
    await _runs(state, "b", (1.0, "completed"), invocation_id="j")
    await _runs(state, "c", (1.0, "completed"))
    await put_session(backend, "s1", invocation_id="i", total_cost_usd=1.5, input_tokens=3, output_tokens=4)
    await put_session(backend, "s2", invocation_id="i", status="failed", input_tokens=5)
    await put_session(backend, "s3", invocation_id="i", status="running")
    await put_session(backend, "s4", invocation_id="j", total_cost_usd=9.0)
    await put_session(backend, "s5", status="failed")
    assert {"cost_usd": 1.5, "tokens": 12, "unreported_sessions": 1} == await state.sum_schedule_spend("a")
    nothing = {"cost_usd": 0.0, "tokens": 0, "unreported_sessions": 0}
    assert [nothing, nothing] == [await state.sum_schedule_spend(name) for name in ("c", "missing")]


async def test_failed_sessions_count_causes(backend: Backend, state: Any) -> None:
    for name in "ij":
        await state.create_invocation({"id": name, "skill": "x", "started_at": 1.0})
    causes: tuple[dict[str, Any], ...] = (
        {"invocation_id": "i", "status_reason_code": "run.failed.exception"},
        {"invocation_id": "i", "status_reason_code": "run.failed.exception"},
        {"invocation_id": "i", "status_reason_code": "run.failed.missing_cwd"},
        {"invocation_id": "j", "status_reason_code": "run.failed.exception", "status": "timed_out"},
        {"invocation_id": "j"},
        {"status_reason_code": "run.failed.exception"},
        {"status_reason_code": "run.failed.exception"},
        {"status": "completed"},
        {"ended_at": 4.0},
        {"started_at": 4.0},
    )
    for number, columns in enumerate(causes):
        await put_session(backend, f"s{number}", **{"status": "failed", "created_at": 5.0, **columns})
    assert [6.0, 8.0] == [await state.metric_value("failed_sessions", start) for start in (5.0, 4.0)]
    assert 0.0 == await state.metric_value("failed_sessions", 6.0)


async def test_cost_and_what_it_does_not_see(backend: Backend, state: Any) -> None:
    found: tuple[dict[str, Any], ...] = (
        {"total_cost_usd": 1.25, "status": "completed"},
        {"total_cost_usd": 2.0},
        {"status": "failed"},
        {"status": "running"},
        {"total_cost_usd": 9.0, "ended_at": 1.0},
        {"status": "failed", "started_at": 1.0},
    )
    for number, columns in enumerate(found):
        await put_session(backend, f"s{number}", **{"created_at": 5.0, **columns})
    assert 3.25 == await state.metric_value("total_cost_usd", 5.0)
    assert 1 == await state.metric_unreported_sessions("total_cost_usd", 5.0)
    assert 2 == await state.metric_unreported_sessions("total_cost_usd", 0.0)
    assert 0 == await state.metric_unreported_sessions("failed_sessions", 0.0)


async def test_pollers(backend: Backend, state: Any) -> None:
    value = state.metric_value
    assert [0.0, 0.0] == [
        await value("github_poll_consecutive_401", 0.0),
        await value("github_poll_healthy_age_minutes", 0.0),
    ]
    for name, kind, enabled, streak, minutes in (
        ("a", "github_poll", 1, 2, 30),
        ("b", "github_poll", 1, 5, 20),
        ("c", "github_poll", 0, 7, 1),
        ("d", "cron", 1, 8, 1),
    ):
        await state.create_schedule(schedule(name, trigger_type=kind, enabled=enabled))
        healthy = time.time() - minutes * 60
        await state.update_schedule(name, poller_consecutive_401=streak, last_healthy_poll_at=healthy)
    assert 5.0 == await value("github_poll_consecutive_401", 0.0)
    assert 20.0 <= await value("github_poll_healthy_age_minutes", 0.0) < 21.0


async def test_latency_is_that_of_runs_that_measured_their_end(backend: Backend, state: Any) -> None:
    async def invocation(name: str, seconds: float | None, **columns: Any) -> None:
        ended = None if seconds is None else 10.0 + seconds
        row = {"id": name, "skill": "x", "started_at": 10.0, "ended_at": ended, "status": "completed", **columns}
        await state.create_invocation(row)

    async def latency() -> float:
        found: float = await state.metric_value("p95_latency_ms", 10.0)
        return found

    assert 0.0 == await latency()
    for number in range(1, 21):
        await invocation(f"i{number:02d}", float(number))
    assert 19_000.0 == await latency()
    for name, refs in (("reaped", '["x", {"kind": "invocation"}]'), ("odd", '{"kind": "invocation"}')):
        await invocation(name, 500.0)
        await backend.execute(
            "UPDATE invocations SET status_evidence_refs = :refs WHERE id = :name", refs=refs, name=name
        )
    await invocation("cancelled", 900.0, status="cancelled")
    await invocation("running", None, status="running")
    await invocation("backwards", -1.0)
    await invocation("old", 900.0, started_at=9.0)
    # 21 of them measured their end: the odd one too, the reaped one not.
    assert 20_000.0 == await latency()
    for name, refs in (("named", '["invocation"]'), ("other", '[{"kind": "session"}]'), ("nul", '["\\u0000"]')):
        await invocation(name, 700.0)
        await backend.execute(
            "UPDATE invocations SET status_evidence_refs = :refs WHERE id = :name", refs=refs, name=name
        )
    assert 700_000.0 == await latency()


async def test_bad_questions(backend: Backend, state: Any) -> None:
    await assert_refused_unchanged(
        backend,
        InvalidInputError,
        state.metric_value("moon", 0.0),
        state.metric_value("failed_sessions", float("nan")),
        state.metric_unreported_sessions("total_cost_usd", float("inf")),
        state.count_schedule_runs("a", chain_depth=-1),
        state.count_schedule_runs("a", fired_after=float("nan")),
        state.count_schedule_runs_batch("text"),
        state.schedule_run_streaks(["x"] * 1001),
        state.schedule_health_evidence("text"),
    )


@pytest.mark.parametrize("name", ["schedule_run_streak", "sum_schedule_spend"])
async def test_an_id_must_be_text(backend: Backend, state: Any, name: str) -> None:
    with pytest.raises(InvalidInputError):
        await getattr(state, name)("a\0")
