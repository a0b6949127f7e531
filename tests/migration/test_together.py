"""Migration beside everything else: two services, writers, replacements, deletes (ADR-0117 D2, D5)."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from lionstate import StateDB
from lionstate.migration import ProgressionMigrationService, StopReason
from tests.support.backends import Backend
from tests.support.cutovers import cut_over_under_load
from tests.support.migration import (
    WHOLE,
    Staged,
    assert_cut_over,
    items_of,
    make_ids,
    rows_of_everything,
    service_of,
    state_of,
    until_done,
)


def again(backend: Backend) -> StateDB:
    """A second StateDB on the same store: another process, as far as the store can tell."""
    if backend.is_postgresql:
        return StateDB(url=backend.direct.url)
    return StateDB(backend.direct.path)


async def test_two_services_of_two_processes_share_the_work(backend: Backend) -> None:
    """ADR-0117 D5: one wins each chunk, the loser reads again; every row once; fault 33: cursors are integers."""
    ids = {f"p{n}": make_ids(400 + n, first=n * 1_000) for n in range(6)}
    for name, found in ids.items():
        await backend.put_progression(name, json.dumps(found))
    async with again(backend) as other:
        services = [service_of(backend), ProgressionMigrationService(other.store)]
        steps = await asyncio.gather(
            *(until_done(one, max_items=50, max_bytes=10**9, max_seconds=60) for one in services)
        )
    done = [step for found in steps for step in found]
    assert sum(map(len, ids.values())) == sum(step.items for step in done)
    assert (6, 6) == (sum(step.admitted for step in done), sum(step.cut_over for step in done))
    assert {} == {code: count for step in done for code, count in step.blocked.items()}
    for name, found in ids.items():
        await assert_cut_over(backend, found, name)


@pytest.mark.parametrize("stage", ["admit", "chunk", "cutover"])
async def test_the_loser_of_a_race_reads_again(backend: Backend, stage: str) -> None:
    ids = make_ids(30)
    await backend.put_progression("p", json.dumps(ids))
    winner, staged = service_of(backend), Staged(backend)

    async def before(name: str) -> None:
        if name == stage and not staged.results(stage):
            caps = {"admit": 1, "chunk": 10, "cutover": 100}
            await winner.step(progression_id="p", max_items=caps[stage], max_seconds=60)

    staged.before = before
    step = await ProgressionMigrationService(staged).step(**WHOLE)
    assert (StopReason.DONE, 1) == (step.stop_reason, step.lost_races)
    await assert_cut_over(backend, ids)


@pytest.mark.timeout(120)
async def test_nothing_is_lost_around_many_cutovers(backend: Backend) -> None:
    """fault 12, short: 8 writers, 12 cutovers of small progressions under load; in order per writer, once each."""
    await cut_over_under_load(backend, progressions=12, writers=8)


class _Clock:
    """A wall clock that goes back a second at every other look, and stands still in between."""

    def __init__(self) -> None:
        self.looks = 0

    def __call__(self) -> float:
        self.looks += 1
        return 1_700_000_000.0 - self.looks // 2


async def test_a_clock_that_goes_back_makes_nothing_stale(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    """fault 33: two services race on one progression under such a clock; each chunk is done once."""
    ids = make_ids(600)
    await backend.put_progression("p", json.dumps(ids))
    clock = _Clock()
    async with again(backend) as other:
        monkeypatch.setattr("time.time", clock)
        services = [service_of(backend), ProgressionMigrationService(other.store)]
        steps = await asyncio.gather(
            *(until_done(one, max_items=50, max_bytes=10**9, max_seconds=60) for one in services)
        )
        monkeypatch.undo()
    done = [step for found in steps for step in found]
    assert (600, 1) == (sum(step.items for step in done), sum(step.cut_over for step in done))
    assert clock.looks > 20
    await assert_cut_over(backend, ids)


@pytest.mark.parametrize("phase", ["json", "dual", "complete", "items", "blocked"])
async def test_a_replacement_keeps_the_phase_and_migration_goes_on(backend: Backend, state: Any, phase: str) -> None:
    """ADR-0117 D2, "Phase after set_progression": in each phase, also between a proof and its cutover."""
    old, new = make_ids(30), make_ids(25, first=500)
    text = "[1]" if phase == "blocked" else json.dumps(old)
    await backend.put_progression("p", text)
    staged = Staged(backend)
    service = ProgressionMigrationService(staged)
    if phase == "dual":
        await service.step(max_items=10, max_seconds=60)
    elif phase in ("items", "blocked"):
        await until_done(service)
    if phase == "complete":

        async def before(name: str) -> None:
            if name == "cutover" and not staged.results("cutover"):
                await state.set_progression("p", new)

        staged.before = before
    else:
        await state.set_progression("p", new)
        expected = {"json": None, "dual": "dual", "items": "items", "blocked": "blocked"}[phase]
        rows = await backend.rows("SELECT phase FROM progression_storage_state")
        assert ([] if expected is None else [expected]) == [row["phase"] for row in rows]
    await until_done(service)
    assert new == await state.get_progression("p")
    if phase == "blocked":
        assert "blocked" == (await state_of(backend))["phase"]
        assert [] == await items_of(backend)
    else:
        await assert_cut_over(backend, new)
    await state.append_to_progression("p", "tail")
    assert [*new, "tail"] == await state.get_progression("p")


async def test_a_replacement_between_two_chunks_starts_the_copy_again(backend: Backend, state: Any) -> None:
    await backend.put_progression("p", json.dumps(make_ids(30)))
    new = make_ids(45, first=500)
    staged = Staged(backend)

    async def after(name: str, _result: Any) -> None:
        if name == "chunk" and len(staged.results("chunk")) == 1:
            await state.set_progression("p", new)

    staged.after = after
    service = ProgressionMigrationService(staged)
    await service.step(max_items=10, max_seconds=60)
    step = await service.step(**WHOLE)
    assert (StopReason.DONE, 45) == (step.stop_reason, step.items)
    await assert_cut_over(backend, new)


async def test_a_replacement_of_a_rolled_back_one_takes_its_rows_along(backend: Backend, state: Any) -> None:
    await backend.put_progression("p", json.dumps(make_ids(30)))
    service = service_of(backend)
    await service.step(max_items=10, max_seconds=60)
    await service.rollback("p")
    await state.set_progression("p", ["a", "b"])
    await service.release("p")
    await until_done(service)
    await assert_cut_over(backend, ["a", "b"])


async def test_deleted_progressions_are_cleared_in_chunks(backend: Backend, state: Any) -> None:
    """Decision 18: a tombstone's rows go in chunks, the parent last; a pause holds that too."""
    ids = make_ids(5_200)
    await backend.put_progression("p", json.dumps(ids))
    service = service_of(backend)
    await until_done(service)
    assert await state.delete_progression("p")
    assert [] == await state.get_progression("p")
    await service.pause()
    before = await rows_of_everything(backend)
    assert StopReason.PAUSED == (await service.step(max_seconds=60)).stop_reason
    assert before == await rows_of_everything(backend)
    await service.resume()
    step = await service.step(**WHOLE)
    assert (StopReason.DONE, 5_200) == (step.stop_reason, step.removed_items)
    assert ([], []) == (await items_of(backend), await backend.rows("SELECT id FROM progressions"))
    assert 0 == sum((await service.status()).phases.values())


async def test_compat_read_after_a_migration_equals_the_item_read(backend: Backend, state: Any) -> None:
    """ADR-0117 D6: frozen prefix and tail are the authoritative read."""
    ids = make_ids(30)
    await backend.put_progression("p", json.dumps(ids))
    service = service_of(backend)
    await service.step(max_items=10, max_seconds=60)
    await state.append_to_progression("p", "dual")
    await until_done(service)
    for number in range(3):
        await state.append_to_progression("p", f"tail-{number}")
    whole = await state.get_progression("p")
    await service.set_compat_read("p", True)
    assert whole == await state.get_progression("p")
    await service.set_compat_read("p", False)
    await service.set_compat_read_everywhere(True)
    assert whole == await state.get_progression("p") == [*ids, "dual", "tail-0", "tail-1", "tail-2"]
