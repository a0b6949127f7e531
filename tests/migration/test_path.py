"""From json to items: admission, chunks, cutover, and what each records (ADR-0117 D3; decisions 7, 17, 36)."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from lionstate.errors import InvalidInputError, NotFoundError
from lionstate.migration import StopReason
from lionstate.progression.digest import digest_of
from lionstate.schema import fence_exists
from tests.support.backends import Backend
from tests.support.collection_texts import VECTORS
from tests.support.migration import (
    WHOLE,
    Staged,
    assert_cut_over,
    items_of,
    make_ids,
    service_of,
    state_of,
    until_done,
)


async def put(backend: Backend, ids: list[str], progression_id: str = "p") -> None:
    await backend.put_progression(progression_id, json.dumps(ids))


async def test_a_progression_goes_from_json_to_items(backend: Backend, state: Any) -> None:
    ids = make_ids(1_203)
    await put(backend, ids)
    service = service_of(backend)

    first = await service.step(max_items=500, max_seconds=60)
    assert (StopReason.CAP_ITEMS, 1, 1_203, 500, 1) == (
        first.stop_reason,
        first.admitted,
        first.admitted_items,
        first.items,
        first.chunks,
    )
    assert 500 * 32 == first.size_bytes
    row = await state_of(backend)
    assert ("dual", "json", 1_203, 500, 1_203) == (
        row["phase"],
        row["authority"],
        row["source_count"],
        row["backfill_next"],
        row["next_ordinal"],
    )
    await state.append_to_progression("p", "tail-1")
    assert [*ids, "tail-1"] == await state.get_progression("p")

    last = (await until_done(service))[-1]
    assert (StopReason.DONE, 1, {"match": 1}) == (last.stop_reason, last.cut_over, last.verified)
    await assert_cut_over(backend, [*ids, "tail-1"])
    await state.append_to_progression("p", "tail-2")
    await state.append_to_progression("p", ids[7])
    assert [*ids, "tail-1", "tail-2"] == await state.get_progression("p")
    assert StopReason.NOTHING_TO_DO == (await service.step(max_seconds=60)).stop_reason

    events = await backend.rows("SELECT action, actor, details FROM admin_events ORDER BY created_at")
    actions = ["progression_migrate.admit", "progression_migrate.fence.installed", "progression_migrate.cutover"]
    assert sorted(actions) == sorted(event["action"] for event in events)
    assert {"test"} == {event["actor"] for event in events}
    assert not any(found in str(events) for found in (ids[0], "tail-1"))


async def test_the_fence_comes_with_the_first_cutover_and_not_before(backend: Backend) -> None:
    await put(backend, ["a"])
    service = service_of(backend)
    assert not await backend.direct.store.read(fence_exists)
    await service.step(max_items=1, max_seconds=1e-9)
    assert not await backend.direct.store.read(fence_exists)
    await until_done(service)
    assert await backend.direct.store.read(fence_exists)


@pytest.mark.parametrize("ids", [[], [""], ["a"], ["a", "b", "a", "a"], ["é", "😀", "\x7f"]], ids=len)
async def test_small_and_repeating_collections_migrate_as_they_are(
    backend: Backend, state: Any, ids: list[str]
) -> None:
    await put(backend, ids)
    await until_done(service_of(backend))
    await assert_cut_over(backend, ids)
    assert ids == await state.get_progression("p")


async def test_one_transaction_copies_at_most_500_elements(backend: Backend) -> None:
    """fault 20: the first chunk has the configured size; no caps of a step make a chunk larger."""
    await put(backend, make_ids(1_100))
    staged = Staged(backend)
    service = type(service_of(backend))(staged)
    step = await service.step(**WHOLE)
    assert [500, 500, 100] == [stage.count for stage in staged.results("chunk")]
    assert (1_100, 3, StopReason.DONE) == (step.items, step.chunks, step.stop_reason)


async def test_every_cap_ends_a_step_and_the_next_one_goes_on(backend: Backend) -> None:
    ids = make_ids(40)
    await put(backend, ids)
    service = service_of(backend)
    assert (7, StopReason.CAP_ITEMS) == _told(await service.step(max_items=7, max_seconds=60))
    # Five ids of 32 bytes fit into 170.
    assert (5, StopReason.CAP_BYTES) == _told(await service.step(max_bytes=170, max_seconds=60))
    assert (1, StopReason.CAP_BYTES) == _told(await service.step(max_bytes=1, max_seconds=60))
    step = await service.step(max_seconds=1e-9)
    assert StopReason.CAP_SECONDS == step.stop_reason
    await until_done(service, max_items=7, max_bytes=170, max_seconds=1e-9)
    await assert_cut_over(backend, ids)


def _told(step: Any) -> tuple[int, StopReason]:
    return step.items, step.stop_reason


@pytest.mark.parametrize("caps", [{"max_items": 0}, {"max_bytes": 0}, {"max_seconds": 0}, {"max_items": -1}])
async def test_caps_that_forbid_everything_are_refused(backend: Backend, caps: dict[str, Any]) -> None:
    with pytest.raises(InvalidInputError):
        await service_of(backend).step(**caps)


async def test_a_step_on_a_missing_progression_says_so(backend: Backend) -> None:
    with pytest.raises(NotFoundError):
        await service_of(backend).step(progression_id="missing", max_seconds=60)


async def test_a_step_can_be_told_its_progression(backend: Backend) -> None:
    await put(backend, ["a"], "small")
    await put(backend, make_ids(30), "large")
    service = service_of(backend)
    step = await service.step(progression_id="large", max_seconds=60)
    assert (StopReason.DONE, 1) == (step.stop_reason, step.cut_over)
    await assert_cut_over(backend, make_ids(30), "large")
    assert [] == await items_of(backend, "small")
    assert StopReason.NOTHING_TO_DO == (await service.step(progression_id="large", max_seconds=60)).stop_reason


async def test_the_smallest_goes_first_and_what_is_begun_is_finished(backend: Backend) -> None:
    for name, count in (("a", 90), ("b", 10), ("c", 50)):
        await put(backend, make_ids(count), name)
    staged = Staged(backend)
    service = type(service_of(backend))(staged)
    await service.step(progression_id="a", max_items=60, max_seconds=60)
    await service.step(**WHOLE)
    admitted = [event["target_id"] for event in await _events(backend, "admit")]
    cut = [event["target_id"] for event in await _events(backend, "cutover")]
    assert (["a", "b", "c"], ["a", "b", "c"]) == (admitted, cut)


async def _events(backend: Backend, action: str) -> list[dict[str, Any]]:
    return await backend.rows(
        "SELECT target_id FROM admin_events WHERE action = :action ORDER BY created_at",
        action=f"progression_migrate.{action}",
    )


async def test_progressions_that_come_later_are_found(backend: Backend) -> None:
    service = service_of(backend)
    assert StopReason.NOTHING_TO_DO == (await service.step(max_seconds=60)).stop_reason
    await put(backend, ["a"])
    assert StopReason.DONE == (await service.step(max_seconds=60)).stop_reason
    await assert_cut_over(backend, ["a"])


def _storable(backend: Backend, text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return not (backend.is_postgresql and "\0" in text)


@pytest.mark.parametrize("vector", VECTORS, ids=[vector["name"] for vector in VECTORS])
async def test_vectors_have_their_verdict_at_admission(backend: Backend, vector: dict[str, Any]) -> None:
    """faults 50, 53: one verdict on both backends, before any row is copied; the value is never rewritten."""
    text = vector["text"]
    if not _storable(backend, text):
        with pytest.raises(InvalidInputError):
            await backend.put_progression("p", text)
        return
    await backend.put_progression("p", text)
    step = await service_of(backend).step(progression_id="p", **WHOLE)
    row = await state_of(backend)
    (stored,) = await backend.rows("SELECT collection FROM progressions WHERE id = 'p'")
    assert text == stored["collection"]
    if vector["code"] is None:
        assert ("items", None, vector["count"], vector["digest"]) == (
            row["phase"],
            row["blocked_reason"],
            row["frozen_count"],
            row["items_digest"],
        )
        assert StopReason.DONE == step.stop_reason
    else:
        assert ("blocked", "json", vector["code"]) == (row["phase"], row["authority"], row["blocked_reason"])
        assert ({vector["code"]: 1}, StopReason.BLOCKED) == (step.blocked, step.stop_reason)
        assert [] == await items_of(backend)


async def test_a_blocked_one_stops_nothing_else(backend: Backend, state: Any) -> None:
    """fault 50: 90,000 good ids and one with an escaped NUL; a lone surrogate; a good pair."""
    good = make_ids(90_000)
    await backend.put_progression("nul", json.dumps([*good, "a\0"]))
    await backend.put_progression("lone", '["\\ud83d"]')
    await backend.put_progression("pair", '["\\ud83d\\ude00"]')
    (step,) = await until_done(service_of(backend))
    assert {"nul_in_id": 1, "lone_surrogate": 1} == step.blocked
    await assert_cut_over(backend, ["😀"], "pair")
    assert [] == await items_of(backend, "nul")
    await state.append_to_progression("nul", "b")
    assert [*good, "a\0", "b"] == await state.get_progression("nul")
    found = await service_of(backend).blocked()
    assert {("nul", "nul_in_id"), ("lone", "lone_surrogate")} == {(one.progression_id, one.code) for one in found}


async def test_long_ids_migrate_as_far_as_the_database_holds_them(backend: Backend, state: Any) -> None:
    """fault 55: an id of 3,000 bytes at position 600 is found before anything is copied, or migrates."""
    ids = [*make_ids(600), "é" * 1_500, "z"]
    await put(backend, ids)
    await until_done(service_of(backend))
    if backend.is_postgresql:
        row = await state_of(backend)
        assert ("blocked", "json", "id_too_long") == (row["phase"], row["authority"], row["blocked_reason"])
        assert [] == await items_of(backend)
        with pytest.raises(InvalidInputError):
            await state.append_to_progression("p", "x" * 3_000)
    else:
        await assert_cut_over(backend, ids)


async def test_the_byte_cap_of_a_chunk_never_stops_the_copy(backend: Backend) -> None:
    """fault 55: one id of 5 MiB is copied alone; 501 ids of 8 kB take two chunks for their bytes."""
    if backend.is_postgresql:
        ids = ["x" * 2_000 for _ in range(501)]
        await put(backend, ids)
        await until_done(service_of(backend))
        await assert_cut_over(backend, ids)
        return
    huge = ["a", "b" * (5 * 1024 * 1024), "c"]
    many = [f"{number:08}" * 1_024 for number in range(600)]
    await put(backend, huge, "huge")
    await put(backend, many, "many")
    staged = Staged(backend)
    await until_done(type(service_of(backend))(staged))
    await assert_cut_over(backend, huge, "huge")
    await assert_cut_over(backend, many, "many")
    sizes = [stage.size_bytes for stage in staged.results("chunk")]
    assert all(size <= 4 * 1024 * 1024 or size == 5 * 1024 * 1024 for size in sizes)
    assert [1, 1, 1] == [stage.count for stage in staged.results("chunk") if stage.count < 3]


async def test_what_is_no_text_blocks_and_crashes_nothing(backend: Backend) -> None:
    """fault 56: a collection stored as BLOB text, as UTF-16 bytes, as a number, as text that is no UTF-8."""
    if backend.is_postgresql:
        for value in (b'["a"]', 5):
            with pytest.raises(InvalidInputError):
                await backend.put_progression("p", value)
        return
    values = {"blob": b'["a"]', "utf16": '["a"]'.encode("utf-16"), "number": 5}
    for name, value in values.items():
        await backend.put_progression(name, value)
    await backend.put_progression("bytes", "[]")
    await backend.execute("UPDATE progressions SET collection = CAST(x'5BFF5D' AS TEXT) WHERE id = 'bytes'")
    # The column has text affinity: a number becomes text, and is then no array.
    (step,) = await until_done(service_of(backend))
    assert {"not_text": 3, "not_array": 1} == step.blocked


async def test_rows_that_no_state_explains_block(backend: Backend) -> None:
    """Decision 22: neither representation can be told to be the right one."""
    await put(backend, ["a"])
    await backend.execute("INSERT INTO progression_items VALUES ('p', 0, 'a')")
    (step,) = await until_done(service_of(backend))
    row = await state_of(backend)
    assert {"orphan_items": 1} == step.blocked
    assert ("blocked", "none", "orphan_items") == (row["phase"], row["authority"], row["blocked_reason"])


async def test_a_value_is_parsed_once_a_migration(backend: Backend) -> None:
    await put(backend, make_ids(2_000))
    service = service_of(backend)
    await until_done(service, max_items=100, max_bytes=10**9, max_seconds=60)
    assert 0 == service._memory.parses
    await put(backend, make_ids(2_000), "q")
    await service.step(max_items=100, max_seconds=60)
    again = service_of(backend)
    await until_done(again, max_items=100, max_bytes=10**9, max_seconds=60)
    assert 1 == again._memory.parses


async def test_a_restart_after_every_chunk_ends_in_the_same_digest(backend: Backend, state: Any) -> None:
    """ADR-0117 D6: a new service after each chunk boundary; appends go on meanwhile."""
    ids = make_ids(60)
    await put(backend, ids)
    tail = []
    for number in range(100):
        step = await service_of(backend).step(max_items=7, max_seconds=60)
        assert 7 >= step.items
        if step.stop_reason == StopReason.DONE:
            break
        tail.append(f"tail-{number}")
        await state.append_to_progression("p", tail[-1])
    await assert_cut_over(backend, [*ids, *tail])
    assert digest_of([*ids, *tail]) == (await state_of(backend))["items_digest"]
    assert 8 == len(tail)


async def test_backfill_ends_at_the_admission_boundary(backend: Backend, state: Any) -> None:
    """fault 2: appends during the copy never add to what remains, and each is there once."""
    ids = make_ids(3_000)
    await put(backend, ids)
    service = service_of(backend)
    written: list[str] = []
    stop = asyncio.Event()

    async def append() -> None:
        while not stop.is_set():
            await state.append_to_progression("p", f"live-{len(written)}")
            written.append(f"live-{len(written)}")

    assert 500 == (await service.step(max_items=500, max_seconds=30)).items
    writer = asyncio.ensure_future(append())
    remaining = []
    while (step := await service.step(max_items=500, max_seconds=30)).stop_reason == StopReason.CAP_ITEMS:
        remaining.append((await service.status()).remaining_admitted_items)
    stop.set()
    await writer
    assert StopReason.DONE == step.stop_reason
    assert remaining == sorted(remaining, reverse=True) and [2_000, 500] == [remaining[0], remaining[-1]]
    assert [*ids, *written] == await state.get_progression("p")
