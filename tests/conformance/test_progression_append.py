"""Appends in every phase (ADR-0117 D2, D4, D6; design decisions 9, 11, 12, 15, 16, 22)."""

from __future__ import annotations

import asyncio
import json
import traceback
from typing import Any

import pytest

from lionstate.engine import Written
from lionstate.errors import MalformedCollectionError, ProgressionBlockedError, StateError
from lionstate.operations import OPERATIONS
from lionstate.progression.parsed import NeedsParse
from lionstate.progression.strict import strict_verdict
from tests.support.backends import Backend
from tests.support.collection_texts import VECTORS
from tests.support.phases import SHAPES, change_state, insert_items, put, whole

IDS = ["a", "b", "a"]
TAIL = ["d"]
ALL = IDS + TAIL
SERVED = [shape for shape in SHAPES if shape not in ("blocked-none", "deleting")]


async def _ordinals(backend: Backend, progression_id: str = "p") -> list[tuple[int, str]]:
    return [(row["ordinal"], row["message_id"]) for row in (await whole(backend, progression_id))["items"]]


async def _json(backend: Backend, progression_id: str = "p") -> Any:
    return json.loads((await whole(backend, progression_id))["parent"][0]["collection"])


@pytest.mark.parametrize("shape", SERVED)
async def test_a_duplicate_keeps_its_first_position(backend: Backend, state: Any, shape: str) -> None:
    await put(backend, "p", shape, IDS, TAIL)
    before = await whole(backend, "p")
    for message_id in ALL:
        await state.append_to_progression("p", message_id)
    assert before == await whole(backend, "p")
    await state.append_to_progression("p", "new")
    await state.append_to_progression("p", "new")
    assert [*ALL, "new"] == await state.get_progression("p")


@pytest.mark.parametrize("shape", SERVED)
async def test_what_an_append_writes(backend: Backend, state: Any, shape: str) -> None:
    """json: JSON. dual: JSON and item. items: item and allocator. blocked: by its authority, one of the two."""
    await put(backend, "p", shape, IDS, TAIL)
    before = await whole(backend, "p")
    await state.append_to_progression("p", "new")
    after = await whole(backend, "p")
    in_json = shape in ("absent", "json", "dual", "blocked-json")
    in_items = shape in ("dual", "items", "blocked-items")
    assert ([*ALL, "new"] if in_json else IDS) == await _json(backend)
    row = {"ordinal": len(ALL), "message_id": "new"}
    assert before["items"] + ([row] if in_items else []) == after["items"]
    if shape not in ("absent", "json"):
        moved = len(ALL) + (1 if in_items else 0)
        assert moved == after["state"][0]["next_ordinal"]
    unmoved = {"next_ordinal", "updated_at", "last_xact"}
    kept = [{key: value for key, value in row.items() if key not in unmoved} for row in before["state"]]
    assert kept == [{key: value for key, value in row.items() if key not in unmoved} for row in after["state"]]


async def test_a_duplicate_in_the_uncopied_prefix_is_no_new_item(backend: Backend, state: Any) -> None:
    """ADR-0117 D2: the item only if the JSON statement appended."""
    await put(backend, "p", "dual", IDS, TAIL, copied=0)
    await state.append_to_progression("p", "b")
    assert [(3, "d")] == await _ordinals(backend)


async def test_appends_to_tombstones_and_missing_ones_are_no_ops(backend: Backend, state: Any) -> None:
    await put(backend, "p", "deleting", IDS)
    before = await whole(backend, "p")
    await state.append_to_progression("p", "new")
    await state.append_to_progression("missing", "new")
    assert before == await whole(backend, "p")
    assert 1 == len(await backend.rows("SELECT id FROM progressions"))


async def test_without_an_authority_the_append_is_refused_alone(backend: Backend, state: Any) -> None:
    await put(backend, "p", "blocked-none", IDS)
    await put(backend, "good", "items", IDS)
    before = await whole(backend, "p")
    refused, written = await asyncio.gather(
        state.append_to_progression("p", "new"), state.append_to_progression("good", "new"), return_exceptions=True
    )
    assert isinstance(refused, ProgressionBlockedError)
    assert ("allocator_mismatch", None) == (refused.reason, written)
    assert before == await whole(backend, "p")
    assert [*IDS, "new"] == await state.get_progression("good")


@pytest.mark.parametrize("collection", ['["a"]', "{"])
async def test_an_append_that_finds_orphans_blocks_and_is_refused(
    backend: Backend, state: Any, collection: str
) -> None:
    """Decision 22: the refusal commits what it found; other appends of the batch go on."""
    await backend.put_progression("p", collection)
    await backend.put_progression("good", "[]")
    await insert_items(backend, "p", [(5, "a")])
    results = await asyncio.gather(
        state.append_to_progression("p", "new"),
        state.append_to_progression("good", "new"),
        state.append_to_progression("p", "a"),
        return_exceptions=True,
    )
    assert ["orphan_items", "orphan_items"] == [getattr(results[place], "reason", None) for place in (0, 2)]
    assert results[1] is None
    (found,) = (await whole(backend, "p"))["state"]
    assert ("blocked", "none", "orphan_items") == (found["phase"], found["authority"], found["blocked_reason"])
    assert found["generation"] > 0
    assert ["new"] == await state.get_progression("good")
    with pytest.raises(ProgressionBlockedError):
        await state.append_to_progression("p", "again")
    assert [found] == (await whole(backend, "p"))["state"]


@pytest.mark.parametrize("text", ['["a", "b"]', '["a", "b", "a", "d", "foreign"]', "[]"])
async def test_drift_of_a_dual_value_blocks_and_goes_to_json_only(backend: Backend, state: Any, text: str) -> None:
    """Decision 16: somebody else changed the value; authority json, and this append is not lost."""
    await put(backend, "p", "dual", IDS, TAIL)
    before = await whole(backend, "p")
    await backend.execute("UPDATE progressions SET collection = :text", text=text)
    await state.append_to_progression("p", "new")
    after = await whole(backend, "p")
    assert [*json.loads(text), "new"] == await state.get_progression("p") == await _json(backend)
    assert before["items"] == after["items"]
    found = after["state"][0]
    assert ("blocked", "json", "foreign_write") == (found["phase"], found["authority"], found["blocked_reason"])
    assert before["state"][0]["next_ordinal"] == found["next_ordinal"]
    await state.append_to_progression("p", "next")
    assert [*json.loads(text), "new", "next"] == await _json(backend)
    assert before["items"] == (await whole(backend, "p"))["items"]


async def test_drift_without_a_new_id_changes_nothing(backend: Backend, state: Any) -> None:
    await put(backend, "p", "dual", IDS, TAIL)
    await backend.execute("UPDATE progressions SET collection = '[\"a\"]'")
    before = await whole(backend, "p")
    await state.append_to_progression("p", "a")
    assert before == await whole(backend, "p")


@pytest.mark.parametrize("vector", VECTORS, ids=lambda vector: vector["name"])
async def test_every_vector_in_the_column(backend: Backend, state: Any, vector: dict[str, Any]) -> None:
    """fault 53: same reading on both databases; an append changes only the end, and never the verdict."""
    text = vector["text"]
    if not _storable(text, backend):
        return
    await backend.put_progression("p", text)
    if not vector["readable"]:
        with pytest.raises(MalformedCollectionError):
            await state.get_progression("p")
        with pytest.raises(MalformedCollectionError):
            await state.append_to_progression("p", "appended-id")
        assert text == (await whole(backend, "p"))["parent"][0]["collection"]
        return
    before = json.loads(text)
    # NaN has no form in JSON: over HTTP it is null.
    seen = [None if member != member and backend.state is not backend.direct else member for member in before]
    assert repr(seen) == repr(await state.get_progression("p"))
    assert len(before) == await state.count_progression_items("p")
    await state.append_to_progression("p", "appended-id")
    changed = (await whole(backend, "p"))["parent"][0]["collection"]
    assert repr([*seen, "appended-id"]) == repr(await state.get_progression("p"))
    end = text.rstrip(" \t\n\r")
    assert changed.startswith(end[:-1])
    assert changed.endswith(text[len(end) - 1 :])
    assert vector["code"] == strict_verdict(changed).code == strict_verdict(text).code


def _storable(text: str, backend: Backend) -> bool:
    """PostgreSQL's text holds no NUL, and no database text holds a lone surrogate: such values cannot be there."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return not (backend.is_postgresql and "\0" in text)


async def test_values_that_are_not_text_are_refused(backend: Backend, state: Any) -> None:
    """fault 56: a BLOB in the column of SQLite; PostgreSQL's column cannot hold one."""
    if backend.is_postgresql:
        return
    await backend.put_progression("p", b'["a"]')
    with pytest.raises(MalformedCollectionError) as caught:
        await state.append_to_progression("p", "new")
    assert "not_text" == caught.value.reason
    with pytest.raises(MalformedCollectionError):
        await state.get_progression("p")


async def test_text_that_is_not_utf8_is_never_quoted(backend: Backend, state: Any) -> None:
    """SQLite's driver quotes what it cannot decode: no error of ours does, nor a traceback of one in process."""
    if backend.is_postgresql:
        return
    await backend.put_progression("good", '["a"]')
    await backend.put_progression("p", "[]")
    await state.insert_message({"id": "m", "created_at": 1.0, "content": {}, "role": "user"})
    for table, column in (("progressions", "collection"), ("messages", "content")):
        await backend.execute(f"UPDATE {table} SET {column} = CAST(x'22534543524554FF22' AS TEXT) WHERE id <> 'good'")
    found = await asyncio.gather(
        state.get_message("m"),
        state.get_progression("p"),
        state.append_to_progression("p", "new"),
        state.append_to_progression("good", "b"),
        return_exceptions=True,
    )
    assert ["damaged_text", "malformed_collection", "malformed_collection", None] == [
        getattr(error, "code", error) for error in found
    ]
    assert ["not_text", "not_text"] == [getattr(error, "reason", None) for error in found[1:3]]
    assert "column content" in str(found[0])
    assert ["a", "b"] == await state.get_progression("good")
    for error in found[:3]:
        assert isinstance(error, StateError)
        assert "SECRET" not in "".join(traceback.format_exception(error))
    await state.set_progression("p", ["new"])
    assert ["new"] == await state.get_progression("p")


async def test_blocked_appends_are_counted(backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    """Decision 12."""
    state = backend.direct
    counted: list[str] = []
    observer = type(backend.direct.store.observer)
    monkeypatch.setattr(observer, "blocked_append", lambda _, authority: counted.append(authority))
    for shape in ("items", "blocked-json", "blocked-items"):
        await put(backend, shape, shape, IDS)
        await state.append_to_progression(shape, "new")
    assert ["json", "items"] == counted


LARGE = [f"{number:040d}" for number in range(5_000)]


async def test_a_large_value_is_parsed_outside_and_keeps_the_order(backend: Backend, state: Any) -> None:
    """Design §2.2: above 64 KiB the batch leaves the key, in order, until it is parsed."""
    await put(backend, "p", "absent", LARGE)
    assert 200_000 < len((await whole(backend, "p"))["parent"][0]["collection"])
    new = [f"n{number}" for number in range(50)]
    await asyncio.gather(*(state.append_to_progression("p", found) for found in [*new, LARGE[7], *new]))
    assert LARGE + new == await state.get_progression("p")


async def test_text_that_changed_in_between_is_parsed_again(backend: Backend, state: Any) -> None:
    await put(backend, "p", "dual", LARGE)
    await state.append_to_progression("p", "n1")
    await state.append_to_progression("p", "n2")
    spaced = json.dumps([*LARGE, "n1", "n2"], separators=(",  ", ":"))
    await backend.execute("UPDATE progressions SET collection = :text", text=spaced)
    await asyncio.gather(*(state.append_to_progression("p", found) for found in ("n3", "n1", "n4")))
    assert [*LARGE, "n1", "n2", "n3", "n4"] == await state.get_progression("p")
    assert "dual" == (await whole(backend, "p"))["state"][0]["phase"]


async def _in_one_batch(backend: Backend, *calls: tuple[str, Any]) -> None:
    """Calls that enter the queue together, in order."""
    named = []
    for name, value in calls:
        parameter = "message_id" if name == "append_to_progression" else "collection"
        named.append((OPERATIONS[name], {"progression_id": "p", parameter: value}))
    outcomes = await backend.direct.store.run_batch(named, atomic=False)
    assert [Written(None)] * len(calls) == outcomes


async def test_an_append_waiting_for_its_parse_is_not_overtaken(backend: Backend, state: Any) -> None:
    """Append and replacement of one key keep the order of arrival, also across a parse."""
    await put(backend, "p", "absent", LARGE)
    await _in_one_batch(
        backend, ("append_to_progression", "before"), ("set_progression", ["x"]), ("append_to_progression", "after")
    )
    assert ["x", "after"] == await state.get_progression("p")


async def test_calls_behind_a_parse_wait_for_it(backend: Backend, state: Any) -> None:
    """The first replacement is settled, its key stays taken while the append behind it is parsed."""
    await put(backend, "p", "absent", [])
    first = _in_one_batch(
        backend,
        ("set_progression", [*LARGE, "y"]),
        ("append_to_progression", "one"),
        ("set_progression", [*LARGE, "z"]),
        ("append_to_progression", "two"),
    )
    await asyncio.gather(first, *(state.append_to_progression("p", f"n{number}") for number in range(20)))
    found = await state.get_progression("p")
    kept = [message_id for message_id in found if not message_id.startswith("n")]
    assert [*LARGE, "z", "two"] == kept


async def test_a_key_stays_taken_while_one_of_its_calls_is_parsed(backend: Backend) -> None:
    """What arrives after the batch's first call has ended runs behind its second, which went round."""
    await put(backend, "p", "absent", [])
    overtaking: list[asyncio.Task[None]] = []
    queue = backend.direct.store.queue

    def arrive(_written: Any) -> None:
        if not overtaking:
            overtaking.append(asyncio.ensure_future(backend.direct.set_progression("p", ["x"])))

    queue.on_commit.append(arrive)
    await _in_one_batch(backend, ("set_progression", LARGE), ("append_to_progression", "one"))
    await overtaking[0]
    assert ["x"] == await backend.direct.get_progression("p")


async def test_a_value_that_others_keep_changing_is_parsed_under_its_lock(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody else's append lands between every parse and the transaction after it; ours is written all the same."""
    await put(backend, "p", "absent", LARGE)
    parsed = backend.direct.store.parsed
    learn, changes = parsed.learn, 0

    async def and_change(need: NeedsParse, run_pure: Any) -> None:
        nonlocal changes
        await learn(need, run_pure)
        changes += 1
        text = json.dumps([*LARGE, f"foreign{changes}"])
        await backend.execute("UPDATE progressions SET collection = :text", text=text)

    monkeypatch.setattr(parsed, "learn", and_change)
    await backend.direct.append_to_progression("p", "ours")
    assert [*LARGE, "foreign5", "ours"] == await backend.direct.get_progression("p")


async def test_the_same_text_put_back_between_two_appends(backend: Backend, state: Any) -> None:
    """Both appends of the batch use one kept parse, which only the first can hand over."""
    await put(backend, "p", "absent", ["a"])
    await state.append_to_progression("p", "x")
    await _in_one_batch(
        backend, ("append_to_progression", "b"), ("set_progression", ["a", "x"]), ("append_to_progression", "c")
    )
    await state.append_to_progression("p", "d")
    assert ["a", "x", "c", "d"] == await state.get_progression("p")


async def test_a_pair_twice_in_one_batch_gets_one_ordinal(backend: Backend, state: Any) -> None:
    """A set-based insert does not see its own rows."""
    await put(backend, "p", "items", IDS)
    await asyncio.gather(*(state.append_to_progression("p", found) for found in ("x", "x", "a", "y", "x")))
    assert [*enumerate(IDS), (3, "x"), (4, "y")] == await _ordinals(backend)


async def test_an_unblocked_phase_goes_on_where_it_was(backend: Backend, state: Any) -> None:
    await put(backend, "p", "blocked-items", IDS, TAIL)
    await state.append_to_progression("p", "e")
    await change_state(backend, "p", phase="items", blocked_reason=None)
    await state.append_to_progression("p", "f")
    assert [*ALL, "e", "f"] == await state.get_progression("p")
