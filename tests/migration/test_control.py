"""Pause, holds, rollback, the compat switch, busy stores (decisions 2, 3, 7, 13, 21, 26, 37)."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from lionstate import StateDB
from lionstate.engine import EngineSettings
from lionstate.errors import InvalidInputError, NotFoundError, PhaseConflictError
from lionstate.migration import ProgressionMigrationService, StopReason
from lionstate.schema import fence_exists, remove_fence
from tests.support.backends import Backend
from tests.support.migration import (
    WHOLE,
    Staged,
    assert_cut_over,
    foreign,
    items_of,
    make_ids,
    rows_of_everything,
    service_of,
    state_of,
    until_done,
)

IDS = make_ids(20)


async def actions_of(backend: Backend) -> list[str]:
    rows = await backend.rows("SELECT action FROM admin_events ORDER BY created_at, id")
    return [row["action"].removeprefix("progression_migrate.") for row in rows]


# Pause.


async def test_a_pause_lasts_over_restarts_and_names_who_and_why(backend: Backend) -> None:
    """faults 5, 13, 20: still paused after a restart, and says so; resumes from the committed cursor."""
    await backend.put_progression("p", json.dumps(IDS))
    service = service_of(backend)
    await service.step(max_items=5, max_seconds=60)
    await service.pause(reason="lunch")
    assert (StopReason.PAUSED, 0) == (lambda step: (step.stop_reason, step.items))(await service.step(max_seconds=60))
    again = service_of(backend)
    pause = await again.paused()
    assert pause is not None
    assert ("test", "lunch", None) == (pause.actor, pause.reason, pause.expires_at)
    assert pause == (await again.status()).pause
    assert StopReason.PAUSED == (await again.step(progression_id="p", max_seconds=60)).stop_reason
    assert 5 == (await state_of(backend))["backfill_next"]
    assert await again.resume()
    assert not await again.resume()
    await until_done(again)
    await assert_cut_over(backend, IDS)
    assert ["pause", "resume"] == [action for action in await actions_of(backend) if action in ("pause", "resume")]


async def test_a_pause_ends_the_running_step_before_its_next_transaction(backend: Backend) -> None:
    await backend.put_progression("p", json.dumps(make_ids(2_000)))
    staged = Staged(backend)
    operator = service_of(backend)

    async def after(name: str, _result: Any) -> None:
        if name == "chunk" and len(staged.results("chunk")) == 2:
            await operator.pause()

    staged.after = after
    step = await ProgressionMigrationService(staged).step(**WHOLE)
    assert (StopReason.PAUSED, 2, 1_000) == (step.stop_reason, step.chunks, step.items)


@pytest.mark.parametrize("stage", ["admit", "chunk", "cutover", "remove", "block"])
async def test_every_stage_looks_at_the_pause_under_its_lock(backend: Backend, stage: str) -> None:
    text = "[1]" if stage == "admit" else json.dumps(IDS)
    await backend.put_progression("p", text)
    operator = service_of(backend)
    if stage in ("remove", "block"):
        await operator.step(max_items=5, max_seconds=60)
    if stage == "remove":
        await operator.rollback("p")
    if stage == "block":
        async with foreign(backend) as other:
            await other.append("p", "theirs")
    staged = Staged(backend)
    before = ""

    async def pause(name: str) -> None:
        nonlocal before
        if name == stage:
            await operator.pause()
            before = await rows_of_everything(backend)

    staged.before = pause
    step = await ProgressionMigrationService(staged).step(**WHOLE)
    assert StopReason.PAUSED == step.stop_reason
    assert before == await rows_of_everything(backend)


async def test_a_pause_ends_by_itself(backend: Backend) -> None:
    service = service_of(backend)
    await service.pause(expires_at=time.time() + 3_600)
    assert await service.paused() is not None
    await service.pause(expires_at=time.time() - 1)
    assert await service.paused() is None
    assert StopReason.NOTHING_TO_DO == (await service.step(max_seconds=60)).stop_reason


# Holds.


async def put_session(backend: Backend, progression_id: str, last_message_at: float, status: str = "running") -> None:
    await backend.execute(
        "INSERT INTO sessions (id, created_at, progression_id, updated_at, status, last_message_at)"
        " VALUES ('s', 1.0, :pid, 1.0, :status, :at)",
        pid=progression_id,
        status=status,
        at=last_message_at,
    )


async def test_cutover_waits_for_a_program_that_writes_sessions(backend: Backend) -> None:
    """Decision 37: a running session whose last message is not one that lionstate wrote."""
    await backend.put_progression("p", json.dumps(IDS))
    await backend.put_progression("q", json.dumps(IDS))
    await put_session(backend, "p", time.time())
    service = service_of(backend)
    step = await service.step(**WHOLE)
    assert (StopReason.HELD, 0, 40) == (step.stop_reason, step.cut_over, step.items)
    row = await state_of(backend)
    assert ("dual", "foreign_writer") == (row["phase"], row["held_reason"])
    status = await service.status()
    assert ({"foreign_writer": 2}, 1) == (status.held, status.foreign_sessions)
    before = await rows_of_everything(backend)
    assert StopReason.HELD == (await service.step(**WHOLE)).stop_reason
    assert before == await rows_of_everything(backend)

    await service.set_accept_foreign_writers(True, reason="told them")
    assert (await service.status()).accept_foreign_writers
    step = await service.step(**WHOLE)
    assert (StopReason.DONE, 2) == (step.stop_reason, step.cut_over)
    assert (await state_of(backend))["held_reason"] is None
    assert "accept_foreign_writers" in await actions_of(backend)


async def test_the_wait_ends_when_the_other_program_is_gone(backend: Backend) -> None:
    await backend.put_progression("p", json.dumps(IDS))
    await put_session(backend, "p", time.time() - 60, status="completed")
    service = service_of(backend)
    assert StopReason.HELD == (await service.step(**WHOLE)).stop_reason
    await backend.execute("UPDATE sessions SET last_message_at = :at", at=time.time() - 90_000)
    assert StopReason.DONE == (await service.step(**WHOLE)).stop_reason


async def test_a_service_may_accept_foreign_writers(backend: Backend) -> None:
    await backend.put_progression("p", json.dumps(IDS))
    await put_session(backend, "p", time.time())
    service = ProgressionMigrationService(backend.direct.store, accept_foreign_writers=True)
    assert StopReason.DONE == (await service.step(**WHOLE)).stop_reason


async def test_own_writes_are_not_taken_for_another_program(backend: Backend, state: Any) -> None:
    await backend.put_progression("p", json.dumps(IDS))
    await put_session(backend, "p", time.time() - 5)
    await state.append_to_progression("p", "ours")
    assert StopReason.DONE == (await service_of(backend).step(**WHOLE)).stop_reason
    # What was observed is kept, for services to come.
    (row,) = await backend.rows("SELECT appends FROM progression_activity WHERE progression_id = 'p'")
    assert 1 == row["appends"]


async def test_a_session_behind_the_fence_does_not_count(backend: Backend) -> None:
    """Its live messages are refused whole, so whatever moved its time was lionstate."""
    await backend.put_progression("p", json.dumps(IDS))
    service = service_of(backend)
    await until_done(service)
    await put_session(backend, "p", time.time())
    await backend.put_progression("q", json.dumps(IDS))
    assert (StopReason.DONE, 1) == (lambda step: (step.stop_reason, step.cut_over))(await service.step(**WHOLE))
    assert 0 == (await service.status()).foreign_sessions


async def test_a_fence_that_was_removed_holds_cutovers(backend: Backend) -> None:
    await backend.put_progression("first", "[]")
    service = service_of(backend)
    await until_done(service)
    async with backend.direct.transaction() as transaction:
        await transaction.run(remove_fence)
    await backend.put_progression("p", json.dumps(IDS))
    step = await service.step(**WHOLE)
    assert (StopReason.HELD, {"fence_missing": 1}, 0, {}) == (
        step.stop_reason,
        step.held,
        step.cut_over,
        step.verified,
    )
    assert "fence_missing" == (await state_of(backend))["held_reason"]
    assert not await backend.direct.store.read(fence_exists)
    await backend.execute(
        "INSERT INTO migration_control (key, value, actor, updated_at)"
        " VALUES ('fence.off', '{\"enabled\": true}', 'op', 1.0)"
    )
    assert (StopReason.DONE, 1) == (lambda step: (step.stop_reason, step.cut_over))(await service.step(**WHOLE))
    assert not await backend.direct.store.read(fence_exists)


async def test_a_fence_removed_after_the_proof_is_seen_in_the_cutovers_transaction(backend: Backend) -> None:
    await backend.put_progression("first", "[]")
    await until_done(service_of(backend))
    assert await backend.direct.store.read(fence_exists)
    await backend.put_progression("p", json.dumps(IDS))
    staged = Staged(backend)

    async def before(name: str) -> None:
        if name == "cutover":
            async with backend.direct.transaction() as transaction:
                await transaction.run(remove_fence)

    staged.before = before
    step = await ProgressionMigrationService(staged).step(**WHOLE)
    assert ({"fence_missing": 1}, 0) == (step.held, step.cut_over)
    assert "dual" == (await state_of(backend))["phase"]


async def test_a_cutover_within_no_budget_needs_nothing_read(backend: Backend) -> None:
    await backend.put_progression("p", json.dumps(IDS))
    service = service_of(backend)
    await service.set_knob("verify_budget_seconds", 1e-9)
    assert (StopReason.DONE, 1) == (lambda step: (step.stop_reason, step.cut_over))(await service.step(**WHOLE))


async def test_a_cutover_over_its_budget_is_held_with_the_figure(backend: Backend, state: Any) -> None:
    """fault 19: never silently skipped; held after three misses, with a verb to raise the budget."""
    await backend.put_progression("p", json.dumps(IDS))
    service = service_of(backend)
    await service.set_knob("verify_budget_seconds", 1e-9)
    staged = Staged(backend)

    async def before(name: str) -> None:
        if name == "cutover":
            # Something that a cutover must look at: without it nothing is read, and no budget is needed.
            await state.append_to_progression("p", f"late-{len(staged.stages)}")

    staged.before = before
    service = ProgressionMigrationService(staged)
    for misses in (1, 2):
        step = await service.step(**WHOLE)
        assert (StopReason.BUSY, 0, misses) == (
            step.stop_reason,
            step.cut_over,
            (await state_of(backend))["verify_misses"],
        )
    step = await service.step(**WHOLE)
    assert (StopReason.HELD, {"verify_over_budget": 1}) == (step.stop_reason, step.held)
    row = await state_of(backend)
    assert "verify_over_budget" == row["held_reason"]
    assert "budget 0.0 ms" in row["held_detail"] and "ids, budget" in row["held_detail"]
    assert StopReason.HELD == (await service.step(progression_id="p", **WHOLE)).stop_reason
    await service.set_knob("verify_budget_seconds", 10.0)
    assert StopReason.HELD == (await service.step(**WHOLE)).stop_reason
    assert await service.release("p")
    assert not await service.release("p")
    assert StopReason.DONE == (await service.step(**WHOLE)).stop_reason
    with pytest.raises(InvalidInputError):
        await service.set_knob("verify_budget_seconds", 0)


# Rollback.


async def test_a_dual_progression_goes_back_to_json_and_in_again(backend: Backend, state: Any) -> None:
    """Decision 13: one transaction; rows go later in chunks; held until released; admission starts afresh."""
    ids = make_ids(1_200)
    await backend.put_progression("p", json.dumps(ids))
    service = service_of(backend)
    await service.step(max_items=1_100, max_seconds=60)
    await state.append_to_progression("p", "tail")
    old = await state_of(backend)
    await service.rollback("p", reason="second thoughts")
    row = await state_of(backend)
    assert ("json", "json", "operator", 1) == (
        row["phase"],
        row["authority"],
        row["held_reason"],
        row["shadow_rows"],
    )
    assert old["generation"] != row["generation"]
    assert 1_101 == len(await items_of(backend))
    await state.append_to_progression("p", "after")
    assert [*ids, "tail", "after"] == await state.get_progression("p")

    step = await service.step(**WHOLE)
    assert (StopReason.HELD, 1_101, 0) == (step.stop_reason, step.removed_items, step.admitted)
    assert [] == await items_of(backend)
    assert 0 == (await state_of(backend))["shadow_rows"]
    assert StopReason.HELD == (await service.step(progression_id="p", max_seconds=60)).stop_reason
    await service.release("p")
    await until_done(service)
    await assert_cut_over(backend, [*ids, "tail", "after"])
    found = await actions_of(backend)
    assert {"rollback", "release"} <= set(found)


async def test_removal_stops_when_the_generation_moves(backend: Backend) -> None:
    await backend.put_progression("p", json.dumps(make_ids(1_200)))
    service = service_of(backend)
    await service.step(max_items=1_100, max_seconds=60)
    await service.rollback("p")
    staged = Staged(backend)

    async def before(name: str) -> None:
        if name == "remove" and not staged.results("remove"):
            await backend.execute("UPDATE progression_storage_state SET generation = 1")

    staged.before = before
    step = await ProgressionMigrationService(staged).step(**WHOLE)
    assert (1, 1_100) == (step.lost_races, step.removed_items)


async def test_rollback_says_what_is_possible_instead(backend: Backend) -> None:
    service = service_of(backend)
    await backend.put_progression("json", "[]")
    await backend.put_progression("bad", "{")
    await backend.put_progression("items", "[]")
    for name in ("bad", "items"):
        await service.step(progression_id=name, max_seconds=60)
    before = await rows_of_everything(backend)
    for name, told in (("json", "nothing to roll back"), ("bad", "unblock"), ("items", "compat read")):
        with pytest.raises(PhaseConflictError, match=told):
            await service.rollback(name)
    with pytest.raises(NotFoundError):
        await service.rollback("missing")
    assert before == await rows_of_everything(backend)


# Compat read.


async def test_the_compat_switch_is_kept_and_audited(backend: Backend) -> None:
    await backend.put_progression("p", json.dumps(IDS))
    service = service_of(backend)
    with pytest.raises(PhaseConflictError):
        await service.set_compat_read("p", True)
    with pytest.raises(NotFoundError):
        await service.set_compat_read("missing", True)
    await until_done(service)
    await service.set_compat_read("p", True)
    await service.set_compat_read("p", True)
    assert 1 == (await state_of(backend))["compat_read"]
    assert ("test", None) == await switched_by(service)
    await service.set_compat_read("p", True, reason="plans")
    await service.set_compat_read("p", True, reason="plans")
    assert ("test", "plans") == await switched_by(service)
    (order,) = (await service.status()).orders.newest
    assert ("compat_read", "p", "plans") == (order.kind, order.progression_id, order.reason)
    await service.set_compat_read("p", False, reason="repaired")
    await service.set_compat_read("p", False, reason="once more")
    assert 0 == (await state_of(backend))["compat_read"]
    assert (None, None) == await switched_by(service)
    await service.set_compat_read_everywhere(True, reason="all of them")
    assert ("test", "all of them") == await switched_by(service)
    told = await backend.rows(
        "SELECT details FROM admin_events WHERE action = 'progression_migrate.compat_read' AND target_id = 'p'"
        " ORDER BY created_at, id"
    )
    details = [json.loads(row["details"]) if isinstance(row["details"], str) else row["details"] for row in told]
    assert [(True, None), (True, "plans"), (False, "repaired")] == [(one["enabled"], one["reason"]) for one in details]


async def test_a_block_takes_the_order_of_the_compat_switch_with_it(backend: Backend) -> None:
    """Decision 2: the switch that a block forces is nobody's order, and an order would outlive it."""
    await backend.put_progression("p", json.dumps(IDS))
    service = service_of(backend)
    await until_done(service)
    await service.set_compat_read("p", True, reason="plans")
    await backend.execute("DELETE FROM progression_items WHERE ordinal = 7")
    assert 1 == (await service.scrub(restart=True, max_seconds=60)).checked
    assert ("blocked", 1) == (lambda row: (row["phase"], row["compat_read"]))(await state_of(backend))
    assert ((None, None), {}) == (await switched_by(service), (await service.status()).orders.counts)


async def switched_by(service: ProgressionMigrationService) -> tuple[str | None, str | None]:
    found = await service.explain("p")
    return found.compat_read_by, found.compat_read_reason


async def test_a_switch_that_a_block_forces_cannot_be_moved(backend: Backend) -> None:
    await backend.put_progression("p", json.dumps(IDS))
    service = service_of(backend)
    await until_done(service)
    await backend.execute(
        "UPDATE progression_storage_state SET phase = 'blocked', authority = 'items',"
        " blocked_reason = 'digest_mismatch', compat_read = 1"
    )
    with pytest.raises(PhaseConflictError, match="digest_mismatch"):
        await service.set_compat_read("p", False)
    assert 1 == (await state_of(backend))["compat_read"]


async def test_the_global_compat_switch_is_kept(backend: Backend) -> None:
    service = service_of(backend)
    await service.set_compat_read_everywhere(True, reason="plans")
    (row,) = await backend.rows("SELECT value, actor, reason FROM migration_control WHERE key = 'compat_read'")
    assert ({"enabled": True}, "test", "plans") == (json.loads(row["value"]), row["actor"], row["reason"])
    assert (await service.status()).compat_read_everywhere
    await service.set_compat_read_everywhere(False)
    assert not (await service.status()).compat_read_everywhere


# A store that stays locked.


async def test_a_locked_store_ends_the_step_and_moves_nothing(backend: Backend) -> None:
    """fault 1: the cursor is unchanged, nothing says complete, and the next step goes on."""
    await backend.put_progression("p", json.dumps(IDS))
    await service_of(backend).step(max_items=5, max_seconds=60)
    target = str(backend.direct.path) if not backend.is_postgresql else None
    async with StateDB(
        target,
        url=backend.direct.url if target is None else None,
        settings=EngineSettings(busy_timeout_ms=300),
    ) as second:
        service = ProgressionMigrationService(second.store)
        async with foreign(backend) as other:
            await other.execute("BEGIN" if backend.is_postgresql else "BEGIN IMMEDIATE")
            await other.append("p", IDS[0])
            if backend.is_postgresql:
                await other.execute("SELECT 1 FROM progressions WHERE id = 'p' FOR UPDATE")
            step = await service.step(progression_id="p", max_items=5, max_seconds=60)
            assert (StopReason.BUSY, 0) == (step.stop_reason, step.items)
            await other.execute("ROLLBACK")
        row = await state_of(backend)
        assert ("dual", 5) == (row["phase"], row["backfill_next"])
        await until_done(service)
    await assert_cut_over(backend, IDS)
