"""``plan()`` against the step that follows it: equal or unknown, in the same order, and nothing changed (fault 21)."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import Any

import pytest

from lionstate.errors import InvalidInputError
from lionstate.migration import Move, Plan, ProgressionMigrationService
from lionstate.migration.report import Stage, StageOutcome
from tests.support.backends import Backend
from tests.support.migration import WHOLE, Staged, foreign, make_ids, rows_of_everything, service_of, until_done

IDS = make_ids(1_300)


class Recorded(Staged):
    """Notes which progression each stage was for."""

    def __init__(self, backend: Backend) -> None:
        super().__init__(backend)
        self.done: list[tuple[str, str, Stage]] = []

    async def maintain(self, name: str, script: Any, *, progressions: Sequence[str] = ()) -> Any:
        result = await super().maintain(name, script, progressions=progressions)
        if progressions:
            self.done.append((self.stages[-1][0], progressions[0], result))
        return result

    def of(self, progression_id: str, name: str) -> list[Stage]:
        return [stage for what, pid, stage in self.done if (what, pid) == (name, progression_id)]


async def make_store(backend: Backend, state: Any, dice: random.Random, monkeypatch: pytest.MonkeyPatch) -> None:
    """Progressions of every kind, some of them on their way."""
    service = service_of(backend)
    odd = ["[]", "[", '["a", 1]', "{}", json.dumps(["x", "x", "y"]), json.dumps(["ä" * 90, "\U0001f600" * 9] * 300)]
    names = [f"p{number:02d}" for number in dice.sample(range(100), 14)]
    for name in names:
        ids = IDS[: dice.choice((0, 1, 7, 40, 499, 500, 501, 1_300))]
        await backend.put_progression(name, dice.choice([json.dumps(ids)] * 3 + odd))
    await backend.put_progression("seen", json.dumps(IDS[:30]))
    if dice.random() < 0.3:
        return
    for name in names[:4]:
        await service.step(progression_id=name, max_items=dice.choice((1, 300, 10_000)), max_seconds=60)
    phases = {
        row["progression_id"]: row["phase"]
        for row in await backend.rows("SELECT progression_id, phase FROM progression_storage_state")
    }
    for name, phase in phases.items():
        what = dice.random()
        if phase == "dual" and what < 0.3:
            await service.rollback(name)
            if what < 0.15:
                await service.release(name)
        elif phase == "dual" and what < 0.5:
            await state.append_to_progression(name, "later")
        elif phase == "dual" and what < 0.6:
            async with foreign(backend) as other:
                await other.append(name, "theirs")
        elif phase == "items":
            monkeypatch.setattr("lionstate.progression.delete.SMALL_ROWS", 5)
            await state.delete_progression(name)
    await state.append_to_progression("seen", "new")
    if dice.random() < 0.7:
        await service.prioritize(names[8])
        await service.exclude(names[9])
    if dice.random() < 0.5:
        await backend.execute("INSERT INTO progression_items VALUES (:id, 3, 'orphan')", id=names[6])
    await backend.execute("DELETE FROM progression_sizes WHERE progression_id > :id", id=dice.choice(names))


def assert_equal_or_unknown(plan: Plan, found: Recorded) -> int:
    """Compare; how many numbers were known."""
    known = 0
    for one in plan.next:
        chunks = [s for s in found.of(one.progression_id, "chunk") if s.outcome is StageOutcome.COPIED]
        removed = sum(stage.count for stage in found.of(one.progression_id, "remove"))
        codes = [s.code for what, pid, s in found.done if pid == one.progression_id and s.code is not None]
        real = {
            "items": sum(stage.count for stage in chunks),
            "id_bytes": sum(stage.size_bytes for stage in chunks),
            "chunks": len(chunks),
            "removed_items": removed,
            "code": codes[0].value if codes else None,
        }
        told = {name: getattr(one, name) for name in real}
        if told["chunks"] is None:
            # The value was not read, so nobody knows what would be said of it.
            del told["code"]
        assert {name: value for name, value in told.items() if value is not None or name == "code"} == {
            name: real[name] for name, value in told.items() if value is not None or name == "code"
        }, one
        known += sum(value is not None for value in told.values())
    return known


@pytest.mark.parametrize("seed", range(10))
async def test_every_number_is_that_of_the_next_step_or_unknown(
    backend: Backend, state: Any, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """fault 21"""
    dice = random.Random(seed)
    await make_store(backend, state, dice, monkeypatch)
    if seed % 3 == 2:
        monkeypatch.setattr("lionstate.migration.plan._LOOK_BYTES", 20_000)
    store = Recorded(backend)
    service = ProgressionMigrationService(store, actor="test", accept_foreign_writers=True)
    before = await rows_of_everything(backend)
    plan = await service.plan(limit=1_000)
    assert before == await rows_of_everything(backend)
    assert [] == store.done
    assert IDS[0] not in str(plan)
    left = (await service.status()).progress
    step = await service.step(**WHOLE)
    order = list(dict.fromkeys(pid for _, pid, _ in store.done))
    assert order == [one.progression_id for one in plan.next]
    assert 20 < assert_equal_or_unknown(plan, store)
    assert left.left == plan.left and plan.order_is_certain
    for told, real in ((plan.items, step.items), (plan.chunks, step.chunks)):
        assert told in (None, real)
    assert {Move.REMOVE} >= {one.move for one in plan.next if one.removed_items}
    done = await service.plan()
    assert done.next == () or {Move.CUT_OVER} == {one.move for one in done.next}


async def test_chunks_are_counted_where_their_size_is_certain(backend: Backend) -> None:
    """fault 21: a store that holds the lock for longer than wanted makes more chunks than the first size says."""
    await backend.put_progression("p", json.dumps(IDS))
    await backend.put_progression("small", json.dumps(IDS[:50]))
    service = service_of(backend)
    await service.set_knob("hold_target_seconds", 0.0001)
    assert {"p": None, "small": 1} == {one.progression_id: one.chunks for one in (await service.plan()).next}
    assert 3 < (await service.step(progression_id="p", **WHOLE)).chunks
    await backend.put_progression("q", json.dumps(IDS))
    await service.set_knob("min_items", 500)
    plan = await service.plan()
    assert {"small": 1, "q": 3} == {one.progression_id: one.chunks for one in plan.next}
    assert plan.chunks == (await service.step(**WHOLE)).chunks


async def test_what_no_step_has_measured_is_unknown(backend: Backend) -> None:
    """fault 21: times, growth, holds and the log come from steps on this store, or are None."""
    for number in range(3):
        await backend.put_progression(f"p{number}", json.dumps(IDS))
    if backend.is_postgresql:
        # Pages that an earlier test left free would be filled first, and nothing would grow.
        await backend.execute("TRUNCATE progression_items")
    service = service_of(backend)
    fresh = await service.plan()
    measured = ("work_seconds", "growth_bytes", "chunk_lock_seconds", "cutover_lock_seconds", "log_peak_bytes")
    assert [None] * 5 == [getattr(fresh, name) for name in measured]
    assert [None] * 3 == [one.work_seconds for one in fresh.next]
    # Of 1,300 elements there are 3 chunks, or up to 26: how many is up to the holds.
    assert (3, 3_900, None, 3 * len(json.dumps(IDS))) == (fresh.left, fresh.items, fresh.chunks, fresh.left_bytes)
    assert (backend.is_postgresql, backend.is_postgresql) == (fresh.free_disk_bytes is None, fresh.log_bytes is None)
    await service.step(progression_id="p0", **WHOLE)
    seen = await service.plan(limit=1)
    names = measured[:4] if backend.is_postgresql else measured
    assert [] == [name for name in names if getattr(seen, name) is None]
    assert seen.growth_bytes is not None and seen.growth_bytes > 0
    # One of two is named: nobody counted the other's elements.
    assert (2, 1, None, None) == (seen.left, len(seen.next), seen.items, seen.chunks)
    await service.pause(reason="lunch")
    assert "paused" in (await service.plan()).waits[0]
    with pytest.raises(InvalidInputError):
        await service.plan(limit=-1)


async def test_the_rows_of_what_is_left_add_up_to_its_total(backend: Backend) -> None:
    """fault 21: of a copy under way what is left of it, not the whole value."""
    for name in ("done", "half", "whole"):
        await backend.put_progression(name, json.dumps(IDS))
    service = service_of(backend)
    await service.step(progression_id="done", **WHOLE)
    await service.step(progression_id="half", max_items=975, max_seconds=60)
    found = await service.plan()
    half, whole = found.next
    assert (325, 1_300) == (half.items, whole.items)
    assert found.work_seconds is not None and half.work_seconds is not None and whole.work_seconds is not None
    assert half.work_seconds < 0.5 * whole.work_seconds
    assert pytest.approx(half.work_seconds + whole.work_seconds) == found.work_seconds


async def test_it_waits_for_no_writer(backend: Backend) -> None:
    """fault 48: no write lock; pages of what was not measured, the smallest first."""
    for number in range(12):
        await backend.put_progression(f"p{number:02d}", json.dumps(IDS[: 12 - number]))
    async with foreign(backend) as other:
        await other.execute("BEGIN" if backend.is_postgresql else "BEGIN IMMEDIATE")
        await other.append("p00", "x")
        found = await service_of(backend).plan(limit=3)
        await other.execute("ROLLBACK")
    assert ["p11", "p10", "p09"] == [one.progression_id for one in found.next]


async def test_many_pages_are_read_in_order(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    """fault 48: bounded memory whatever the store holds; beyond one page the order may change, and it says so."""
    for number in range(12):
        await backend.put_progression(f"p{number:02d}", json.dumps(IDS[: 12 - number]))
    monkeypatch.setattr("lionstate.migration.candidates.SIZES_PAGE", 5)
    found = await service_of(backend).plan(limit=3)
    assert ["p11", "p10", "p09"] == [one.progression_id for one in found.next]
    assert (False, 12) == (found.order_is_certain, found.left)
    assert found.left_bytes == sum(len(json.dumps(IDS[:count])) for count in range(1, 13))


async def test_nothing_left(backend: Backend) -> None:
    service = service_of(backend)
    assert ((), 0, 0, 0, 0) == (lambda p: (p.next, p.left, p.left_bytes, p.items, p.chunks))(await service.plan())
    await backend.put_progression("p", "[]")
    await until_done(service)
    assert ((), 0, 0) == (lambda p: (p.next, p.left, p.items))(await service.plan())
