"""Old sessions go with what only they hold; the router decides what is held, not the legacy column."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from lionstate.errors import InvalidInputError
from lionstate.progression.phases import Phase
from lionstate.schema.conversation import progressions
from tests.support.backends import Backend
from tests.support.phases import put as put_progression
from tests.support.phases import whole
from tests.support.records import assert_refused_unchanged, put, snapshot

OLD, CUT, NEW = 10.0, 100.0, 1_000.0
COUNTS = ("sessions", "branches", "progressions", "messages")


async def _messages(backend: Backend, *ids: str) -> None:
    for message_id in ids:
        await put(backend, "messages", id=message_id, created_at=1.0, content="{}", role="user", lion_class=0)


async def _session(backend: Backend, session_id: str, progression_id: str, **columns: Any) -> None:
    row = {"created_at": 1.0, "updated_at": OLD, "status": "completed", "progression_id": progression_id, **columns}
    await put(backend, "sessions", id=session_id, **row)


async def _left(backend: Backend, table: str) -> list[str]:
    return sorted(row["id"] for row in await backend.rows(f'SELECT id FROM "{table}"'))


async def _prune(state: Any, *, dry: bool = False, limit: int = 50) -> dict[str, Any]:
    """All batches; what they add up to."""
    total: dict[str, Any] = dict.fromkeys(COUNTS, 0)
    unreadable: set[str] = set()
    after_id: str | None = None
    run = state.preview_prune if dry else state.prune_sessions
    while (found := await run(before=CUT, after_id=after_id, limit=limit))["last_id"] is not None:
        after_id = found["last_id"]
        total = {name: total[name] + found[name] for name in COUNTS}
        unreadable |= set(found["unreadable"])
    return {**total, "unreadable": sorted(unreadable)}


async def test_what_was_pruned_is_noted(backend: Backend, state: Any) -> None:
    """One event a batch that removed something; a preview and an empty batch leave none."""
    await put_progression(backend, "p", "json", ["m"])
    await _messages(backend, "m")
    for name in ("s0", "s1", "s2"):
        await _session(backend, name, "p")
    await state.preview_prune(before=CUT)
    assert [] == await state.list_admin_events()
    for after_id in (None, "s1", "s2"):
        await state.prune_sessions(before=CUT, after_id=after_id, limit=2, actor="somebody")
    newest, first = await state.list_admin_events()
    counts = {"sessions": 2, "branches": 0, "progressions": 0, "messages": 0, "unreadable": 0}
    assert {**counts, "before": CUT, "session_ids": ["s0", "s1"]} == first["details"]
    assert ("prune_sessions", None, "somebody") == (first["action"], first["target_id"], first["actor"])
    assert {**counts, "sessions": 1, "progressions": 1, "messages": 1}.items() <= newest["details"].items()
    assert [newest["id"]] == [event["id"] for event in await state.list_admin_events(target_id="s2")]


async def _sweep(state: Any) -> None:
    while await state.remove_deleted_rows(limit=3):
        pass


def _counts(*counts: int, unreadable: Sequence[str] = ()) -> dict[str, Any]:
    return {**dict(zip(COUNTS, counts, strict=True)), "unreadable": list(unreadable)}


async def test_only_ended_sessions_that_nobody_touched_go(backend: Backend, state: Any) -> None:
    """Neither one that runs nor one that was touched by any measure since."""
    await put_progression(backend, "p", "json", [])
    kept = {
        "running": {"status": "running"},
        "updated": {"updated_at": NEW},
        "created": {"created_at": NEW},
        "spoke": {"last_message_at": NEW},
        "ended": {"ended_at": NEW},
        "edge": {"updated_at": CUT},
    }
    for name, columns in kept.items():
        await _session(backend, name, "p", **columns)
    await _session(backend, "old", "p", last_message_at=OLD, ended_at=OLD)
    await _session(backend, "bare", "p", status=None)
    assert _counts(2, 0, 0, 0) == await _prune(state, dry=True)
    assert _counts(2, 0, 0, 0) == await _prune(state)
    assert sorted(kept) == await _left(backend, "sessions")
    assert _counts(0, 0, 0, 0) == await _prune(state)


@pytest.mark.parametrize("shape", ["absent", "json", "dual", "items", "blocked-json", "blocked-items"])
async def test_its_messages_go_by_the_authority(backend: Backend, state: Any, shape: str) -> None:
    """A relational tail is collected too, which the legacy column does not name."""
    await _messages(backend, "a", "tail", "branch", "pointed", "other")
    await put_progression(backend, "p", shape, ["a"], ["tail"])
    await put_progression(backend, "bp", shape, ["branch"])
    await _session(backend, "s", "p", first_msg_id="pointed")
    await put(backend, "branches", id="b", created_at=1.0, session_id="s", progression_id="bp")
    before = await snapshot(backend)
    assert _counts(1, 1, 2, 4) == await _prune(state, dry=True)
    assert before == await snapshot(backend)
    assert _counts(1, 1, 2, 4) == await _prune(state)
    assert ["other"] == await _left(backend, "messages")
    assert [[], []] == [await state.get_progression(name) for name in ("p", "bp")]
    await _sweep(state)
    assert [] == await _left(backend, "progressions")
    assert [] == (await whole(backend, "p"))["items"]


@pytest.mark.parametrize("shape", ["absent", "json", "dual", "items", "blocked-json", "blocked-items", "blocked-none"])
async def test_what_another_progression_holds_stays(backend: Backend, state: Any, shape: str) -> None:
    """Reference §3.4: a message that only a surviving relational tail names keeps its content."""
    await _messages(backend, "prefix", "tail", "mine")
    await put_progression(backend, "kept", shape, ["prefix"], ["tail"])
    await put_progression(backend, "p", "json", ["prefix", "tail", "mine"])
    await _session(backend, "s", "p")
    assert _counts(1, 0, 1, 1) == await _prune(state, dry=True)
    assert _counts(1, 0, 1, 1) == await _prune(state)
    assert ["prefix", "tail"] == await _left(backend, "messages")


async def test_shared_by_old_and_by_others(backend: Backend, state: Any) -> None:
    """A progression and a message go with the last session that holds them; the dry run counts them alike."""
    await _messages(backend, "one", "two", "three", "kept")
    await put_progression(backend, "shared", "items", ["one"])
    await put_progression(backend, "p1", "json", ["two", "three"])
    await put_progression(backend, "p2", "items", ["two"])
    await put_progression(backend, "live", "json", ["kept"])
    await _session(backend, "a", "p1")
    await _session(backend, "b", "shared", first_msg_id="three")
    await _session(backend, "c", "p2", last_msg_id="kept")
    await _session(backend, "run", "live", status="running", last_msg_id="kept")
    await put(backend, "branches", id="c1", created_at=1.0, session_id="c", progression_id="shared")
    for limit in (1, 2, 50):
        assert _counts(3, 1, 3, 3) == await _prune(state, dry=True, limit=limit)
    assert _counts(3, 1, 3, 3) == await _prune(state, limit=1)
    assert ["kept"] == await _left(backend, "messages")
    assert ["run"] == await _left(backend, "sessions")


async def test_a_malformed_collection_stops_nothing(backend: Backend, state: Any) -> None:
    """It is named, and what it may hold stays: its own, and what it mentions of others."""
    await _messages(backend, "broken", "mentioned", "plain")
    await backend.put_progression("bad own", '["broken", ')
    await backend.put_progression("bad other", '["mentioned", ')
    await put_progression(backend, "p", "json", ["mentioned", "plain"])
    await _session(backend, "s1", "bad own")
    await _session(backend, "s2", "p")
    expected = _counts(2, 0, 2, 1, unreadable=["bad other", "bad own"])
    assert expected == await _prune(state, dry=True)
    assert expected == await _prune(state)
    assert ["broken", "mentioned"] == await _left(backend, "messages")


async def test_a_collection_that_is_not_utf8_stops_nothing(backend: Backend, state: Any) -> None:
    """The same for text that SQLite's driver cannot decode."""
    if backend.is_postgresql:
        return
    await _messages(backend, "own", "mentioned", "plain")
    await backend.put_progression("bad own", "[]")
    await backend.put_progression("bad other", "[]")
    await put_progression(backend, "p", "json", ["mentioned", "plain"])
    await _session(backend, "s1", "bad own")
    await _session(backend, "s2", "p")
    # ["own", \xff"]  and  "mentioned \xff"
    await _damage(backend, "bad own", "5b226f776e222c22ff225d")
    await _damage(backend, "bad other", "226d656e74696f6e656420ff22")
    expected = _counts(2, 0, 2, 1, unreadable=["bad other", "bad own"])
    assert expected == await _prune(state, dry=True)
    assert expected == await _prune(state)
    assert ["mentioned", "own"] == await _left(backend, "messages")


async def _damage(backend: Backend, progression_id: str, digits: str) -> None:
    await backend.execute(
        f"UPDATE progressions SET collection = CAST(x'{digits}' AS TEXT) WHERE id = :id", id=progression_id
    )


@pytest.mark.parametrize("text", ['{"0": "m"}', '"m"'])
async def test_json_that_is_no_array_is_as_unreadable(backend: Backend, state: Any, text: str) -> None:
    await _messages(backend, "m")
    await backend.put_progression("odd", text)
    await put_progression(backend, "p", "json", ["m"])
    await _session(backend, "s", "p")
    assert ["odd"] == (await _prune(state))["unreadable"]
    assert ["m"] == await _left(backend, "messages")


async def test_a_large_progression_goes_in_chunks(backend: Backend, state: Any) -> None:
    """Decision 18: it answers as missing at once, and its rows go a few at a time, the parent last."""
    ids = [f"m{number}" for number in range(10)]
    await put_progression(backend, "p", "items", ids)
    await _session(backend, "s", "p")
    await _prune(state)
    state_row = (await whole(backend, "p"))["state"][0]
    assert (Phase.BLOCKED, "deleting") == (state_row["phase"], state_row["blocked_reason"])
    assert [4, 4] == [await state.remove_deleted_rows(limit=4) for _ in range(2)]
    assert ["p"] == await _left(backend, progressions.name)
    assert 3 == await state.remove_deleted_rows(limit=4)
    assert 0 == await state.remove_deleted_rows(limit=4)
    assert [] == await _left(backend, progressions.name)


async def test_references_of_other_records_are_cut(backend: Backend, state: Any) -> None:
    """What is not of the session itself stays and loses it."""
    await put_progression(backend, "p", "json", [])
    await _session(backend, "s", "p")
    times = {"created_at": 1.0, "updated_at": 1.0}
    await put(backend, "artifacts", id="a", session_id="s", kind="k", name="n", content="{}", **times)
    await put(backend, "run_tags", session_id="s", tag="t", created_at=1.0)
    assert 1 == (await _prune(state))["sessions"]
    assert [{"session_id": None}] == await backend.rows("SELECT session_id FROM artifacts")
    assert [] == await backend.rows("SELECT * FROM run_tags")


async def test_wrong_arguments_change_nothing(backend: Backend, state: Any) -> None:
    await put_progression(backend, "p", "json", [])
    await _session(backend, "s", "p")
    calls = [
        method(before=before, after_id=after_id, limit=limit)
        for method in (state.prune_sessions, state.preview_prune)
        for before, after_id, limit in (
            (float("nan"), None, 1),
            ("1", None, 1),
            (CUT, 1, 1),
            (CUT, None, 0),
            (CUT, None, 101),
            (CUT, None, True),
        )
    ]
    calls += [state.remove_deleted_rows(limit=limit) for limit in (0, 10_001, "1")]
    await assert_refused_unchanged(backend, InvalidInputError, *calls)


async def test_pruning_at_once_takes_each_session_once(backend: Backend, state: Any) -> None:
    """Several at the same time, and appends meanwhile to a progression that stays."""
    await put_progression(backend, "live", "items", [])
    await _session(backend, "run", "live", status="running")
    for number in range(12):
        await put_progression(backend, f"p{number}", "json", [f"m{number}"])
        await _session(backend, f"s{number:02d}", f"p{number}")
    await _messages(backend, *(f"m{number}" for number in range(12)))
    found, *_ = await asyncio.gather(
        asyncio.gather(*(_prune(state, limit=3) for _ in range(4))),
        *(state.append_to_progression("live", f"m{number}") for number in range(6)),
    )
    assert 12 == sum(one["sessions"] for one in found)
    assert ["run"] == await _left(backend, "sessions")
    assert {f"m{number}" for number in range(6)} == set(await state.get_progression("live"))
