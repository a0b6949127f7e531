"""What a proof finds and what a foreign program leaves (ADR-0117 D3; decisions 2, 5, 7, 16)."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from lionstate.errors import ConflictError
from lionstate.migration import ProgressionMigrationService, StopReason
from lionstate.migration.report import StageOutcome
from tests.support.backends import Backend
from tests.support.migration import (
    IDS,
    TAMPER,
    WHOLE,
    Staged,
    assert_cut_over,
    between,
    copied,
    foreign,
    items_of,
    make_ids,
    service_of,
    state_of,
    until_done,
)


@pytest.mark.parametrize("code", TAMPER)
async def test_unequal_values_block_with_their_code(backend: Backend, state: Any, code: str) -> None:
    await copied(backend)
    await backend.execute(TAMPER[code])
    (step,) = await until_done(service_of(backend))
    row = await state_of(backend)
    assert ("blocked", "json", code) == (row["phase"], row["authority"], row["blocked_reason"])
    assert ({code: 1}, {"mismatch": 1}) == (step.blocked, step.verified)
    # The JSON stays what is read and appended to, and automatic work leaves the progression alone.
    await state.append_to_progression("p", "x")
    assert [*IDS, "x"] == await state.get_progression("p")
    assert StopReason.NOTHING_TO_DO == (await service_of(backend).step(max_seconds=60)).stop_reason
    (event,) = await backend.rows(
        "SELECT details FROM admin_events WHERE action = 'progression_migrate.block' AND target_id = 'p'"
    )
    assert code in str(event["details"]) and IDS[7] not in str(event["details"])


async def test_a_row_in_the_way_of_the_copy_blocks(backend: Backend) -> None:
    """Decision 16: the same id at the same ordinal is a repeat, another one a collision."""
    await backend.put_progression("p", json.dumps(IDS))
    await service_of(backend).step(max_items=5, max_seconds=60)
    await backend.execute(f"INSERT INTO progression_items VALUES ('p', 6, '{IDS[6]}')")
    step = await service_of(backend).step(max_items=5, max_seconds=60)
    assert ({}, 5) == (step.blocked, step.items)
    await backend.execute("INSERT INTO progression_items VALUES ('p', 12, 'other')")
    step = await service_of(backend).step(**WHOLE)
    assert {"ordinal_collision": 1} == step.blocked
    row = await state_of(backend)
    assert ("blocked", "json", 10) == (row["phase"], row["authority"], row["backfill_next"])


async def test_a_foreign_append_in_dual_is_found_at_the_parse(backend: Backend, state: Any) -> None:
    """Decision 16: an array of another length than the allocator was written by somebody else."""
    await backend.put_progression("p", json.dumps(IDS))
    await service_of(backend).step(max_items=5, max_seconds=60)
    async with foreign(backend) as other:
        await other.append("p", "theirs")
    step = await service_of(backend).step(max_items=5, max_seconds=60)
    assert ({"foreign_write": 1}, 0) == (step.blocked, step.items)
    assert [*IDS, "theirs"] == await state.get_progression("p")


async def test_a_foreign_append_behind_a_kept_parse_is_found_at_the_cutover(backend: Backend, state: Any) -> None:
    await backend.put_progression("p", json.dumps(IDS))
    service = service_of(backend)
    await service.step(max_items=5, max_seconds=60)
    async with foreign(backend) as other:
        await other.append("p", "theirs")
    (step,) = await until_done(service)
    assert {"foreign_write": 1} == step.blocked
    assert [*IDS, "theirs"] == await state.get_progression("p")


async def test_an_own_append_finds_a_foreign_one(backend: Backend, state: Any) -> None:
    await backend.put_progression("p", json.dumps(IDS))
    await service_of(backend).step(max_items=5, max_seconds=60)
    async with foreign(backend) as other:
        await other.append("p", "theirs")
    await state.append_to_progression("p", "ours")
    row = await state_of(backend)
    assert ("blocked", "json", "foreign_write") == (row["phase"], row["authority"], row["blocked_reason"])
    assert [*IDS, "theirs", "ours"] == await state.get_progression("p")


async def test_a_value_that_became_invalid_blocks(backend: Backend) -> None:
    await copied(backend)
    async with foreign(backend) as other:
        await other.replace("p", "[1]")
    (step,) = await until_done(service_of(backend))
    assert {"non_string": 1} == step.blocked


# What happens between a parse and the lock of the admission.


@pytest.mark.parametrize("writer", ["own", "foreign", "raw"])
async def test_an_admission_takes_what_was_appended_since_its_parse(backend: Backend, state: Any, writer: str) -> None:
    """Decision 7, last sentence: own appends are taken under the lock, any other text is parsed again."""
    await backend.put_progression("p", json.dumps(IDS))
    staged = Staged(backend)
    async with foreign(backend) as other:

        async def append(name: str) -> None:
            if name != "admit" or staged.results("admit"):
                return
            if writer == "own":
                await state.append_to_progression("p", "x")
            elif writer == "foreign":
                await other.append("p", "x")
            else:
                await backend.execute("UPDATE progressions SET collection = :text", text=json.dumps([*IDS, "x"]) + " ")

        staged.before = append
        step = await ProgressionMigrationService(staged).step(**WHOLE)
    assert (1, 1, {}) == (step.admitted, step.cut_over, step.blocked)
    await assert_cut_over(backend, [*IDS, "x"])
    # PostgreSQL's jsonb spells an append as lionstate does.
    alike = writer == "own" or (writer == "foreign" and backend.is_postgresql)
    assert (0 if alike else 1) == step.text_retries


async def test_an_admission_of_another_value_judges_that(backend: Backend) -> None:
    await backend.put_progression("p", json.dumps(IDS))
    staged = Staged(backend)
    async with foreign(backend) as other:

        async def spoil(name: str) -> None:
            if name == "admit" and not staged.results("admit"):
                await other.replace("p", '{"a": 1}')

        staged.before = spoil
        step = await ProgressionMigrationService(staged).step(**WHOLE)
    assert ({"not_array": 1}, 0, 1) == (step.blocked, step.admitted, step.text_retries)


@pytest.mark.parametrize("act", ["append", "restore", "replace"])
async def test_a_block_is_proved_again_under_the_lock(backend: Backend, state: Any, act: str) -> None:
    await backend.put_progression("p", json.dumps(IDS))
    await service_of(backend).step(max_items=5, max_seconds=60)
    new = make_ids(7, first=900)
    staged = Staged(backend)
    async with foreign(backend) as other:
        await other.replace("p", json.dumps(IDS[:-1]))

        async def before(name: str) -> None:
            if name != "block" or staged.results("block"):
                return
            if act == "append":
                # The finding stands: the append itself finds it too.
                await state.append_to_progression("p", "ours")
            elif act == "restore":
                await other.replace("p", json.dumps(IDS) + " ")
            else:
                await state.set_progression("p", new)

        staged.before = before
        step = await ProgressionMigrationService(staged, accept_foreign_writers=True).step(**WHOLE)
    row = await state_of(backend)
    if act == "append":
        assert ("blocked", "json", "foreign_write") == (row["phase"], row["authority"], row["blocked_reason"])
        assert [*IDS[:-1], "ours"] == await state.get_progression("p")
        return
    assert (1, {}) == (step.cut_over, step.blocked)
    await assert_cut_over(backend, IDS if act == "restore" else new)


# What happens between the proof and the lock.


async def fenced(backend: Backend) -> None:
    """A store that has cut over before, so that the cutover stage runs once."""
    await backend.put_progression("first", "[]")
    await until_done(service_of(backend))


async def test_own_appends_after_the_proof_are_compared_under_the_lock(backend: Backend, state: Any) -> None:
    await fenced(backend)
    await backend.put_progression("p", json.dumps(IDS))

    async def append(_before: int) -> None:
        for number in range(3):
            await state.append_to_progression("p", f"late-{number}")

    step, staged, _ = await between(backend, append)
    (stage,) = staged.results("cutover")
    assert (StageOutcome.CUT_OVER, 23, True) == (stage.outcome, stage.count, stage.value_compared)
    assert (1, 0) == (step.cut_over, step.text_retries)
    await assert_cut_over(backend, [*IDS, "late-0", "late-1", "late-2"])


async def test_an_untouched_value_is_not_read_again(backend: Backend, state: Any) -> None:
    """Decision 7: with nothing changed, text and count are not read under the lock, whatever others append to."""
    await fenced(backend)
    await backend.put_progression("p", json.dumps(IDS))
    await backend.put_progression("large", json.dumps(make_ids(100)))

    async def append_elsewhere(_before: int) -> None:
        await state.append_to_progression("large", "x")

    staged = Staged(backend)
    staged.before = None
    service = ProgressionMigrationService(staged)

    async def before(name: str) -> None:
        if name == "cutover":
            await append_elsewhere(0)

    staged.before = before
    await service.step(progression_id="p", **WHOLE)
    (stage,) = staged.results("cutover")
    assert (StageOutcome.CUT_OVER, False) == (stage.outcome, stage.value_compared)
    await assert_cut_over(backend, IDS)


async def test_a_foreign_append_after_the_proof_is_not_lost(backend: Backend, state: Any) -> None:
    """Decision 7: unequal text only repeats the proof; the value then differs, and its JSON stays the authority."""
    await fenced(backend)
    await backend.put_progression("p", json.dumps(IDS))
    async with foreign(backend) as other:

        async def append(before: int) -> None:
            if before == 0:
                await other.append("p", "theirs")

        step, _, _ = await between(backend, append)
    # PostgreSQL's jsonb spells an append as lionstate does: its rows are missing, which the lock finds at once.
    retries = 0 if backend.is_postgresql else 1
    assert ({"foreign_write": 1}, retries, 0) == (step.blocked, step.text_retries, step.cut_over)
    assert [*IDS, "theirs"] == await state.get_progression("p")


async def test_a_foreign_append_that_looks_like_ours_is_not_taken_for_one(backend: Backend, state: Any) -> None:
    await fenced(backend)
    await backend.put_progression("p", json.dumps(IDS))
    async with foreign(backend) as other:

        async def append(_before: int) -> None:
            await other.replace("p", json.dumps([*IDS, "theirs"]))

        step, _, _ = await between(backend, append)
    assert ({"foreign_write": 1}, 0) == (step.blocked, step.cut_over)
    assert [*IDS, "theirs"] == await state.get_progression("p")


@pytest.mark.parametrize("way", ["transaction", "execute"])
async def test_raw_sql_is_not_taken_for_nothing(backend: Backend, state: Any, way: str) -> None:
    """The raw SQL of this very process moves neither data_version nor the allocator."""
    await fenced(backend)
    await backend.put_progression("p", json.dumps(IDS))

    async def write(before: int) -> None:
        if before == 0:
            sql = "UPDATE progressions SET collection = :text WHERE id = 'p'"
            text = json.dumps([*IDS[:-1], "changed"])
            if way == "execute":
                await state.execute(sql, {"text": text})
            else:
                await backend.execute(sql, text=text)

    step, _, _ = await between(backend, write)
    assert ({"digest_mismatch": 1}, 1, 0) == (step.blocked, step.text_retries, step.cut_over)


async def test_a_text_rendered_anew_is_proved_again(backend: Backend) -> None:
    await fenced(backend)
    await backend.put_progression("p", json.dumps(IDS))
    compact = json.dumps(IDS, separators=(",", ":"))
    async with foreign(backend) as other:

        async def render(before: int) -> None:
            if before < 2:
                await other.replace("p", compact + " " * before)

        step, _, _ = await between(backend, render, accept=True)
    assert (1, 2, {"match": 3}) == (step.cut_over, step.text_retries, step.verified)
    await assert_cut_over(backend, IDS)


async def test_a_text_that_never_rests_is_left_after_three_proofs(backend: Backend) -> None:
    await fenced(backend)
    await backend.put_progression("p", json.dumps(IDS))
    async with foreign(backend) as other:

        async def render(before: int) -> None:
            await other.replace("p", json.dumps(IDS) + " " * (before + 1))

        step, staged, _ = await between(backend, render)
    assert (StopReason.BUSY, 3, 3) == (step.stop_reason, step.text_retries, len(staged.results("cutover")))
    assert "dual" == (await state_of(backend))["phase"]
    service = ProgressionMigrationService(backend.direct.store, accept_foreign_writers=True)
    (step,) = await until_done(service)
    assert 1 == step.cut_over


async def test_more_own_appends_than_the_bound_are_proved_again(backend: Backend, state: Any) -> None:
    await fenced(backend)
    await backend.put_progression("p", json.dumps(IDS))
    late = make_ids(1_001, first=1_000)

    async def append(before: int) -> None:
        if before == 0:
            await asyncio.gather(*(state.append_to_progression("p", message_id) for message_id in late))

    step, _, _ = await between(backend, append)
    assert (1, 1) == (step.cut_over, step.text_retries)
    await assert_cut_over(backend, [*IDS, *late])


@pytest.mark.parametrize("code", ["count_mismatch", "digest_mismatch", "ordinal_mismatch"])
async def test_the_tail_is_compared_with_its_rows(backend: Backend, state: Any, code: str) -> None:
    await fenced(backend)
    await backend.put_progression("p", json.dumps(IDS))
    statements = {
        "count_mismatch": "DELETE FROM progression_items WHERE ordinal = 20",
        "digest_mismatch": "UPDATE progression_items SET message_id = 'other' WHERE ordinal = 20",
        "ordinal_mismatch": "UPDATE progression_items SET ordinal = 99 WHERE ordinal = 21",
    }

    async def tamper(_before: int) -> None:
        await state.append_to_progression("p", "late-0")
        await state.append_to_progression("p", "late-1")
        await backend.execute(statements[code])

    step, _, _ = await between(backend, tamper)
    assert ({code: 1}, 0) == (step.blocked, step.cut_over)


async def test_another_generation_is_read_again(backend: Backend) -> None:
    await fenced(backend)
    await backend.put_progression("p", json.dumps(IDS))

    async def redraw(before: int) -> None:
        if before == 0:
            await backend.execute("UPDATE progression_storage_state SET generation = 77 WHERE progression_id = 'p'")

    step, _, _ = await between(backend, redraw)
    assert (1, 1) == (step.cut_over, step.lost_races)
    assert 77 == (await state_of(backend))["generation"]


async def test_the_fence_refuses_foreign_writes_after_cutover(backend: Backend, state: Any) -> None:
    """Decision 21; the statements are those of LionAGI 0.36.0. A repeat that changes nothing passes."""
    await backend.put_progression("p", json.dumps(IDS))
    await until_done(service_of(backend))
    async with foreign(backend) as other:
        for write in (other.append("p", "theirs"), other.replace("p", "[]")):
            with pytest.raises(Exception, match="normalized"):
                await write
        await other.append("p", IDS[3])
    with pytest.raises(ConflictError):
        await backend.execute("UPDATE progressions SET collection = '[]' WHERE id = 'p'")
    assert IDS == await state.get_progression("p")
    await assert_cut_over(backend, IDS)


async def test_a_deleted_progression_is_forgotten(backend: Backend) -> None:
    """fault 17: deleted, shrunk and empty progressions during the copy."""
    await backend.put_progression("p", json.dumps(IDS))
    await backend.put_progression("q", json.dumps(IDS))
    service = service_of(backend)
    await service.step(progression_id="p", max_items=5, max_seconds=60)
    await backend.execute("DELETE FROM progressions WHERE id = 'p'")
    assert [] == await items_of(backend)
    await until_done(service)
    status = await service.status()
    assert ({"json": 0, "dual": 0, "items": 1, "blocked": 0}, 0, 1.0) == (
        status.phases,
        status.remaining_admitted_items,
        status.completion,
    )


async def test_a_shrunk_value_blocks_and_progress_stays_within_its_bounds(backend: Backend) -> None:
    """fault 17: never above all, never below nothing."""
    await backend.put_progression("p", json.dumps(IDS))
    service = service_of(backend)
    await service.step(max_items=5, max_seconds=60)
    async with foreign(backend) as other:
        await other.replace("p", json.dumps(IDS[:3]))
    seen = [await service.status()]
    (step,) = await until_done(service)
    seen.append(await service.status())
    assert {"foreign_write": 1} == step.blocked
    assert [15, 0] == [status.remaining_admitted_items for status in seen]
    assert [0.0, 1.0] == [status.completion for status in seen]
