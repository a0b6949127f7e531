"""An imported session goes with what only it holds; what anything else holds stays, wherever it is held."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from lionstate.errors import InvalidInputError
from lionstate.progression.append import append_to_progression
from tests.support.backends import Backend
from tests.support.phases import put as put_progression
from tests.support.records import assert_refused_unchanged, put

KIND = "imported_fs"


async def _messages(backend: Backend, *ids: str) -> None:
    for message_id in ids:
        await put(backend, "messages", id=message_id, created_at=1.0, content="{}", role="user", lion_class=0)


async def _session(backend: Backend, session_id: str, progression_id: str, **columns: Any) -> None:
    row = {"created_at": 1.0, "updated_at": 1.0, "source_kind": KIND, "progression_id": progression_id, **columns}
    await put(backend, "sessions", id=session_id, **row)


async def _branch(backend: Backend, branch_id: str, session_id: str, progression_id: str, **columns: Any) -> None:
    row = {"created_at": 1.0, "session_id": session_id, "progression_id": progression_id, **columns}
    await put(backend, "branches", id=branch_id, **row)


async def _left(backend: Backend, table: str) -> list[str]:
    return sorted(row["id"] for row in await backend.rows(f'SELECT id FROM "{table}"'))


async def _delete(state: Any, session_id: str = "s", kind: str = KIND) -> bool:
    deleted: bool = await state.delete_imported_session(session_id, require_source_kind=kind)
    return deleted


async def test_only_imported_sessions_of_the_named_kind_go(backend: Backend, state: Any) -> None:
    await put_progression(backend, "p", "json", [])
    await _session(backend, "s", "p")
    await _session(backend, "live", "p", source_kind="live")
    await assert_refused_unchanged(
        backend,
        InvalidInputError,
        _delete(state, "s\0"),
        state.delete_imported_session("s", require_source_kind=None),
    )
    for session_id, kind in (("m", KIND), ("s", "imported_codex"), ("live", "live"), ("live", KIND), ("s", "")):
        assert not await _delete(state, session_id, kind)
    assert ["live", "s"] == await _left(backend, "sessions")


@pytest.mark.parametrize("shape", ["absent", "json", "dual", "items", "blocked-json", "blocked-items"])
async def test_its_messages_go_by_the_authority_of_its_progressions(backend: Backend, state: Any, shape: str) -> None:
    await _messages(backend, "a", "b", "tail", "branch", "other")
    await put_progression(backend, "p", shape, ["a", "b"], ["tail"])
    await put_progression(backend, "q", "items", ["branch", "pruned"])
    await _session(backend, "s", "p")
    await _branch(backend, "x", "s", "q")
    assert await _delete(state)
    assert ["other"] == await _left(backend, "messages")
    assert ([], []) == (await _left(backend, "sessions"), await _left(backend, "branches"))
    assert [[], []] == [await state.get_progression(name) for name in "pq"]
    states = await backend.rows("SELECT phase, blocked_reason FROM progression_storage_state")
    assert [{"phase": "blocked", "blocked_reason": "deleting"}] * 2 == states
    assert not await _delete(state)


async def test_messages_of_a_progression_that_cannot_be_read_stay(backend: Backend, state: Any) -> None:
    await _messages(backend, "a", "b")
    await put_progression(backend, "p", "blocked-none", ["a"])
    await backend.put_progression("q", '["b"')
    await _session(backend, "s", "p")
    await _branch(backend, "x", "s", "q")
    assert await _delete(state)
    assert ["a", "b"] == await _left(backend, "messages")
    assert [] == await _left(backend, "sessions")


@pytest.mark.parametrize("shape", ["absent", "json", "dual", "items", "blocked-json", "blocked-items"])
async def test_messages_that_another_progression_holds_stay(backend: Backend, state: Any, shape: str) -> None:
    """Also those that only the relational tail of another progression holds."""
    await _messages(backend, "mine", "prefix", "tail")
    await put_progression(backend, "other", shape, ["prefix"], ["tail"])
    await put_progression(backend, "p", "items", ["mine", "prefix", "tail"])
    await _session(backend, "s", "p")
    assert await _delete(state)
    assert ["prefix", "tail"] == await _left(backend, "messages")


async def test_what_is_being_deleted_holds_nothing(backend: Backend, state: Any) -> None:
    await _messages(backend, "a", "b")
    for name, ids in (("p", ["a", "b"]), ("q", ["b"])):
        await put_progression(backend, name, "items", ids)
        await _session(backend, f"s-{name}", name)
    assert await _delete(state, "s-p")
    assert ["b"] == await _left(backend, "messages")
    assert await _delete(state, "s-q")
    assert [] == await _left(backend, "messages")


@pytest.mark.parametrize(
    ("value", "holds"),
    [
        ('["a"', False),
        ('{"a": 1}', False),
        ("null", False),
        ('[NaN, "a"]', True),
        ('["a", "\\u0000"]', True),
        ('[1, "a"]', True),
        ('["\\ud800", "\\u0061"]', True),
        ("", False),
    ],
)
async def test_one_odd_collection_spoils_no_other(backend: Backend, state: Any, value: str, holds: bool) -> None:
    await _messages(backend, "a", "b", "c")
    await backend.put_progression("odd", value)
    for number in range(5):
        await backend.put_progression(f"o{number}", '["b"]')
    await put_progression(backend, "p", "absent", ["a", "b", "c"])
    await _session(backend, "s", "p")
    assert await _delete(state)
    assert (["a", "b"] if holds else ["b"]) == await _left(backend, "messages")


async def test_messages_and_progressions_that_others_point_at_stay(backend: Backend, state: Any) -> None:
    await _messages(backend, "first", "last", "system", "shared", "mine")
    await put_progression(backend, "p", "items", ["first", "last", "system", "mine"])
    await put_progression(backend, "shared-by-session", "items", ["shared"])
    await put_progression(backend, "shared-by-branch", "json", [])
    await _session(backend, "s", "p", first_msg_id="mine")
    await _branch(backend, "x", "s", "shared-by-session")
    await _branch(backend, "y", "s", "shared-by-branch")
    await _session(backend, "t", "shared-by-session", first_msg_id="first", last_msg_id="last")
    await _branch(backend, "z", "t", "shared-by-branch", system_msg_id="system")
    assert await _delete(state)
    assert ["first", "last", "shared", "system"] == await _left(backend, "messages")
    assert (["t"], ["z"]) == (await _left(backend, "sessions"), await _left(backend, "branches"))
    assert ["shared"] == await state.get_progression("shared-by-session")
    phases = {
        row["progression_id"]: row["phase"] for row in await backend.rows("SELECT * FROM progression_storage_state")
    }
    assert {"p": "blocked", "shared-by-session": "items", "shared-by-branch": "json"} == phases


async def test_rows_of_others_lose_the_session_and_history_goes(backend: Backend, state: Any) -> None:
    await put_progression(backend, "p", "json", [])
    await _session(backend, "s", "p", status="running")
    await put(backend, "shows", id="w", topic="t", show_dir="d", status="active", created_at=1.0, updated_at=1.0)
    await put(backend, "plays", id="y", show_id="w", name="n", session_id="s", created_at=1.0, updated_at=1.0)
    dispatch = await state.enqueue_dispatch(kind="k", deliver_to="d", session_id="s")
    approval = (await state.create_approval(action_kind="a", params={}, session_id="s"))["id"]
    await state.insert_session_signal(session_id="s", kind="k", ts=1.0, payload={})
    await state.update_status("session", "s", new_status="running", reason_code="run.started.ok")
    await backend.execute(
        "CREATE TABLE terminal_deliveries (transition_id TEXT NOT NULL REFERENCES status_transitions(id))"
    )
    try:
        await backend.execute(
            "INSERT INTO terminal_deliveries SELECT id FROM status_transitions WHERE entity_type = 'session'"
        )
        assert 1 == len(await backend.rows("SELECT * FROM terminal_deliveries"))
        assert await _delete(state)
        assert [] == await backend.rows("SELECT * FROM terminal_deliveries")
    finally:
        await backend.execute("DROP TABLE terminal_deliveries")
    assert [] == await backend.rows("SELECT * FROM status_transitions WHERE entity_type = 'session'")
    assert 1 == len(await state.list_status_transitions("dispatch", dispatch))
    assert [None] * 3 == [
        (await state.get_dispatch(dispatch))["session_id"],
        (await state.get_approval(approval))["session_id"],
        (await state.get_play("y"))["session_id"],
    ]
    assert [] == await backend.rows("SELECT * FROM session_signals")


async def test_artifacts_whose_name_is_taken_are_renamed(backend: Backend, state: Any) -> None:
    await put_progression(backend, "p", "json", [])
    await _session(backend, "s", "p")
    insert = state.insert_artifact
    await insert(kind="k", name="n", content={"of": "nobody"})
    await insert(kind="k", name="n (detached s)", content={})
    mine = [await insert(kind="k", name=name, content={"of": "s"}, session_id="s") for name in ("n", "free")]
    assert await _delete(state)
    found = [await state.get_artifact(artifact_id) for artifact_id in mine]
    assert ["n (detached s 2)", "free"] == [row["name"] for row in found]
    assert [None, None] == [row["session_id"] for row in found]


async def test_a_message_that_is_being_appended_elsewhere_stays(backend: Backend, state: Any) -> None:
    """The deletion looks only when the append is committed, or rolled back."""
    await _messages(backend, "a", "b")
    await put_progression(backend, "other", "items", [])
    await put_progression(backend, "p", "items", ["a", "b"])
    await _session(backend, "s", "p")
    async with backend.direct.transaction() as transaction:
        await transaction.run(lambda conn: append_to_progression(conn, "other", "a"))
        deletion = asyncio.create_task(_delete(state))
        await asyncio.wait({deletion}, timeout=0.3)
        assert not deletion.done()
    assert await deletion
    assert ["a"] == await _left(backend, "messages")
    assert ["a"] == await state.get_progression("other")
