"""Preflight, explain, retry and unblock (design decisions 14, 15; design §5)."""

from __future__ import annotations

import json
import re
import time
from dataclasses import replace
from typing import Any

import pytest

from lionstate.cli import render, watch
from lionstate.cli.reasons import foreign_lines
from lionstate.errors import (
    InvalidInputError,
    MalformedCollectionError,
    NotFoundError,
    ParityError,
    PhaseConflictError,
    ProgressionBlockedError,
)
from lionstate.migration import MIGRATABLE, RUNBOOK, Foreign, ForeignWriters, Ownership, Representation
from lionstate.progression.digest import digest_of
from tests.support.backends import Backend
from tests.support.collection_texts import VECTORS
from tests.support.migration import (
    WHOLE,
    assert_cut_over,
    items_of,
    make_ids,
    rows_of_everything,
    service_of,
    state_of,
    until_done,
)

IDS = make_ids(20)


async def test_preflight_judges_as_admission_does(backend: Backend) -> None:
    values = {"good": json.dumps(IDS), "empty": "[]", "torn": "[", "map": "{}", "mixed": '["a", 1]', "torn2": "nope"}
    for name, value in values.items():
        await backend.put_progression(name, value)
    before = await rows_of_everything(backend)
    service = service_of(backend)
    found = await service.preflight(limit=1)
    assert {MIGRATABLE: 2, "malformed_json": 2, "not_array": 1, "non_string": 1} == found.verdicts
    assert {"malformed_json": ("torn",), "not_array": ("map",), "non_string": ("mixed",)} == found.named
    assert (20, 20, sum(map(len, values.values())), len(values["good"])) == (
        found.items,
        found.largest_items,
        found.size_bytes,
        found.largest_bytes,
    )
    assert (False, {}, ForeignWriters()) == (found.has_fence, found.left_out, found.foreign)
    assert IDS[0] not in str(found)
    assert before == await rows_of_everything(backend)
    await until_done(service)
    after = await service.preflight()
    assert ({}, {"items": 2, "blocked": 4}, True) == (after.verdicts, after.left_out, after.has_fence)
    assert found.verdicts.keys() - {MIGRATABLE} == (await service.status()).blocked.keys()
    with pytest.raises(InvalidInputError):
        await service.preflight(limit=-1)


@pytest.mark.parametrize(
    ("text", "code", "works"),
    [
        ('["a"', "malformed_json", False),
        ('{"a": 1}', "not_array", False),
        ('["a", 1]', "non_string", True),
        (json.dumps(["a\0b"]), "nul_in_id", True),
        ('["\\ud800"]', "lone_surrogate", True),
    ],
)
async def test_blocking_changes_nothing_about_reads_and_appends(
    backend: Backend, state: Any, text: str, code: str, works: bool
) -> None:
    """As the README says for each code: odd elements are served, and what is no array is refused, then as before."""
    await backend.put_progression("p", text)
    for phase in ("json", "blocked"):
        assert (phase, None if phase == "json" else code) == await phase_and_code(backend)
        if works:
            await state.append_to_progression("p", phase)
            assert phase == (await state.get_progression("p"))[-1]
        else:
            for use in (state.get_progression("p"), state.append_to_progression("p", phase)):
                with pytest.raises(MalformedCollectionError):
                    await use
        await until_done(service_of(backend))


async def phase_and_code(backend: Backend) -> tuple[str, str | None]:
    found = await service_of(backend).explain("p")
    return found.phase, found.blocked_code


async def test_preflight_pages(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(7):
        await backend.put_progression(f"p{number}", json.dumps(IDS[: number + 1]))
    monkeypatch.setattr("lionstate.migration.preflight._PAGE_ROWS", 3)
    monkeypatch.setattr("lionstate.migration.preflight._SNAPSHOT_BYTES", 100)
    found = await service_of(backend).preflight()
    assert ({MIGRATABLE: 7}, 28) == (found.verdicts, found.items)


async def test_preflight_names_another_program(backend: Backend) -> None:
    """Decision 37: a session whose last message lionstate did not write, by its progression."""
    await backend.put_progression("theirs", json.dumps(IDS))
    now = time.time()
    await backend.execute(
        "INSERT INTO sessions (id, created_at, updated_at, progression_id, status, last_message_at)"
        " VALUES ('s', :at, :at, 'theirs', 'running', :at)",
        at=now,
    )
    found = (await service_of(backend).preflight()).foreign
    assert ForeignWriters((("theirs", now),)) == found
    first, advice = foreign_lines(found)
    assert "1 sessions" in first and "theirs (0 s ago)" in first
    assert "--accept-foreign-writers" in advice


async def test_adopting_needs_items_that_are_trusted(backend: Backend, state: Any) -> None:
    """Decision 14: with the JSON as the authority its ids are there already; nothing is changed by the refusal."""
    await cut_and_blocked(backend, state, collection=json.dumps([*IDS, "x"]))
    service = service_of(backend)
    for authority, use in (("json", None), ("none", Representation.ITEMS), ("none", Representation.JSON)):
        await backend.execute("UPDATE progression_storage_state SET authority = :one", one=authority)
        before = await rows_of_everything(backend)
        with pytest.raises(PhaseConflictError, match="nothing to adopt"):
            await service.unblock("p", use=use, foreign=Foreign.ADOPT)
        assert before == await rows_of_everything(backend)


async def test_explain_follows_a_progression(backend: Backend, state: Any) -> None:
    await backend.put_progression("p", json.dumps(IDS))
    service = service_of(backend)
    with pytest.raises(NotFoundError):
        await service.explain("nope")
    found = await service.explain("p")
    assert ("json", "json", None) == (found.phase, found.authority, found.size_bytes)
    (wait,) = found.waits
    assert "size has not been measured" in wait
    await service.step(max_items=5, max_seconds=60)
    found = await service.explain("p")
    assert ("dual", 5, 20, (), len(json.dumps(IDS))) == (
        found.phase,
        found.copied,
        found.to_copy,
        found.waits,
        found.size_bytes,
    )
    await service.pause(reason="lunch")
    await service.set_maintenance_enabled(False, reason="release")
    paused, disabled = (await service.explain("p")).waits
    at = r"\(since 20\d\d-\d\d-\d\d \d\d:\d\d:\d\d UTC"
    assert re.search(f"paused by test {at}: lunch\\)", paused)
    assert re.search(f"disabled by test {at}: release\\)", disabled)
    order = (await service.status()).maintenance_order
    assert order is not None and ("test", "release") == (order.actor, order.reason)
    await service.resume()
    await service.set_maintenance_enabled(True)
    await service.hold("p", reason="review")
    await service.exclude("p")
    await service.prioritize("p", reason="first")
    found = await service.explain("p")
    excluded, held = found.waits
    assert re.search(f"excluded by test {at}\\):", excluded) and re.search(f"held by test {at}: review\\)", held)
    assert {"hold": "review", "exclude": None, "prioritize": "first"} == {one.kind: one.reason for one in found.orders}
    await service.exclude("p", clear=True)
    await service.release("p")
    await service.rollback("p", reason="a mistake")
    found = await service.explain("p")
    assert re.search(f"rolled back by test {at}: a mistake\\); an operator holds it", found.waits[0])
    assert ("json", "operator", True) == (found.phase, found.held_reason, "removed first" in found.waits[-1])
    await service.release("p")
    await until_done(service)
    found = await service.explain("p")
    assert ("items", "items", 20, ()) == (found.phase, found.authority, found.frozen_count, found.waits)
    assert found.cutover_at is not None


async def test_explain_tells_its_turn(backend: Backend, state: Any) -> None:
    """A small one behind a big copy: what is begun goes first, then the smallest; and whether the daemon migrates."""
    await backend.put_progression("big", json.dumps(IDS))
    service = service_of(backend)
    await service.step(max_items=5, max_seconds=60)
    insert = "INSERT INTO progression_sizes (progression_id, bytes, measured_at) VALUES (:pid, :size, 1.0)"
    for name, count in (("tiny", 1), ("small", 3)):
        await backend.put_progression(name, json.dumps(IDS[:count]))
        await backend.execute(insert, pid=name, size=count)
    assert () == (await service.explain("big")).waits
    for name, before in (("tiny", "1 that are begun and 0 smaller"), ("small", "1 that are begun and 1 smaller")):
        (wait,) = (await service.explain(name)).waits
        assert before in wait
    service.automatic = False
    (wait,) = (await service.explain("small")).waits
    assert "disabled in the daemon's settings" in wait
    assert False is (await service.status()).automatic
    await service.set_maintenance_enabled(True)
    assert True is (await service.status()).automatic
    assert "turn" in (await service.explain("small")).waits[0]
    await service.prioritize("small")
    assert () == (await service.explain("small")).waits


async def test_a_watch_tells_what_the_status_tells(
    backend: Backend, state: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """All that is left waits for a command: nothing moves, and the line says who ordered that."""
    await backend.put_progression("p", json.dumps(IDS))
    service = service_of(backend)
    await service.hold_all(reason="nights")
    service.automatic = False
    for _ in range(3):
        await service.step(max_seconds=60)
    found = await service.status()
    watch._print_line(found)
    line = capsys.readouterr().out
    for part in (
        "waiting: ",
        "time left: unknown",
        "cutovers BY COMMAND ONLY by test",
        "ready for cutover: 1",
        "disabled in the daemon's settings",
        "progression-migrate enable",
    ):
        assert part in line
    assert "moving" not in line
    shown = watch.picture(found).renderables
    assert any("BY COMMAND ONLY" in str(one) for one in shown) and any("ready for" in str(one) for one in shown)
    render.status(replace(found, owner=Ownership("x", True, 3, 1.0, 5.0)), as_json=False)
    assert "owner: the daemon, for" in capsys.readouterr().out


def test_every_code_has_its_line() -> None:
    from lionstate.errors import BlockedCode

    assert set(BlockedCode) == set(RUNBOOK)


async def test_a_repaired_progression_is_retried(backend: Backend, state: Any) -> None:
    await backend.put_progression("p", '["a", ')
    service = service_of(backend)
    await until_done(service)
    assert "malformed_json" in (await service.explain("p")).waits[0]
    await state.set_progression("p", IDS)
    await service.retry("p", reason="repaired")
    assert ("json", None) == (lambda row: (row["phase"], row["blocked_reason"]))(await state_of(backend))
    await until_done(service)
    await assert_cut_over(backend, IDS)


async def test_a_retry_starts_from_scratch(backend: Backend, state: Any) -> None:
    """Its rows are removed before it is admitted again."""
    await backend.put_progression("p", json.dumps(IDS))
    await service_of(backend).step(max_items=5, max_seconds=60)
    await backend.execute("UPDATE progressions SET collection = :text", text=json.dumps([*IDS, "theirs"]))
    service = service_of(backend)
    assert {"foreign_write": 1} == (await service.step(**WHOLE)).blocked
    before = (await state_of(backend))["generation"]
    assert 5 == len(await items_of(backend))
    await service.retry("p")
    row = await state_of(backend)
    assert ("json", 1, 0) == (row["phase"], row["shadow_rows"], row["next_ordinal"])
    assert before != row["generation"]
    await state.append_to_progression("p", "ours")
    # Where rows carry versions, the write of others holds the cutover by itself.
    await service.set_accept_foreign_writers(True)
    await until_done(service)
    await assert_cut_over(backend, [*IDS, "theirs", "ours"])


async def test_what_is_not_blocked_is_refused(backend: Backend) -> None:
    await backend.put_progression("p", json.dumps(IDS))
    service = service_of(backend)
    for call in (service.retry, service.unblock):
        with pytest.raises(PhaseConflictError):
            await call("p")
        with pytest.raises(NotFoundError):
            await call("nope")
    await until_done(service)
    for call in (service.retry, service.unblock):
        with pytest.raises(PhaseConflictError):
            await call("p")


async def orphaned(backend: Backend, rows: list[str]) -> None:
    """Item rows that no state row explains, found by an append."""
    await backend.put_progression("p", json.dumps(IDS))
    for ordinal, message_id in enumerate(rows):
        await backend.execute("INSERT INTO progression_items VALUES ('p', :at, :mid)", at=ordinal, mid=message_id)
    step = await service_of(backend).step(**WHOLE)
    assert {"orphan_items": 1} == step.blocked


async def test_without_a_trusted_one_the_operator_says_which(backend: Backend, state: Any) -> None:
    await orphaned(backend, IDS[:3])
    service = service_of(backend)
    before = await rows_of_everything(backend)
    with pytest.raises(ProgressionBlockedError):
        await service.unblock("p")
    with pytest.raises(ProgressionBlockedError):
        await service.retry("p")
    assert before == await rows_of_everything(backend)
    assert "json" == await service.unblock("p", use=Representation.JSON, reason="the rows are leftovers")
    await until_done(service)
    await assert_cut_over(backend, IDS)


@pytest.mark.parametrize(
    ("collection", "error"),
    [("[", ParityError), (json.dumps(IDS[:2]), ProgressionBlockedError)],
)
async def test_the_json_is_not_made_the_authority_over_rows_that_it_lacks(
    backend: Backend, collection: str, error: type[Exception]
) -> None:
    """Seen: `--use json` of a text that is no JSON removed 5,000 good rows and blocked again."""
    await orphaned(backend, IDS[:3])
    await backend.execute("UPDATE progressions SET collection = :text", text=collection)
    service, before = service_of(backend), await rows_of_everything(backend)
    with pytest.raises(error):
        await service.unblock("p", use=Representation.JSON, reason="a guess")
    assert before == await rows_of_everything(backend)
    if error is ProgressionBlockedError:
        told = {"use": Representation.JSON, "foreign": Foreign.DISCARD, "reason": "they are leftovers"}
        assert "json" == await service.unblock("p", **told)
        await until_done(service)
        await assert_cut_over(backend, IDS[:2])


async def test_the_items_can_be_made_the_authority(backend: Backend, state: Any) -> None:
    await orphaned(backend, IDS[:3])
    assert "items" == await service_of(backend).unblock("p", use=Representation.ITEMS, reason="they are right")
    await assert_cut_over(backend, IDS[:3])
    await state.append_to_progression("p", "new")
    assert [*IDS[:3], "new"] == await state.get_progression("p")


async def test_items_with_a_gap_cannot(backend: Backend) -> None:
    await orphaned(backend, IDS[:3])
    await backend.execute("DELETE FROM progression_items WHERE ordinal = 1")
    before = await rows_of_everything(backend)
    with pytest.raises(ParityError):
        await service_of(backend).unblock("p", use=Representation.ITEMS)
    assert before == await rows_of_everything(backend)


async def cut_and_blocked(backend: Backend, state: Any, *, collection: str | None = None) -> None:
    """A cut-over progression with one row behind its prefix, blocked with the items as its authority."""
    await backend.put_progression("p", json.dumps(IDS))
    await until_done(service_of(backend))
    await state.append_to_progression("p", "tail")
    if collection is not None:
        # Past the fence, as a REPLACE or a replica session would.
        await backend.execute("UPDATE progression_storage_state SET replacing = 1")
        await backend.execute("UPDATE progressions SET collection = :text", text=collection)
        await backend.execute("UPDATE progression_storage_state SET replacing = 0")
    await backend.execute(
        "UPDATE progression_storage_state SET phase = 'blocked', blocked_reason = 'foreign_write', compat_read = 0"
    )


@pytest.mark.parametrize("choice", [Foreign.ADOPT, Foreign.DISCARD])
async def test_foreign_ids_after_cutover_are_adopted_or_discarded(
    backend: Backend, state: Any, choice: Foreign
) -> None:
    await cut_and_blocked(backend, state, collection=json.dumps([*IDS, "x", "tail", "y"]))
    service = service_of(backend)
    before = await rows_of_everything(backend)
    with pytest.raises(ProgressionBlockedError, match="2 ids"):
        await service.unblock("p")
    with pytest.raises(PhaseConflictError):
        await service.unblock("p", use=Representation.ITEMS)
    with pytest.raises(ProgressionBlockedError):
        await service.retry("p")
    assert before == await rows_of_everything(backend)
    generation = (await state_of(backend))["generation"]
    assert "items" == await service.unblock("p", foreign=choice, reason="test")
    expected = [*IDS, "tail", "x", "y"] if choice is Foreign.ADOPT else [*IDS, "tail"]
    await assert_cut_over(backend, expected)
    row = await state_of(backend)
    assert (20, digest_of(IDS)) == (row["frozen_count"], row["source_digest"])
    assert generation != row["generation"]
    assert expected == await state.get_progression("p")
    await state.append_to_progression("p", "z")
    assert [*expected, "z"] == await state.get_progression("p")


async def test_a_changed_prefix_is_written_anew_from_the_items(backend: Backend, state: Any) -> None:
    await cut_and_blocked(backend, state, collection="not json")
    assert "items" == await service_of(backend).unblock("p")
    await assert_cut_over(backend, [*IDS, "tail"])


async def test_a_row_below_the_first_place_goes(backend: Backend, state: Any) -> None:
    """It would block the progression again; the id that it held is adopted as any other."""
    await cut_and_blocked(backend, state, collection=json.dumps([*IDS, "stray"]))
    await backend.execute("INSERT INTO progression_items VALUES ('p', -1, 'stray')")
    service = service_of(backend)
    assert "items" == await service.unblock("p", foreign=Foreign.ADOPT)
    assert [*IDS, "tail", "stray"] == await state.get_progression("p")
    assert {} == (await service.scrub(progression_id="p")).findings


async def test_explain_tells_of_a_throttle(backend: Backend) -> None:
    """fault 7: the signal, its value, its limit and its age; also in the plan."""
    await backend.put_progression("p", json.dumps(IDS))
    service = service_of(backend)
    await service.set_knob("parity_limit_per_minute", 3)
    assert () == (await service.explain("p")).waits[1:]
    for _ in range(3):
        service._governor.errors.note(service._governor.clock())
    service._governor._look_at = 0.0
    wanted = "throttled: parity is 3, its limit is 3, since 0 s"
    for waits in ((await service.explain("p")).waits, (await service.plan()).waits):
        assert wanted in waits[-1], waits


async def test_items_that_are_not_those_of_the_cutover_stay_blocked(backend: Backend, state: Any) -> None:
    await cut_and_blocked(backend, state)
    await backend.execute("UPDATE progression_items SET message_id = 'other' WHERE ordinal = 7")
    before = await rows_of_everything(backend)
    with pytest.raises(ParityError):
        await service_of(backend).unblock("p")
    assert before == await rows_of_everything(backend)


async def test_preflight_gives_the_vectors_verdicts(backend: Backend) -> None:
    """The same verdict on both databases for the same bytes, and the one that admission gives."""
    expected: dict[str, list[str]] = {}
    longest = backend.direct.store.dialect.capabilities.max_migratable_id_bytes
    for vector in VECTORS:
        if "\0" in vector["text"] and backend.is_postgresql:
            continue
        await backend.put_progression(vector["name"], vector["text"])
        code = vector["code"]
        if code is None and longest is not None and max(map(len, json.loads(vector["text"])), default=0) > longest:
            code = "id_too_long"
        expected.setdefault(code or MIGRATABLE, []).append(vector["name"])
    found = await service_of(backend).preflight(limit=10_000)
    assert {code: len(names) for code, names in expected.items()} == found.verdicts
    assert {code: sorted(names) for code, names in expected.items() if code != MIGRATABLE} == {
        code: sorted(names) for code, names in found.named.items()
    }
