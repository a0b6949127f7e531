"""A finding of a proof is proved again under the lock before it blocks (decision 2)."""

from __future__ import annotations

from typing import Any

import pytest

from lionstate.migration.report import StageOutcome
from tests.support.backends import Backend
from tests.support.migration import IDS, TAMPER, assert_cut_over, between, copied, state_of

HEAL = {
    "count_mismatch": f"INSERT INTO progression_items VALUES ('p', 7, '{IDS[7]}')",
    "digest_mismatch": f"UPDATE progression_items SET message_id = '{IDS[7]}' WHERE ordinal = 7",
    "ordinal_mismatch": "UPDATE progression_items SET ordinal = 19 WHERE ordinal = 99",
    "a row behind the allocator": "DELETE FROM progression_items WHERE ordinal = 30",
}


@pytest.mark.parametrize("appends", [0, 2])
@pytest.mark.parametrize("code", HEAL)
async def test_a_finding_that_is_gone_under_the_lock_does_not_block(
    backend: Backend, state: Any, code: str, appends: int
) -> None:
    """Decision 2: what a snapshot showed of the rows is looked at again under the lock."""
    await copied(backend)
    await backend.execute(TAMPER.get(code, "INSERT INTO progression_items VALUES ('p', 30, 'behind')"))
    late = [f"late-{number}" for number in range(appends)]

    async def heal(before: int) -> None:
        if before == 0:
            await backend.execute(HEAL[code])
            for message_id in late:
                await state.append_to_progression("p", message_id)

    step, staged, _ = await between(backend, heal, stage="block")
    assert ({}, {"mismatch": 1, "match": 1}, 1) == (step.blocked, step.verified, step.cut_over)
    assert (1, 0) == (step.lost_races, step.text_retries)
    assert [StageOutcome.UNPROVED] == [result.outcome for result in staged.results("block")]
    await assert_cut_over(backend, [*IDS, *late])


@pytest.mark.parametrize("code", [*HEAL, "allocator_mismatch"])
async def test_a_finding_that_is_still_there_blocks_although_the_value_grew(
    backend: Backend, state: Any, code: str
) -> None:
    await copied(backend)
    await backend.execute(TAMPER.get(code, "INSERT INTO progression_items VALUES ('p', 30, 'behind')"))

    async def append(before: int) -> None:
        if before == 0 and code != "allocator_mismatch":
            await state.append_to_progression("p", "late")

    step, _, _ = await between(backend, append, stage="block")
    assert {"count_mismatch" if code not in TAMPER else code: 1} == step.blocked
    assert ("blocked", "json") == (lambda row: (row["phase"], row["authority"]))(await state_of(backend))
