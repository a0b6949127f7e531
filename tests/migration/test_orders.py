"""What an operator orders: hold, ready, cutover, exclude, prioritize (design decisions 26, 6; design §5)."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from typing import Any

import pytest

from lionstate.errors import HeldReason, NotFoundError, PhaseConflictError, ProgressionBlockedError
from lionstate.migration import ProgressionMigrationService, StopReason
from tests.support.backends import Backend
from tests.support.migration import (
    WHOLE,
    Staged,
    assert_cut_over,
    foreign,
    make_ids,
    rows_of_everything,
    service_of,
    state_of,
    until_done,
)

IDS = make_ids(20)
END = datetime(2040, 1, 31, 18, tzinfo=UTC).timestamp()


async def put(backend: Backend, *names: str) -> None:
    for name in names:
        await backend.put_progression(name, json.dumps(IDS))


async def phases_of(backend: Backend) -> dict[str, str]:
    rows = await backend.rows("SELECT progression_id, phase FROM progression_storage_state")
    return {row["progression_id"]: row["phase"] for row in rows}


def details_of(stored: Any) -> Any:
    return json.loads(stored) if isinstance(stored, str) else stored


async def actions_of(backend: Backend, *names: str) -> list[Any]:
    rows = await backend.rows("SELECT action, target_id, actor, details FROM admin_events ORDER BY created_at, id")
    wanted = [(row, row["action"].removeprefix("progression_migrate.")) for row in rows]
    return [(name, row["target_id"], row["actor"], details_of(row["details"])) for row, name in wanted if name in names]


async def test_held_cutovers_wait_ready_until_one_is_commanded(backend: Backend, state: Any) -> None:
    """Stage ``ready``: admitted, copied, proved; seen with the age of its proof; nothing is written meanwhile."""
    await put(backend, "p", "q")
    service = service_of(backend)
    began = time.time()
    await service.hold_all(reason="at night only")
    step = await service.step(**WHOLE)
    assert (StopReason.HELD, 0, {"match": 2}, {"operator": 2}) == (
        step.stop_reason,
        step.cut_over,
        step.verified,
        step.held,
    )
    status = await service.status()
    assert {"p": "dual", "q": "dual"} == await phases_of(backend)
    hold = status.orders.hold_all
    assert hold is not None
    assert ("test", "at night only", None) == (hold.actor, hold.reason, hold.expires_at)
    assert (2, 0) == (status.ready.count, status.ready.appended)
    assert status.ready.oldest_proved_at is not None and began <= status.ready.oldest_proved_at <= time.time()
    # A second step has nothing to do and proves nothing.
    before = await rows_of_everything(backend)
    for name in (None, "p"):
        step = await service.step(progression_id=name, **WHOLE)
        assert (StopReason.HELD, {}) == (step.stop_reason, step.verified)
    assert before == await rows_of_everything(backend)

    await state.append_to_progression("p", "new")
    assert 1 == (await service.status()).ready.appended
    found = await service.explain("p")
    assert found.ready_since is not None
    assert ["held by test", "1 appended since"] == [
        part for part in ("held by test", "1 appended since") if any(part in wait for wait in found.waits)
    ]
    step = await service.cutover("p")
    assert (StopReason.DONE, 1, {"match": 1}) == (step.stop_reason, step.cut_over, step.verified)
    await assert_cut_over(backend, [*IDS, "new"])
    assert {"p": "items", "q": "dual"} == await phases_of(backend)
    assert 1 == (await service.status()).ready.count


async def test_a_cutover_never_trusts_the_kept_proof(backend: Backend) -> None:
    """However young it is: what changed since is found, and blocks."""
    await put(backend, "p")
    service = service_of(backend)
    await service.hold("p")
    await until_done(service)
    assert 1 == (await service.status()).ready.count
    await backend.execute("UPDATE progression_items SET message_id = 'other' WHERE ordinal = 7")
    step = await service_of(backend).cutover("p")
    assert (StopReason.BLOCKED, {"digest_mismatch": 1}, 0) == (step.stop_reason, step.blocked, step.cut_over)
    assert "blocked" == (await state_of(backend))["phase"]


async def test_all_that_is_ready_is_cut_over_but_what_is_held_by_name(backend: Backend) -> None:
    await put(backend, "p", "q", "r", "s")
    service = service_of(backend)
    await service.hold_all()
    await service.hold("q", reason="not this one")
    await until_done(service)
    await service.exclude("r")
    assert 4 == (await service.status()).ready.count
    step = await service.cutover_all_ready()
    assert (StopReason.HELD, 2) == (step.stop_reason, step.cut_over)
    assert {"p": "items", "q": "dual", "r": "dual", "s": "items"} == await phases_of(backend)
    # By name it is commanded whatever holds it; its own orders are done with then.
    assert 1 == (await service.cutover("q")).cut_over
    assert 1 == (await service.cutover("r")).cut_over
    assert {} == (await service.status()).orders.counts
    assert await service.release_all()
    assert not await service.release_all()


async def test_released_ones_go_on_by_themselves(backend: Backend) -> None:
    await put(backend, "p", "q")
    service = service_of(backend)
    await service.hold("p", reason="wait")
    await until_done(service)
    assert {"p": "dual", "q": "items"} == await phases_of(backend)
    assert await service.release("p", reason="go")
    assert not await service.release("p")
    await until_done(service)
    assert {"p": "items", "q": "items"} == await phases_of(backend)
    audited = await actions_of(backend, "hold", "release")
    assert [
        ("hold", "p", "test", {"reason": "wait", "expires_at": None}),
        ("release", "p", "test", {"held": "hold", "reason": "go"}),
    ] == audited


@pytest.mark.parametrize("order", ["hold", "hold_all", "exclude"])
async def test_an_order_given_after_the_look_is_seen_under_the_lock(backend: Backend, order: str) -> None:
    await put(backend, "p")
    staged = Staged(backend)
    operator = service_of(backend)
    seen = ""

    async def before(name: str) -> None:
        nonlocal seen
        if name == "cutover":
            await (operator.hold_all() if order == "hold_all" else getattr(operator, order)("p"))
            seen = await rows_of_everything(backend)

    staged.before = before
    step = await ProgressionMigrationService(staged).step(**WHOLE)
    assert (StopReason.HELD, 0, HeldReason.OPERATOR) == (step.stop_reason, step.cut_over, *step.held)
    assert seen == await rows_of_everything(backend)


@pytest.mark.parametrize("stage", ["admit", "chunk"])
async def test_an_exclusion_is_seen_by_the_next_stage(backend: Backend, stage: str) -> None:
    """Decision 26: acknowledged after at most one chunk."""
    await put(backend, "p")
    staged = Staged(backend)
    operator = service_of(backend)
    seen = ""

    async def before(name: str) -> None:
        nonlocal seen
        if name == stage:
            await operator.exclude("p")
            seen = await rows_of_everything(backend)

    staged.before = before
    step = await ProgressionMigrationService(staged).step(**WHOLE)
    assert {"operator": 1} == step.held
    assert seen == await rows_of_everything(backend)


async def test_the_excluded_are_passed_over_and_the_prioritized_come_first(backend: Backend) -> None:
    for name, count in (("small", 2), ("middle", 5), ("large", 20), ("out", 2)):
        await backend.put_progression(name, json.dumps(IDS[:count]))
    service = service_of(backend)
    assert await service.prioritize("large", reason="hot")
    assert await service.exclude("out", reason="under repair")
    step = await service.step(max_items=20, max_seconds=60)
    assert 20 == step.items
    assert {"large"} == (await phases_of(backend)).keys() - {"small", "middle"}
    await until_done(service)
    assert {"small": "items", "middle": "items", "large": "items"} == await phases_of(backend)
    status = await service.status()
    assert {"exclude": 1} == status.orders.counts
    (order,) = status.orders.newest
    assert ("out", "exclude", "test", "under repair") == (order.progression_id, order.kind, order.actor, order.reason)
    assert "excluded by test" in (await service.explain("out")).waits[0]
    await service.exclude("out", expires_at=END)
    await service.hold("out", expires_at=END)
    excluded, held = (await service.explain("out")).waits
    assert excluded.endswith("until 2040-01-31 18:00:00 UTC, or exclude --clear")
    assert held.endswith("release; it ends by itself at 2040-01-31 18:00:00 UTC")
    await service.release("out")
    # By name it is worked on all the same; then everybody takes part again.
    assert 1 == (await service.step(progression_id="out", max_items=1, max_seconds=60)).items
    assert await service.exclude("out", clear=True)
    assert not await service.exclude("out", clear=True)
    await until_done(service)
    assert "items" == (await phases_of(backend))["out"]


async def test_orders_end_by_themselves(backend: Backend) -> None:
    await put(backend, "p", "q", "r")
    service = service_of(backend)
    past = time.time() - 1
    await service.hold_all(expires_at=past)
    await service.hold("p", expires_at=past)
    await service.exclude("q", expires_at=past)
    await service.prioritize("r", expires_at=past)
    status = await service.status()
    assert (None, {}) == (status.orders.hold_all, status.orders.counts)
    step = await service.step(**WHOLE)
    assert (StopReason.DONE, 3) == (step.stop_reason, step.cut_over)


async def test_what_cannot_be_cut_over_is_refused_by_its_phase(backend: Backend) -> None:
    await put(backend, "p", "done")
    await backend.put_progression("torn", "[")
    service = service_of(backend)
    await service.step(progression_id="done", **WHOLE)
    await service.step(progression_id="torn", **WHOLE)
    with pytest.raises(PhaseConflictError, match="json"):
        await service.cutover("p")
    await service.step(progression_id="p", max_items=5, max_seconds=60)
    with pytest.raises(PhaseConflictError, match="copied to 5 of 20"):
        await service.cutover("p")
    with pytest.raises(PhaseConflictError, match="already"):
        await service.cutover("done")
    with pytest.raises(ProgressionBlockedError):
        await service.cutover("torn")
    for call in (service.cutover, service.hold, service.exclude, service.prioritize, service.release):
        with pytest.raises(NotFoundError):
            await call("nope")


async def test_a_pause_and_other_programs_stop_a_commanded_cutover_too(backend: Backend) -> None:
    await put(backend, "p")
    service = service_of(backend)
    await service.hold_all()
    await until_done(service)
    await service.pause()
    assert StopReason.PAUSED == (await service.cutover("p")).stop_reason
    await service.resume()
    await backend.execute(
        "INSERT INTO sessions (id, created_at, progression_id, updated_at, status, last_message_at)"
        " VALUES ('s', 1.0, 'p', 1.0, 'running', :at)",
        at=time.time(),
    )
    step = await service.cutover_all_ready()
    assert (StopReason.HELD, {"foreign_writer": 1}) == (step.stop_reason, {k: n for k, n in step.held.items() if n})
    assert 1 == (await service.cutover("p", accept_foreign_writers=True)).cut_over


async def test_a_rolled_back_and_replaced_progression_is_not_ready(backend: Backend, state: Any) -> None:
    """A proof is of one generation."""
    await put(backend, "p")
    service = service_of(backend)
    await service.hold_all()
    await until_done(service)
    await state.set_progression("p", IDS[:5])
    assert 0 == (await service.status()).ready.count
    await until_done(service)
    assert 1 == (await service.status()).ready.count
    await backend.execute("UPDATE progression_storage_state SET generation = generation + 1")
    assert (0, None) == ((await service.status()).ready.count, (await service.explain("p")).ready_since)
    async with foreign(backend) as other:
        await other.append("p", "theirs")
    step = await service.cutover("p", accept_foreign_writers=True)
    assert ({"foreign_write": 1}, 0) == (step.blocked, step.cut_over)
