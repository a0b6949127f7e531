"""Create, replace and delete whole progressions (ADR-0117 D2; design decisions 3, 4, 8, 9, 14, 18, 21)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lionstate.errors import (
    BackendError,
    ConflictError,
    ForeignKeyError,
    InvalidInputError,
    ProgressionBlockedError,
)
from lionstate.progression import delete
from lionstate.progression.collection import prepare
from lionstate.schema import fence_exists, remove_fence
from tests.support.backends import Backend
from tests.support.phases import SHAPES, change_state, insert_items, put, run, whole

OLD = ["a", "b", "a"]
TAIL = ["d"]
NEW = ["x", "y", "x", "ü", "z"]
DELETING = delete.remove_tombstone_chunk


async def _normalized(backend: Backend, *, is_on: bool) -> None:
    await backend.execute(
        "UPDATE migration_control SET value = :value WHERE key = 'storage.normalized'", value=json.dumps(is_on)
    )


def _is_exact(found: dict[str, Any], ids: list[str]) -> None:
    """The state row of a progression whose JSON and items are both this collection."""
    prepared = prepare(ids)
    assert (len(ids), len(ids), len(ids)) == (found["next_ordinal"], found["frozen_count"], found["source_count"])
    assert prepared.digest == found["source_digest"] == found["items_digest"]
    assert (prepared.text_bytes, prepared.text_sha256) == (found["text_bytes"], found["text_sha256"])
    assert 0 == found["replacing"]


@pytest.mark.parametrize("ids", [[], NEW, [f"m{number}" for number in range(12_001)]])
async def test_born_in_items(backend: Backend, state: Any, ids: list[str]) -> None:
    """Decision 8."""
    await state.create_progression("p", ids)
    rows = await whole(backend, "p")
    (found,) = rows["state"]
    assert ("items", "items") == (found["phase"], found["authority"])
    _is_exact(found, ids)
    assert found["cutover_at"] is not None
    assert list(enumerate(ids)) == [(row["ordinal"], row["message_id"]) for row in rows["items"]]
    assert ids == json.loads(rows["parent"][0]["collection"]) == await state.get_progression("p")
    await change_state(backend, "p", compat_read=1)
    await state.append_to_progression("p", "later")
    assert [*ids, "later"] == await state.get_progression("p")


@pytest.mark.parametrize("collection", [None, NEW])
async def test_born_in_json_while_normalized_storage_is_off(
    backend: Backend, state: Any, collection: list[str] | None
) -> None:
    await _normalized(backend, is_on=False)
    await state.create_progression("p", collection)
    rows = await whole(backend, "p")
    assert ([], []) == (rows["state"], rows["items"])
    assert (collection or []) == await state.get_progression("p")


@pytest.mark.parametrize("shape", [shape for shape in SHAPES if shape != "deleting"])
async def test_an_existing_progression_is_left_alone(backend: Backend, state: Any, shape: str) -> None:
    await put(backend, "p", shape, OLD, TAIL)
    before = await whole(backend, "p")
    await state.create_progression("p", NEW)
    assert before == await whole(backend, "p")


async def test_the_first_birth_in_items_installs_the_fence(backend: Backend, state: Any) -> None:
    """Decision 21: before the first such row, unless the operator has turned it off."""
    await run(backend.direct, remove_fence)
    await state.append_to_progression("p", "a")
    await _normalized(backend, is_on=False)
    await state.create_progression("json")
    assert not await run(backend.direct, fence_exists)
    await _normalized(backend, is_on=True)
    await backend.execute(
        "INSERT INTO migration_control (key, value, actor, updated_at) VALUES ('fence.off', 'true', 'test', 1.0)"
    )
    await state.create_progression("unfenced", NEW)
    assert not await run(backend.direct, fence_exists)
    await backend.execute("DELETE FROM migration_control WHERE key = 'fence.off'")
    await state.create_progression("p", NEW)
    assert await run(backend.direct, fence_exists)


@pytest.mark.parametrize("bad", ["", "x\0", "\ud800", "x" * 1_025, 7, None])
@pytest.mark.parametrize("shape", ["absent", "dual", "items", "blocked-items", "missing"])
async def test_a_bad_element_changes_nothing(backend: Backend, state: Any, shape: str, bad: object) -> None:
    """fault 30: a bad element at position 3."""
    if shape != "missing":
        await put(backend, "p", shape, OLD, TAIL)
    before = await whole(backend, "p")
    for write in (state.set_progression, state.create_progression):
        with pytest.raises(InvalidInputError) as caught:
            await write("p", ["a", "b", "c", bad])
        if not backend.name.startswith("daemon"):
            assert "position 3" in str(caught.value)
    assert before == await whole(backend, "p")


@pytest.mark.parametrize("bad", ["abc", 7, b"abc"])
async def test_a_collection_is_a_sequence(state: Any, bad: object) -> None:
    with pytest.raises(InvalidInputError):
        await state.create_progression("p", bad)


async def test_none_is_the_empty_collection(state: Any) -> None:
    await state.create_progression("p", tuple(NEW))
    await state.set_progression("p", OLD)
    assert OLD == await state.get_progression("p")
    await state.set_progression("p", None)
    assert [] == await state.get_progression("p")


_FAIL = {
    "sqlite": (
        "CREATE TRIGGER fail_second BEFORE INSERT ON progression_items WHEN NEW.ordinal = 1"
        " BEGIN SELECT RAISE(ABORT, 'made to fail'); END",
        "DROP TRIGGER fail_second",
    ),
    "postgresql": (
        "CREATE FUNCTION fail_second() RETURNS trigger LANGUAGE plpgsql AS"
        " $$BEGIN IF NEW.ordinal = 1 THEN RAISE EXCEPTION 'made to fail'; END IF; RETURN NEW; END$$",
        "CREATE TRIGGER fail_second BEFORE INSERT ON progression_items FOR EACH ROW EXECUTE FUNCTION fail_second()",
        "DROP TRIGGER fail_second ON progression_items",
        "DROP FUNCTION fail_second()",
    ),
}


@pytest.mark.parametrize("shape", ["dual", "items", "blocked-items", "blocked-none"])
async def test_a_replacement_that_fails_half_way_changes_nothing(backend: Backend, state: Any, shape: str) -> None:
    """fault 30: a trigger that fails the second item insert."""
    await put(backend, "p", shape, OLD, TAIL)
    before = await whole(backend, "p")
    statements = _FAIL[backend.direct.dialect]
    for statement in statements[: len(statements) // 2]:
        await backend.execute(statement)
    try:
        with pytest.raises((BackendError, ConflictError)):
            await state.set_progression("p", NEW)
        assert before == await whole(backend, "p")
    finally:
        for statement in statements[len(statements) // 2 :]:
            await backend.execute(statement)
    await state.set_progression("p", NEW)
    assert NEW == await state.get_progression("p")


@pytest.mark.parametrize("shape", ["absent", "missing"])
async def test_without_a_state_row_none_is_made(backend: Backend, state: Any, shape: str) -> None:
    """ADR-0117 D2: absent or json; a missing row is not created, and is no error."""
    if shape == "absent":
        await put(backend, "p", shape, OLD)
    await state.set_progression("p", NEW)
    rows = await whole(backend, "p")
    assert ([], []) == (rows["state"], rows["items"])
    assert (NEW if shape == "absent" else []) == await state.get_progression("p")
    assert (shape == "absent") == bool(rows["parent"])


@pytest.mark.parametrize("shape", [shape for shape in SHAPES if shape not in ("absent", "deleting")])
async def test_the_phase_stays_and_the_generation_changes(backend: Backend, state: Any, shape: str) -> None:
    await put(backend, "p", shape, OLD, TAIL)
    before = (await whole(backend, "p"))["state"][0]
    await state.set_progression("p", NEW)
    rows = await whole(backend, "p")
    found = rows["state"][0]
    assert before["generation"] != found["generation"]
    assert (before["phase"], before["blocked_reason"]) == (found["phase"], found["blocked_reason"])
    assert NEW == await state.get_progression("p") == json.loads(rows["parent"][0]["collection"])
    for message_id in ("y", "next"):
        await state.append_to_progression("p", message_id)
    assert [*NEW, "next"] == await state.get_progression("p")


async def test_a_dual_progression_starts_over(backend: Backend, state: Any) -> None:
    """ADR-0117 D2: the copied prefix and any verification are discarded; it must verify again."""
    await put(backend, "p", "dual", OLD, TAIL)
    await change_state(backend, "p", source_digest="old", items_digest="old", verify_misses=2)
    await state.set_progression("p", NEW)
    rows = await whole(backend, "p")
    found = rows["state"][0]
    assert ("dual", "json") == (found["phase"], found["authority"])
    assert (5, 0, 5) == (found["source_count"], found["backfill_next"], found["next_ordinal"])
    assert (None, None, None, 0) == tuple(
        found[name] for name in ("frozen_count", "source_digest", "items_digest", "verify_misses")
    )
    assert list(enumerate(NEW)) == [(row["ordinal"], row["message_id"]) for row in rows["items"]]


@pytest.mark.parametrize("shape", ["items", "blocked-items", "blocked-none"])
async def test_an_items_progression_has_an_exact_prefix_and_no_tail(backend: Backend, state: Any, shape: str) -> None:
    """ADR-0117 D2: compat read returns the replacement and nothing else; decision 14 for blocked rows."""
    await put(backend, "p", shape, OLD, TAIL)
    await state.set_progression("p", NEW)
    rows = await whole(backend, "p")
    _is_exact(rows["state"][0], NEW)
    assert "items" == rows["state"][0]["authority"]
    assert list(enumerate(NEW)) == [(row["ordinal"], row["message_id"]) for row in rows["items"]]
    await change_state(backend, "p", compat_read=1)
    assert NEW == await state.get_progression("p")
    await state.append_to_progression("p", "tail")
    assert [*NEW, "tail"] == await state.get_progression("p")
    assert NEW == json.loads((await whole(backend, "p"))["parent"][0]["collection"])


async def test_a_blocked_json_progression_keeps_only_its_json(backend: Backend, state: Any) -> None:
    """Decision 14: JSON only, shadow rows removed."""
    await put(backend, "p", "blocked-json", OLD, TAIL)
    await state.set_progression("p", NEW)
    rows = await whole(backend, "p")
    assert [] == rows["items"]
    assert ("blocked", "json") == (rows["state"][0]["phase"], rows["state"][0]["authority"])


async def test_a_rolled_back_progression_loses_its_shadow_rows(backend: Backend, state: Any) -> None:
    await put(backend, "p", "dual", OLD, TAIL)
    await change_state(backend, "p", phase="json", shadow_rows=1)
    await state.set_progression("p", NEW)
    rows = await whole(backend, "p")
    assert ([], 0, "json") == (rows["items"], rows["state"][0]["shadow_rows"], rows["state"][0]["phase"])


async def test_replacing_orphans_answers_for_both_representations(backend: Backend, state: Any) -> None:
    await backend.put_progression("p", "[]")
    await insert_items(backend, "p", [(3, "left")])
    await state.set_progression("p", NEW)
    found = (await whole(backend, "p"))["state"][0]
    assert ("blocked", "items", "orphan_items") == (found["phase"], found["authority"], found["blocked_reason"])
    assert NEW == await state.get_progression("p")


async def test_a_contradictory_row_is_not_replaced(backend: Backend, state: Any) -> None:
    await put(backend, "p", "items", OLD)
    await change_state(backend, "p", authority="none")
    before = await whole(backend, "p")
    with pytest.raises(ProgressionBlockedError):
        await state.set_progression("p", NEW)
    assert before == await whole(backend, "p")


_SQLITE_APPEND = (
    "UPDATE progressions SET collection = json_insert(collection, '$[#]', :mid) WHERE id = 'p'"
    " AND NOT EXISTS (SELECT 1 FROM json_each(progressions.collection) WHERE value = :mid)"
)
_POSTGRESQL_APPEND = (
    "UPDATE progressions SET collection = CAST(CAST(collection AS jsonb) || to_jsonb(CAST(:mid AS text)) AS text)"
    " WHERE id = 'p' AND NOT EXISTS (SELECT 1 FROM jsonb_array_elements_text(CAST(collection AS jsonb)) AS e(value)"
    " WHERE e.value = :mid)"
)


@pytest.mark.parametrize("shape", ["items", "blocked-items", "blocked-none", "deleting"])
async def test_the_fence_refuses_old_writers(backend: Backend, state: Any, shape: str) -> None:
    """Decision 21: LionAGI's wholesale update (W2, W4) and its guarded append (W3), as it sends them."""
    await put(backend, "p", shape, OLD, TAIL)
    before = await whole(backend, "p")
    appending = _POSTGRESQL_APPEND if backend.is_postgresql else _SQLITE_APPEND
    foreign = {
        "W2": ("UPDATE progressions SET collection = :text WHERE id = 'p'", {"text": '["other"]'}),
        "W3": (appending, {"mid": "other"}),
        "W4": ("UPDATE progressions SET collection = :text WHERE id = 'p'", {"text": json.dumps([*OLD, "other"])}),
    }
    for statement, params in foreign.values():
        with pytest.raises(ConflictError):
            await backend.execute(statement, **params)
    assert before == await whole(backend, "p")
    # A duplicate matches no row, and the value put back as it is is no change.
    await backend.execute(appending, mid="a")
    await backend.execute("UPDATE progressions SET collection = collection WHERE id = 'p'")
    await state.set_progression("p", NEW)
    assert ([] if shape == "deleting" else NEW) == await state.get_progression("p")


@pytest.mark.parametrize("shape", ["absent", "json", "dual", "blocked-json"])
async def test_the_fence_lets_a_json_authority_be(backend: Backend, state: Any, shape: str) -> None:
    await state.create_progression("other", [])
    await put(backend, "p", shape, OLD)
    await backend.execute("UPDATE progressions SET collection = '[\"foreign\"]' WHERE id = 'p'")
    assert ["foreign"] == await state.get_progression("p")


@pytest.mark.parametrize("shape", [shape for shape in SHAPES if shape != "deleting"])
async def test_a_small_delete_takes_everything_along(backend: Backend, state: Any, shape: str) -> None:
    await put(backend, "p", shape, OLD, TAIL)
    assert await state.delete_progression("p") is True
    assert {"parent": [], "state": [], "items": []} == await whole(backend, "p")
    assert False is await state.delete_progression("p")
    await state.create_progression("p", NEW)
    assert NEW == await state.get_progression("p")


async def _session(backend: Backend, progression_id: str) -> None:
    await backend.execute(
        "INSERT INTO sessions (id, created_at, updated_at, progression_id) VALUES ('s', 1.0, 1.0, :pid)",
        pid=progression_id,
    )


@pytest.mark.parametrize("small_rows", [5_000, 1])
@pytest.mark.parametrize("by", ["session", "branch"])
async def test_a_referenced_progression_is_not_deleted(
    backend: Backend, state: Any, by: str, small_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither at once, where the database would refuse too, nor by a tombstone."""
    monkeypatch.setattr(delete, "SMALL_ROWS", small_rows)
    await put(backend, "p", "items", OLD)
    await put(backend, "other", "items", OLD)
    await _session(backend, "p" if by == "session" else "other")
    if by == "branch":
        await backend.execute(
            "INSERT INTO branches (id, created_at, session_id, progression_id) VALUES ('b', 1.0, 's', 'p')"
        )
    before = await whole(backend, "p")
    with pytest.raises(ForeignKeyError):
        await state.delete_progression("p")
    assert before == await whole(backend, "p")


async def test_a_large_delete_answers_as_missing_and_goes_in_chunks(
    backend: Backend, state: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Decision 18: the parent last, resumable, the id not free until its rows are gone."""
    monkeypatch.setattr(delete, "SMALL_ROWS", 10)
    ids = [f"m{number}" for number in range(25)]
    await state.create_progression("p", ids)
    generation = await state.get_progression_generation("p")
    assert await state.delete_progression("p") is True
    found = (await whole(backend, "p"))["state"][0]
    assert ("blocked", "none", "deleting") == (found["phase"], found["authority"], found["blocked_reason"])
    assert generation != found["generation"]
    assert ["p"] == await run(backend.direct, lambda conn: delete.list_tombstones(conn, limit=5))
    assert 25 == len((await whole(backend, "p"))["items"])
    assert False is await state.delete_progression("p")
    await state.append_to_progression("p", "x")
    await state.set_progression("p", NEW)
    assert [] == await state.get_progression("p")
    steps = []
    for _ in range(4):
        with pytest.raises(ConflictError):
            await state.create_progression("p", NEW)
        chunk = await run(backend.direct, lambda conn: DELETING(conn, "p", limit=8))
        steps.append((chunk.rows, chunk.is_done))
        assert steps[-1][1] == (not (await whole(backend, "p"))["parent"])
        if chunk.is_done:
            break
    assert [(8, False), (8, False), (8, False), (1, True)] == steps
    assert {"parent": [], "state": [], "items": []} == await whole(backend, "p")
    await state.create_progression("p", NEW)
    assert NEW == await state.get_progression("p")


async def test_a_json_progression_with_many_shadow_rows_gets_a_tombstone_too(
    backend: Backend, state: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(delete, "SMALL_ROWS", 2)
    await run(backend.direct, remove_fence)
    await backend.put_progression("p", "[]")
    await insert_items(backend, "p", [(0, "a"), (1, "b"), (2, "c")])
    assert await state.delete_progression("p") is True
    assert "deleting" == (await whole(backend, "p"))["state"][0]["blocked_reason"]
    assert await run(backend.direct, fence_exists)
    assert [] == await state.get_progression("p")


async def test_a_tombstone_that_a_foreign_process_pointed_at_keeps_its_parent(backend: Backend, state: Any) -> None:
    await put(backend, "p", "deleting", OLD)
    await _session(backend, "p")
    chunk = await run(backend.direct, lambda conn: DELETING(conn, "p", limit=100))
    assert (3, False, True) == (chunk.rows, chunk.is_done, chunk.is_referenced)
    await backend.execute("DELETE FROM sessions")
    assert (await run(backend.direct, lambda conn: DELETING(conn, "p", limit=100))).is_done
    assert [] == (await whole(backend, "p"))["parent"]


async def test_only_tombstones_are_removed(backend: Backend, state: Any) -> None:
    await put(backend, "p", "items", OLD)
    before = await whole(backend, "p")
    chunk = await run(backend.direct, lambda conn: DELETING(conn, "p", limit=100))
    assert (0, True) == (chunk.rows, chunk.is_done)
    with pytest.raises(InvalidInputError):
        await run(backend.direct, lambda conn: DELETING(conn, "p", limit=0))
    assert before == await whole(backend, "p")


async def test_pruned_messages_leave_their_ids(backend: Backend, state: Any) -> None:
    """ADR-0117 D1, D6: no foreign key to messages; a membership outlives its message row."""
    await backend.execute(
        "INSERT INTO messages (id, created_at, content, role, lion_class) VALUES ('m', 1.0, '{}', 'user', 2)"
    )
    await state.create_progression("p", ["m", "never-created"])
    await backend.execute("DELETE FROM messages WHERE id = 'm'")
    await state.append_to_progression("p", "also-never")
    await state.append_to_progression("p", "m")
    assert ["m", "never-created", "also-never"] == await state.get_progression("p")
