"""The scrubber: whatever is wrong after a cutover is found within one pass (decisions 2, 21, 22; ADR-0117 D3, D4)."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from lionstate.errors import BlockedCode, NotFoundError, PrefixGapError, ProgressionBlockedError
from lionstate.migration import ProgressionMigrationService, ScrubSlice, VerificationOutcome
from tests.support.backends import Backend
from tests.support.migration import (
    IDS,
    Staged,
    copied,
    foreign,
    items_of,
    make_ids,
    rows_of_everything,
    service_of,
    state_of,
    until_done,
)

TAIL = ["tail one", "tail two", "tail three"]
ALL = [*IDS, *TAIL]
UNFENCE = "UPDATE progression_storage_state SET replacing = 1 WHERE progression_id = 'p'"
FENCE = "UPDATE progression_storage_state SET replacing = 0 WHERE progression_id = 'p'"
CHANGED = json.dumps(["changed", *IDS[1:]])


async def cut_over(backend: Backend, state: Any) -> None:
    """A progression in items with a tail, and two beside it."""
    for name in ("a", "p", "z"):
        await backend.put_progression(name, json.dumps(IDS))
    await until_done(service_of(backend))
    for found in TAIL:
        await state.append_to_progression("p", found)


async def rewrite(backend: Backend, text: str) -> None:
    """What a program does that gets past the fence."""
    await backend.execute(UNFENCE)
    async with foreign(backend) as other:
        await other.replace("p", text)
    await backend.execute(FENCE)


async def whole_pass(service: ProgressionMigrationService, **caps: Any) -> list[ScrubSlice]:
    """Slices until the pass has ended."""
    found = []
    for at in range(1_000):
        found.append(await service.scrub(restart=at == 0, **{"max_seconds": 60.0, **caps}))
        if found[-1].pass_ended:
            return found
    raise AssertionError("the pass does not end")


async def verdict(backend: Backend) -> tuple[Any, ...]:
    """Phase, authority, code and compat read of ``p``."""
    row = await state_of(backend)
    return row["phase"], row["authority"], row["blocked_reason"], bool(row["compat_read"])


GOOD = ("items", "items", None, False)

# name: SQL, the new text, expected state, whether reads and appends work
CORRUPTIONS: dict[str, tuple[str | None, str | None, str, str, bool]] = {
    "row missing": (
        "DELETE FROM progression_items WHERE progression_id = 'p' AND ordinal = 7",
        None,
        "count_mismatch",
        "items",
        True,
    ),
    "row altered": (
        "UPDATE progression_items SET message_id = 'x' WHERE progression_id = 'p' AND ordinal = 7",
        None,
        "digest_mismatch",
        "items",
        True,
    ),
    "ordinal moved": (
        "UPDATE progression_items SET ordinal = -5 WHERE progression_id = 'p' AND ordinal = 7",
        None,
        "count_mismatch",
        "items",
        True,
    ),
    "row below 0": (
        "INSERT INTO progression_items VALUES ('p', -5, 'x')",
        None,
        "count_mismatch",
        "items",
        True,
    ),
    "gap in the tail": (
        "DELETE FROM progression_items WHERE progression_id = 'p' AND ordinal = 21",
        None,
        "count_mismatch",
        "none",
        False,
    ),
    "end missing": (
        "DELETE FROM progression_items WHERE progression_id = 'p' AND ordinal = 22",
        None,
        "allocator_mismatch",
        "none",
        False,
    ),
    "ordinal of the tail moved": (
        "UPDATE progression_items SET ordinal = 40 WHERE progression_id = 'p' AND ordinal = 22",
        None,
        "ordinal_mismatch",
        "none",
        False,
    ),
    "row too many": ("INSERT INTO progression_items VALUES ('p', 23, 'x')", None, "allocator_mismatch", "none", False),
    "row far behind": ("INSERT INTO progression_items VALUES ('p', 99, 'x')", None, "count_mismatch", "none", False),
    "allocator high": (
        "UPDATE progression_storage_state SET next_ordinal = 25 WHERE progression_id = 'p'",
        None,
        "allocator_mismatch",
        "none",
        False,
    ),
    "allocator low": (
        "UPDATE progression_storage_state SET next_ordinal = 21 WHERE progression_id = 'p'",
        None,
        "allocator_mismatch",
        "none",
        False,
    ),
    "record of the rows": (
        "UPDATE progression_storage_state SET items_digest = 'x' WHERE progression_id = 'p'",
        None,
        "digest_mismatch",
        "items",
        True,
    ),
    "record of the JSON": (
        "UPDATE progression_storage_state SET source_digest = 'x' WHERE progression_id = 'p'",
        None,
        "digest_mismatch",
        "items",
        True,
    ),
    "JSON changed": (None, CHANGED, "foreign_write", "items", True),
    "JSON appended to": (None, json.dumps([*IDS, "theirs"]), "foreign_write", "items", True),
    "JSON of the same length": (None, json.dumps(["f" * 32, *IDS[1:]]), "foreign_write", "items", True),
    "JSON cut off": (None, json.dumps(IDS[:4]), "foreign_write", "items", True),
    "JSON spelled otherwise": (None, json.dumps(IDS, separators=(",", ":")), "foreign_write", "items", True),
    "JSON truncated": (None, json.dumps(IDS)[:-40], "foreign_write", "items", True),
    "JSON no array": (None, "{}", "foreign_write", "items", True),
    "both changed": (
        "UPDATE progression_items SET message_id = 'x' WHERE progression_id = 'p' AND ordinal = 7",
        CHANGED,
        "digest_mismatch",
        "none",
        False,
    ),
    "row missing, JSON appended to": (
        "DELETE FROM progression_items WHERE progression_id = 'p' AND ordinal = 7",
        json.dumps([*IDS, "theirs"]),
        "count_mismatch",
        "items",
        True,
    ),
}
COMPAT = {
    "row below 0",
    "row missing",
    "row altered",
    "ordinal moved",
    "record of the rows",
    "row missing, JSON appended to",
}
# The first place where they differ, for those of the JSON.
DIFFERENCES = {
    "JSON changed": 0,
    "JSON appended to": 20,
    "JSON of the same length": 0,
    "JSON cut off": 4,
    "JSON spelled otherwise": None,
    "JSON truncated": None,
    "both changed": 0,
    "row missing, JSON appended to": 7,
}


@pytest.mark.parametrize("name", CORRUPTIONS)
async def test_each_corruption_is_found_in_one_pass_and_read_by_what_is_good(
    backend: Backend, state: Any, name: str
) -> None:
    """fault 23, decision 2: code, authority, compat read, and what readers and writers get then."""
    sql, text, code, authority, works = CORRUPTIONS[name]
    await cut_over(backend, state)
    assert [{}] == [one.findings for one in await whole_pass(service_of(backend))]
    if sql is not None:
        await backend.execute(sql)
    if text is not None:
        await rewrite(backend, text)
    told = await service_of(backend).verify("p")
    assert (VerificationOutcome.MISMATCH, code) == (told.outcome, told.code)
    assert DIFFERENCES.get(name, told.first_difference) == told.first_difference
    (found,) = await whole_pass(service_of(backend))
    assert ({code: 1}, 0, 1) == (found.findings, found.not_blocked, found.pass_findings)
    assert ("blocked", authority, code, name in COMPAT) == await verdict(backend)
    if works:
        assert ALL == await state.get_progression("p")
        await state.append_to_progression("p", IDS[7])
        await state.append_to_progression("p", "later")
        assert [*ALL, "later"] == await state.get_progression("p")
    else:
        with pytest.raises(ProgressionBlockedError):
            await state.get_progression("p")
        with pytest.raises(ProgressionBlockedError):
            await state.append_to_progression("p", "later")
    assert IDS == await state.get_progression("a") == await state.get_progression("z")
    # The next pass changes nothing: what is blocked stays as it was left.
    before = await rows_of_everything(backend)
    await whole_pass(service_of(backend))
    assert before == await rows_of_everything(backend)


async def test_what_a_read_asked_for_and_the_pass_meets_is_one_finding(backend: Backend, state: Any) -> None:
    await cut_over(backend, state)
    await rewrite(backend, CHANGED)
    service = service_of(backend)
    service.ask_scrub("p")
    (found,) = await whole_pass(service)
    assert ({"foreign_write": 1}, 1) == (found.findings, found.pass_findings)
    # Asked for again, after a pass of its own.
    service.ask_scrub("p")
    found = await service.scrub(may_begin=False)
    assert {"foreign_write": 1} == found.findings


async def test_orphaned_rows_are_blocked(backend: Backend, state: Any) -> None:
    """decision 22: nobody can say which representation counts."""
    await cut_over(backend, state)
    await backend.execute("DELETE FROM progression_storage_state WHERE progression_id = 'p'")
    with pytest.raises(ProgressionBlockedError):
        await state.get_progression("p")
    (found,) = await whole_pass(service_of(backend))
    assert {"orphan_items": 1} == found.findings
    assert ("blocked", "none", "orphan_items", False) == await verdict(backend)
    with pytest.raises(ProgressionBlockedError):
        await state.get_progression("p")


async def test_trust_moves_on_when_a_blocked_progression_gets_worse(backend: Backend, state: Any) -> None:
    await cut_over(backend, state)
    await backend.execute("DELETE FROM progression_items WHERE progression_id = 'p' AND ordinal = 7")
    await whole_pass(service_of(backend))
    await rewrite(backend, CHANGED)
    with pytest.raises(PrefixGapError):
        await state.get_progression("p")
    await whole_pass(service_of(backend))
    assert ("blocked", "none", "count_mismatch", False) == await verdict(backend)


async def test_a_finding_that_is_gone_under_the_lock_blocks_nothing(backend: Backend, state: Any) -> None:
    """decision 2: proved again under the lock; and looked at again by the next slice."""
    await cut_over(backend, state)
    cases = {
        "row": (
            "UPDATE progression_items SET message_id = 'x' WHERE progression_id = 'p' AND ordinal = 7",
            f"UPDATE progression_items SET message_id = '{IDS[7]}' WHERE progression_id = 'p' AND ordinal = 7",
        ),
        "missing": (
            "DELETE FROM progression_items WHERE progression_id = 'p' AND ordinal = 21",
            f"INSERT INTO progression_items VALUES ('p', 21, '{TAIL[1]}')",
        ),
        "outside": (
            "INSERT INTO progression_items VALUES ('p', 23, 'x')",
            "DELETE FROM progression_items WHERE progression_id = 'p' AND ordinal = 23",
        ),
        "allocator": (
            "UPDATE progression_storage_state SET next_ordinal = 25 WHERE progression_id = 'p'",
            "UPDATE progression_storage_state SET next_ordinal = 23 WHERE progression_id = 'p'",
        ),
    }
    for broken, repaired in cases.values():
        await backend.execute(broken)
        staged = Staged(backend)

        async def repair(name: str, repaired: str = repaired) -> None:
            if name == "scrub":
                await backend.execute(repaired)

        service = ProgressionMigrationService(staged)
        staged.before = repair
        found = await service.scrub(progression_id="p")
        assert ({}, 1) == (found.findings, found.not_blocked)
        assert GOOD == await verdict(backend)
        staged.before = None
        assert 1 == (await service.status()).proof.asked
        await service.scrub(may_begin=False)
        assert 0 == (await service.status()).proof.asked
    assert GOOD == await verdict(backend)


async def test_a_json_repaired_under_the_lock_blocks_nothing(backend: Backend, state: Any) -> None:
    await cut_over(backend, state)
    await rewrite(backend, CHANGED)
    staged = Staged(backend)
    repaired = False

    async def repair(name: str) -> None:
        nonlocal repaired
        if name == "scrub" and not repaired:
            repaired = True
            await rewrite(backend, json.dumps(IDS))

    staged.before = repair
    found = await ProgressionMigrationService(staged).scrub(progression_id="p")
    assert ({}, 1, GOOD) == (found.findings, found.not_blocked, await verdict(backend))


@pytest.mark.parametrize("act", ["append", "replace", "delete", "unblock"])
async def test_what_changes_between_two_pages_is_no_finding(
    backend: Backend, state: Any, act: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """fault 32: at every read of a comparison something happens to the progression; nothing is ever blocked."""
    monkeypatch.setattr("lionstate.migration.walk._ROWS", 7)
    await cut_over(backend, state)
    for at in range(1, 9):
        staged = Staged(backend)
        if act == "unblock":
            await backend.execute("DELETE FROM progression_items WHERE progression_id = 'p' AND ordinal = 0")
            await service_of(backend).scrub(progression_id="p")
            await backend.execute(f"INSERT INTO progression_items VALUES ('p', 0, '{IDS[0]}')")

        async def interfere(at: int = at, staged: Staged = staged) -> None:
            if staged.reads != at:
                return
            if act == "append":
                await state.append_to_progression("p", f"new {at}")
            elif act == "replace":
                await state.set_progression("p", make_ids(20, first=at))
            elif act == "delete":
                await state.delete_progression("p")
                await state.create_progression("p", make_ids(15, first=at))
            else:
                await service_of(backend).unblock("p", foreign=None)

        staged.after_read = interfere
        found = await ProgressionMigrationService(staged).scrub(progression_id="p")
        if act != "unblock":
            assert ({}, 0) == (found.findings, found.not_blocked), at
            assert [] == await backend.rows("SELECT 1 FROM progression_storage_state WHERE phase = 'blocked'")


async def test_no_finding_under_concurrent_work(backend: Backend, state: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Appends, replacements, deletes, admissions and rollbacks beside passes in small slices."""
    monkeypatch.setattr("lionstate.migration.walk._ROWS", 5)
    for number in range(12):
        await backend.put_progression(f"p{number:02}", json.dumps(make_ids(20, first=number)))
    service = service_of(backend)
    await until_done(service)
    stop = asyncio.Event()

    async def work(number: int) -> None:
        turn = 0
        while not stop.is_set():
            turn += 1
            name = f"p{(number * 3 + turn) % 12:02}"
            if turn % 5 == 0:
                await state.set_progression(name, make_ids(10 + turn % 7, first=turn))
            elif turn % 7 == 0:
                await state.delete_progression(name)
                await state.create_progression(name, make_ids(8, first=turn))
            elif turn % 11 == 0:
                await backend.put_progression(f"new{number}-{turn}", json.dumps(IDS))
            else:
                await state.append_to_progression(name, f"m{number}-{turn}")

    tasks = [asyncio.ensure_future(work(number)) for number in range(3)]
    findings: list[Any] = []
    other = service_of(backend)
    for _ in range(4):
        findings += [one.findings for one in await whole_pass(other, max_items=30)]
        await service.step(max_items=15, max_seconds=1)
    stop.set()
    await asyncio.gather(*tasks)
    assert not any(findings)
    assert [] == await backend.rows("SELECT 1 FROM progression_storage_state WHERE phase = 'blocked'")


async def test_a_pass_goes_on_where_another_process_left_it(
    backend: Backend, state: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """fault 19: a new service after every slice; a long progression is not begun anew, nothing is left out."""
    monkeypatch.setattr("lionstate.migration.walk._ROWS", 10)
    await cut_over(backend, state)
    await state.set_progression("p", make_ids(200))
    pages: list[int] = []
    coverages = []
    ended = False
    for at in range(200):
        staged = Staged(backend)
        found = await ProgressionMigrationService(staged).scrub(max_items=25, max_seconds=60, restart=at == 0)
        pages.append(sum(found.items.values()))
        coverages.append(found.coverage)
        ended = found.pass_ended
        if ended:
            break
    assert ended
    assert 20 + 200 + 20 == sum(pages)
    assert coverages == sorted(coverages)
    proof = (await service_of(backend).status()).proof
    assert (1.0, None, 0) == (proof.coverage, proof.pass_began_at, proof.last_pass_findings)
    assert proof.last_pass_at is not None


async def test_a_row_behind_the_kept_place_is_still_found(
    backend: Backend, state: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lionstate.migration.walk._ROWS", 10)
    await cut_over(backend, state)
    await state.set_progression("p", make_ids(200))
    for _ in range(20):
        await service_of(backend).scrub(max_items=25, max_seconds=60)
    await backend.execute("UPDATE progression_items SET message_id = 'x' WHERE progression_id = 'p' AND ordinal = 150")
    await service_of(backend).scrub(restart=True, max_items=25, max_seconds=60)
    for _ in range(30):
        found = await service_of(backend).scrub(max_items=25, max_seconds=60)
        if found.findings:
            break
    assert ("blocked", "items", "digest_mismatch", True) == await verdict(backend)


async def test_another_length_is_found_without_a_pass(backend: Backend, state: Any) -> None:
    """decision 21: recorded lengths are compared in turn."""
    await cut_over(backend, state)
    await rewrite(backend, json.dumps([*IDS, "theirs"]))
    service = service_of(backend)
    await service.scrub(may_begin=False)
    proof = (await service.status()).proof
    assert (1, True, None) == (proof.asked, proof.lengths_checked_at is not None, proof.last_pass_at)
    found = await service.scrub(may_begin=False)
    assert {"foreign_write": 1} == found.findings
    assert ("blocked", "items", "foreign_write", False) == await verdict(backend)


async def test_nothing_happens_while_migration_is_paused(backend: Backend, state: Any) -> None:
    await cut_over(backend, state)
    await backend.execute("DELETE FROM progression_items WHERE progression_id = 'p' AND ordinal = 7")
    service = service_of(backend)
    await service.pause()
    assert (await service.scrub()).is_paused
    assert (await service.scrub(progression_id="p")).is_paused
    assert GOOD == await verdict(backend)


async def test_what_was_copied_is_compared_where_somebody_asks(backend: Backend) -> None:
    await copied(backend)
    service = service_of(backend)
    found = await service.scrub(progression_id="p")
    assert (1, {}, {"match": 20}) == (found.checked, found.findings, found.items)
    await backend.execute("UPDATE progression_items SET message_id = 'x' WHERE ordinal = 3")
    service.ask_scrub("p")
    found = await service.scrub(may_begin=False)
    assert {"digest_mismatch": 1} == found.findings
    assert ("blocked", "json", "digest_mismatch", False) == await verdict(backend)


async def test_nothing_is_checked_where_there_is_nothing_to_compare(backend: Backend) -> None:
    await backend.put_progression("p", json.dumps(IDS))
    service = service_of(backend)
    found = await service.scrub(progression_id="p")
    assert (0, {}) == (found.checked, found.findings)
    with pytest.raises(NotFoundError):
        await service.scrub(progression_id="missing")


async def test_a_repaired_progression_is_unblocked_and_good(backend: Backend, state: Any) -> None:
    """The way out after each authority: the runbook's."""
    await cut_over(backend, state)
    await rewrite(backend, json.dumps([*IDS, "theirs"]))
    service = service_of(backend)
    await service.scrub(progression_id="p")
    await service.unblock("p", foreign="adopt", reason="theirs is wanted")  # type: ignore[arg-type]
    assert [*ALL, "theirs"] == await state.get_progression("p")
    assert [{}] == [one.findings for one in await whole_pass(service)]
    assert list(enumerate([*ALL, "theirs"])) == await items_of(backend)
    assert set(BlockedCode) >= {BlockedCode.FOREIGN_WRITE}
