"""``verify()`` in every phase: it tells, and changes nothing (ADR-0117 D5; decision 6; fault 8)."""

from __future__ import annotations

import asyncio
import dataclasses
import json
from typing import Any

import pytest

from lionstate.errors import InvalidInputError, NotFoundError
from lionstate.migration import ProgressionMigrationService, StopReason, VerificationOutcome
from lionstate.migration import verification as proofs
from lionstate.progression.digest import digest_of
from tests.support.backends import Backend
from tests.support.migration import (
    Staged,
    foreign,
    make_ids,
    rows_of_everything,
    service_of,
    until_done,
)

IDS = make_ids(30)
MATCH, MISMATCH, INCOMPLETE, NOT_APPLICABLE = (
    VerificationOutcome.MATCH,
    VerificationOutcome.MISMATCH,
    VerificationOutcome.INCOMPLETE,
    VerificationOutcome.NOT_APPLICABLE,
)


async def phases(backend: Backend) -> list[str]:
    """One progression in each phase, named after it."""
    service = service_of(backend)
    for name in ("json", "dual", "items", "none"):
        await backend.put_progression(name, json.dumps(IDS))
    await backend.put_progression("blocked", "[1]")
    await service.step(progression_id="items", max_items=100, max_seconds=60)
    await service.step(progression_id="none", max_items=100, max_seconds=60)
    await service.step(progression_id="blocked", max_seconds=60)
    await service.step(progression_id="dual", max_items=10, max_seconds=60)
    await backend.execute(
        "UPDATE progression_storage_state SET phase = 'blocked', authority = 'none',"
        " blocked_reason = 'digest_mismatch' WHERE progression_id = 'none'"
    )
    return ["json", "dual", "items", "blocked", "none"]


async def test_each_phase_has_its_answer_and_nothing_changes(backend: Backend) -> None:
    names = await phases(backend)
    before = await rows_of_everything(backend)
    service = service_of(backend)
    found = {name: await service.verify(name) for name in names}
    assert {
        "json": ("json", NOT_APPLICABLE, None),
        "dual": ("dual", INCOMPLETE, None),
        "items": ("items", MATCH, None),
        "blocked": ("blocked", NOT_APPLICABLE, "non_string"),
        "none": ("blocked", MATCH, None),
    } == {name: (one.phase, one.outcome, one.code) for name, one in found.items()}
    assert (30, 30) == (found["items"].json_count, found["items"].items_count)
    assert {digest_of(IDS)} == {found["items"].json_digest, found["items"].items_digest, found["json"].json_digest}
    assert 10 == found["dual"].items_count
    with pytest.raises(NotFoundError):
        await service.verify("missing")
    assert before == await rows_of_everything(backend)


@pytest.mark.parametrize("name", ["json", "dual", "items", "blocked", "none"])
async def test_a_verification_cut_short_leaves_no_trace(backend: Backend, name: str) -> None:
    """fault 8: killed at each of its reads."""
    await phases(backend)
    before = await rows_of_everything(backend)
    for reads in range(1, 5):
        staged = Staged(backend)
        reached = asyncio.Event()

        async def hang(reads: int = reads, staged: Staged = staged, reached: asyncio.Event = reached) -> None:
            if staged.reads == reads:
                reached.set()
                await asyncio.Event().wait()

        staged.after_read = hang
        task = asyncio.ensure_future(ProgressionMigrationService(staged).verify(name))
        waiting = asyncio.ensure_future(reached.wait())
        await asyncio.wait([task, waiting], return_when=asyncio.FIRST_COMPLETED)
        for one in (task, waiting):
            one.cancel()
        await asyncio.wait([task, waiting])
    assert before == await rows_of_everything(backend)


async def test_a_complete_copy_is_compared_whole(backend: Backend, state: Any) -> None:
    await backend.put_progression("p", json.dumps(IDS))
    service = service_of(backend)
    await service.step(max_items=29, max_seconds=60)
    await state.append_to_progression("p", "tail")
    found = await service.verify("p")
    assert (INCOMPLETE, 31, 30) == (found.outcome, found.json_count, found.items_count)
    await service.pause()
    await backend.execute("INSERT INTO progression_items SELECT 'p', 29, :mid WHERE 1 = 1", mid=IDS[29])
    await backend.execute("UPDATE progression_storage_state SET backfill_next = 30")
    found = await service.verify("p")
    assert (MATCH, 31, 31) == (found.outcome, found.json_count, found.items_count)


@pytest.mark.parametrize(
    ("sql", "code", "first"),
    [
        ("UPDATE progression_items SET message_id = 'other' WHERE ordinal = 3", "digest_mismatch", 3),
        ("DELETE FROM progression_items WHERE ordinal = 3", "count_mismatch", 3),
    ],
)
async def test_what_was_copied_wrong_is_named(backend: Backend, sql: str, code: str, first: int) -> None:
    await backend.put_progression("p", json.dumps(IDS))
    await service_of(backend).step(max_items=10, max_seconds=60)
    await backend.execute(sql)
    found = await service_of(backend).verify("p")
    assert (MISMATCH, code, first) == (found.outcome, found.code, found.first_difference)


@pytest.mark.parametrize(
    ("sql", "code", "first"),
    [
        ("UPDATE progression_items SET message_id = 'other' WHERE ordinal = 3", "digest_mismatch", 3),
        ("DELETE FROM progression_items WHERE ordinal = 29", "count_mismatch", 29),
        ("DELETE FROM progression_items WHERE ordinal = 3", "count_mismatch", 3),
        ("DELETE FROM progression_items WHERE ordinal = 30", "allocator_mismatch", 30),
        ("UPDATE progression_items SET ordinal = 40 WHERE ordinal = 30", "ordinal_mismatch", 30),
        ("UPDATE progression_storage_state SET next_ordinal = 33", "allocator_mismatch", 31),
        ("UPDATE progression_storage_state SET source_digest = 'x'", "digest_mismatch", None),
    ],
)
async def test_after_cutover_rows_and_records_are_compared(
    backend: Backend, state: Any, sql: str, code: str, first: int | None
) -> None:
    await backend.put_progression("p", json.dumps(IDS))
    await until_done(service_of(backend))
    await state.append_to_progression("p", "tail")
    assert MATCH == (await service_of(backend).verify("p")).outcome
    await backend.execute(sql)
    found = await service_of(backend).verify("p")
    assert (MISMATCH, code, first) == (found.outcome, found.code, found.first_difference)


async def test_a_foreign_append_past_the_fence_is_seen(backend: Backend) -> None:
    await backend.put_progression("p", json.dumps(IDS))
    await until_done(service_of(backend))
    await backend.execute("UPDATE progression_storage_state SET replacing = 1")
    async with foreign(backend) as other:
        await other.append("p", "theirs")
    found = await service_of(backend).verify("p")
    assert (MISMATCH, "foreign_write", 31) == (found.outcome, found.code, found.json_count)


async def test_a_proof_longer_than_a_step_goes_on_in_the_next(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """fault 19: what was read stays read; every step reads at least one page."""
    monkeypatch.setattr(proofs, "PAGE_ROWS", 100)
    ids = make_ids(1_000)
    await backend.put_progression("p", json.dumps(ids))
    staged = Staged(backend)
    pages = 0
    plain = proofs.read_page

    def read_page(conn: Any, /, progression_id: str, after: int, before: int) -> Any:
        nonlocal pages
        pages += 1
        return plain(conn, progression_id, after, before)

    monkeypatch.setattr(proofs, "read_page", read_page)
    service = ProgressionMigrationService(staged)
    await service.step(progression_id="p", max_items=999, max_seconds=60)
    reasons = []
    for _ in range(30):
        step = await service.step(progression_id="p", max_seconds=1e-9)
        reasons.append(step.stop_reason)
        if step.stop_reason == StopReason.DONE:
            break
    assert StopReason.DONE == reasons[-1]
    assert 10 == pages
    assert reasons.count(StopReason.CAP_SECONDS) >= 9


async def test_a_verification_goes_on_where_it_was_cut_short(
    backend: Backend, state: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """fault 8: by another process, from the token alone; after a replacement it begins anew."""
    monkeypatch.setattr("lionstate.migration.walk._ROWS", 10)
    await backend.put_progression("p", json.dumps(IDS))
    await until_done(service_of(backend))
    reads, token, found = 0, None, None
    for _ in range(10):
        staged = Staged(backend)
        found = await ProgressionMigrationService(staged).verify("p", after=token, max_seconds=1e-9)
        reads += staged.reads - 1
        token = found.token
        if token is None:
            break
        assert (INCOMPLETE, None) == (found.outcome, found.code)
    assert found is not None
    assert (MATCH, 30, 30, 4) == (found.outcome, found.json_count, found.items_count, reads)
    first = (await service_of(backend).verify("p", max_seconds=1e-9)).token
    await state.set_progression("p", make_ids(25, first=100))
    await backend.execute("UPDATE progression_items SET message_id = 'x' WHERE ordinal = 2")
    found = await service_of(backend).verify("p", after=first)
    assert (MISMATCH, "digest_mismatch", 2) == (found.outcome, found.code, found.first_difference)
    for token in ("7", "7:-", "7:1:1", f"7:{'9' * 5000}"):
        with pytest.raises(InvalidInputError):
            await service_of(backend).verify("p", after=token)


CHANGED = json.dumps(["another", *IDS[1:]])
DAMAGED = {
    "two rows": ("UPDATE progression_items SET message_id = 'x' WHERE ordinal IN (2, 25)", None),
    "a row, another missing": (
        "UPDATE progression_items SET message_id = 'x' WHERE ordinal = 2;"
        "DELETE FROM progression_items WHERE ordinal = 25",
        None,
    ),
    "the JSON": ("UPDATE progression_items SET message_id = message_id WHERE ordinal = 2", CHANGED),
    "the JSON and a row behind": ("UPDATE progression_items SET message_id = 'x' WHERE ordinal = 25", CHANGED),
}


@pytest.mark.parametrize("name", DAMAGED)
async def test_a_difference_before_the_cut_does_not_hide_what_is_behind_it(
    backend: Backend, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Cut short it says what it read and goes on; the last word is that of a verification that was not cut."""
    monkeypatch.setattr("lionstate.migration.walk._ROWS", 10)
    await backend.put_progression("p", json.dumps(IDS))
    await until_done(service_of(backend))
    sql, text = DAMAGED[name]
    if text is not None:
        await backend.execute("UPDATE progression_storage_state SET replacing = 1")
        await backend.execute("UPDATE progressions SET collection = :text WHERE id = 'p'", text=text)
    for statement in (*sql.split(";"), "UPDATE progression_storage_state SET replacing = 0"):
        await backend.execute(statement)
    whole = await service_of(backend).verify("p")
    assert (MISMATCH, None) == (whole.outcome, whole.token)
    token, cut = None, []
    for _ in range(10):
        found = await service_of(backend).verify("p", after=token, max_seconds=1e-9)
        if (token := found.token) is None:
            break
        cut.append(found)
    assert {MISMATCH} == {one.outcome for one in cut}
    assert [10 * (at + 1) for at in range(len(cut))] == [one.items_count for one in cut]
    assert whole == dataclasses.replace(found, items_digest=whole.items_digest)


async def test_two_decoders_that_disagree_are_a_finding(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    """fault 53: neither is believed, in any phase."""
    await phases(backend)
    monkeypatch.setattr(proofs, "digest_again", str)
    service = service_of(backend)
    found = {name: (await service.verify(name)).code for name in ("json", "dual", "items")}
    assert {"malformed_json"} == set(found.values())
    await backend.put_progression("other", json.dumps(IDS))
    await service.step(progression_id="other", max_items=100, max_seconds=60)
    assert "malformed_json" == (await service.explain("other")).blocked_code
