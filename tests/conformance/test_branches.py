"""Branches: creation, reads, changes, and their messages in order (ADR-0055 D1, D3)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lionstate.errors import ForeignKeyError, InvalidInputError, MalformedCollectionError, ProgressionBlockedError
from tests.support.backends import Backend
from tests.support.conversations import conversation, message, stored_message


async def test_a_branch_reads_as_it_was_created(backend: Backend, state: Any) -> None:
    await conversation(backend)
    await state.insert_message(message("m"))
    given = {
        "id": "b2",
        "created_at": 1.5,
        "node_metadata": {"k": 1},
        "user": "u",
        "name": "n",
        "session_id": "s",
        "progression_id": "bp",
        "system_msg_id": "m",
        "model": "mo",
        "provider": "p",
        "agent_name": "a",
        "status": "running",
        "started_at": 2.0,
        "ended_at": 3.0,
    }
    await state.create_branch(given)
    assert given == await state.get_branch("b2")
    await state.create_branch({**given, "name": "other", "session_id": "missing"})
    assert given == await state.get_branch("b2")
    await state.create_branch({"id": "b3", "session_id": "s", "progression_id": "bp"})
    assert (await state.get_branch("b3"))["created_at"] > 1_000_000_000.0
    assert await state.get_branch("missing") is None


async def test_what_is_refused_changes_nothing(backend: Backend, state: Any) -> None:
    await conversation(backend)
    good = {"id": "b2", "session_id": "s", "progression_id": "bp"}
    for missing in good:
        with pytest.raises(InvalidInputError):
            await state.create_branch({name: value for name, value in good.items() if name != missing})
    with pytest.raises(InvalidInputError):
        await state.create_branch({**good, "started_at": "now"})
    for broken in ({"session_id": "x"}, {"progression_id": "x"}, {"system_msg_id": "x"}):
        with pytest.raises(ForeignKeyError):
            await state.create_branch({**good, **broken})
    assert await state.get_branch("b2") is None


async def test_branches_are_listed_oldest_first(backend: Backend, state: Any) -> None:
    await conversation(backend)
    for name, at in (("z", 1.0), ("y", 3.0), ("x", 3.0)):
        await state.create_branch({"id": name, "session_id": "s", "progression_id": "bp", "created_at": at})
    assert ["z", "b", "x", "y"] == [row["id"] for row in await state.list_branches("s")]
    assert [] == await state.list_branches("missing")


async def test_only_writable_columns_are_updated(backend: Backend, state: Any) -> None:
    await conversation(backend)
    await state.insert_message(message("m"))
    before = await state.get_branch("b")
    changes = {
        "name": "n",
        "user": "u",
        "node_metadata": {"a": 1},
        "system_msg_id": "m",
        "model": "mo",
        "provider": "p",
        "agent_name": "a",
        "status": "completed",
        "started_at": 1.0,
        "ended_at": 2.0,
    }
    await state.update_branch("b", **changes)
    assert {**before, **changes} == await state.get_branch("b")
    await state.update_branch("b")
    await state.update_branch("missing", name="x")
    for bad in ({"session_id": "s"}, {"created_at": 1.0}, {"no_such": 1}, {"name": 5}, {"ended_at": "x"}):
        with pytest.raises(InvalidInputError):
            await state.update_branch("b", **{"name": "changed", **bad})
    with pytest.raises(ForeignKeyError):
        await state.update_branch("b", name="changed", system_msg_id="missing")
    await state.update_branch("b", name=None)
    assert {**before, **changes, "name": None} == await state.get_branch("b")


@pytest.mark.parametrize("items", [False, True], ids=["json", "items"])
async def test_messages_come_in_the_order_of_the_progression(backend: Backend, state: Any, items: bool) -> None:
    """More than one page of 500 ids, which LionAGI's one IN list could not hold for ever (reference 4, row 18)."""
    await conversation(backend, items=items)
    ids = [f"m{number:04d}" for number in range(1_100)]
    await state.insert_messages([message(found) for found in ids], progression_ids=["bp"])
    await state.append_to_progression("bp", "no row")
    await state.append_to_progression("bp", "m-last")
    await state.insert_message(message("m-last"))
    expected = [stored_message(found) for found in [*ids, "m-last"]]
    assert expected == await state.get_branch_messages("b")
    assert [] == await state.get_branch_messages("missing")


async def test_legacy_values_read_one_row_per_position(backend: Backend, state: Any) -> None:
    """Duplicates keep their positions; elements that are no ids have no row."""
    await conversation(backend)
    await state.insert_messages([message("a"), message("b")])
    await backend.execute(
        "UPDATE progressions SET collection = :value WHERE id = 'bp'",
        value=json.dumps(["b", "a", 7, None, "a\0", "b", {"x": 1}]),
    )
    assert ["b", "a", "b"] == [row["id"] for row in await state.get_branch_messages("b")]


async def test_an_order_that_cannot_be_trusted_is_an_error(backend: Backend, state: Any) -> None:
    await conversation(backend, items=True)
    await backend.put_progression("bad", '{"a": 1}')
    await state.create_branch({"id": "b2", "session_id": "s", "progression_id": "bad"})
    with pytest.raises(MalformedCollectionError):
        await state.get_branch_messages("b2")
    await backend.execute(
        "UPDATE progression_storage_state SET phase = 'blocked', authority = 'none', blocked_reason = 'digest_mismatch'"
    )
    with pytest.raises(ProgressionBlockedError):
        await state.get_branch_messages("b")


async def test_repair_fills_only_what_is_missing(backend: Backend, state: Any) -> None:
    """A store in the field may hold a NULL here; the tables that lionstate creates cannot."""
    await conversation(backend)
    await backend.put_progression("new", "[]")
    assert "bp" == await state.repair_branch_progression("b", "new")
    assert "sp" == await state.repair_session_progression("s", "new")
    assert await state.repair_branch_progression("missing", "new") is None
    assert await state.repair_session_progression("missing", "new") is None
    if not backend.is_postgresql:
        return
    for table in ("branches", "sessions"):
        await backend.execute(f"ALTER TABLE {table} ALTER COLUMN progression_id DROP NOT NULL")
        await backend.execute(f"UPDATE {table} SET progression_id = NULL")
    try:
        with pytest.raises(ForeignKeyError):
            await state.repair_branch_progression("b", "no such")
        assert [] == await state.get_branch_messages("b")
        assert "new" == await state.repair_branch_progression("b", "new")
        assert "new" == await state.repair_session_progression("s", "new")
        assert "new" == (await state.get_branch("b"))["progression_id"]
        assert "new" == (await state.get_session("s"))["progression_id"]
    finally:
        for table in ("branches", "sessions"):
            await backend.execute(f"ALTER TABLE {table} ALTER COLUMN progression_id SET NOT NULL")
