"""What each stage looks at again under its lock, so that what moved meanwhile is neither copied nor cut over."""

from __future__ import annotations

import json
from typing import Any

from lionstate.migration.report import StageOutcome
from tests.support.backends import Backend
from tests.support.migration import IDS, assert_cut_over, between, copied, make_ids, service_of, state_of


async def test_a_cutover_waits_for_a_cursor_that_was_set_back(backend: Backend) -> None:
    """ADR-0117 D3: only a copied prefix is cut over; repeating its chunks changes nothing."""
    await copied(backend)

    async def set_back(before: int) -> None:
        if before == 0:
            await backend.execute("UPDATE progression_storage_state SET backfill_next = 7")

    step, staged, _ = await between(backend, set_back)
    outcomes = [result.outcome for result in staged.results("cutover")]
    assert [StageOutcome.MOVED, StageOutcome.CUT_OVER] == [found for found in outcomes if found != StageOutcome.HELD]
    assert (1, len(IDS) - 7) == (step.lost_races, step.items)
    await assert_cut_over(backend, IDS)


async def test_an_allocator_that_moved_alone_is_not_cut_over(backend: Backend) -> None:
    """Decision 5: the allocator is compared under the lock although value and rows are as they were."""
    await copied(backend)

    async def move(before: int) -> None:
        if before == 1:
            # The first try only finds that there is no fence.
            await backend.execute("UPDATE progression_storage_state SET next_ordinal = next_ordinal + 1")

    step, staged, _ = await between(backend, move)
    row = await state_of(backend)
    assert ("blocked", "json", "allocator_mismatch") == (row["phase"], row["authority"], row["blocked_reason"])
    assert ({"allocator_mismatch": 1}, 0) == (step.blocked, step.cut_over)
    assert StageOutcome.BLOCKED == staged.results("cutover")[-1].outcome


async def test_a_chunk_of_a_replaced_value_is_not_copied(backend: Backend, state: Any) -> None:
    """Decision 27: phase, cursor and count may be the same after a replacement; the generation is not."""
    others = make_ids(len(IDS), first=100)
    await backend.put_progression("p", json.dumps(IDS))

    async def replace(before: int) -> None:
        if before == 0:
            await state.set_progression("p", others)

    step, staged, _ = await between(backend, replace, stage="chunk")
    outcomes = [result.outcome for result in staged.results("chunk")]
    assert [StageOutcome.MOVED, StageOutcome.COPIED] == outcomes
    assert (1, len(others), {}) == (step.lost_races, step.items, step.blocked)
    await assert_cut_over(backend, others)


async def test_a_block_of_another_generation_is_not_written(backend: Backend, state: Any) -> None:
    """Decision 4: the finding was about what a replacement has removed, although the value reads the same."""
    await copied(backend)
    await backend.execute("DELETE FROM progression_items WHERE ordinal = 7")

    async def replace(before: int) -> None:
        if before == 0:
            await state.set_progression("p", IDS)

    step, staged, _ = await between(backend, replace, stage="block")
    assert [StageOutcome.MOVED] == [result.outcome for result in staged.results("block")]
    assert ({}, 1) == (step.blocked, step.cut_over)
    await assert_cut_over(backend, IDS)


async def test_an_admission_of_another_generation_is_not_written(backend: Backend, state: Any) -> None:
    """Decision 4: a state row that came, or went through a rollback, since the value was read."""
    await backend.put_progression("p", json.dumps(IDS))

    async def admit_first(before: int) -> None:
        if before == 0:
            await service_of(backend).step(progression_id="p", max_items=3, max_seconds=60)
            await service_of(backend).rollback("p")
            await service_of(backend).release("p")
            await backend.execute("DELETE FROM progression_items")
            await backend.execute("UPDATE progression_storage_state SET shadow_rows = 0")

    step, staged, _ = await between(backend, admit_first, stage="admit")
    outcomes = [result.outcome for result in staged.results("admit")]
    assert [StageOutcome.MOVED, StageOutcome.ADMITTED] == outcomes
    assert ({}, 1) == (step.blocked, step.cut_over)
    await assert_cut_over(backend, IDS)


async def test_a_foreign_append_behind_an_own_one_is_called_by_its_name(backend: Backend, state: Any) -> None:
    """Decision 16: between proof and cutover both were acknowledged; the JSON, which has both, stays the authority."""
    await copied(backend)

    async def write(before: int) -> None:
        if before == 1:
            # The first try only finds that there is no fence.
            await state.append_to_progression("p", "ours")
            (row,) = await backend.rows("SELECT collection FROM progressions WHERE id = 'p'")
            await backend.execute(
                "UPDATE progressions SET collection = :text WHERE id = 'p'",
                text=row["collection"].removesuffix("]") + ', "theirs"]',
            )

    step, _, _ = await between(backend, write)
    row = await state_of(backend)
    assert ("blocked", "json", "foreign_write") == (row["phase"], row["authority"], row["blocked_reason"])
    assert ({"foreign_write": 1}, 0) == (step.blocked, step.cut_over)
    assert [*IDS, "ours", "theirs"] == await state.get_progression("p")
