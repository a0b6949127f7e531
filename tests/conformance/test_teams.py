"""Teams and team messages: rows, filters, who has read what."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from lionstate.errors import ForeignKeyError, InvalidInputError, NotFoundError, TransitionRejectedError
from tests.support.backends import Backend
from tests.support.records import assert_refused_unchanged, pick, put, put_session


def _message(message_id: str, **columns: Any) -> dict[str, Any]:
    return {"id": message_id, "team_id": "t", "sender": "ann", "content": message_id, **columns}


async def _team(state: Any, *messages: dict[str, Any]) -> None:
    await state.create_team({"id": "t", "name": "crew", "members": ["ann", "bob", "cy"]})
    for number, message in enumerate(messages):
        await state.create_team_message({"created_at": float(number), **message})


async def test_teams_are_created_once_and_count_their_members(backend: Backend, state: Any) -> None:
    await asyncio.gather(*(state.create_team({"id": "t", "name": str(n), "members": ["a", "b"]}) for n in range(5)))
    row = await state.get_team("t")
    assert ("0", ["a", "b"], 2, "active") == pick(row, "name", "members", "member_count", "status")
    await state.create_team({"id": "u", "name": "u"})
    assert ([], 0) == pick(await state.get_team("u"), "members", "member_count")


async def test_teams_page_and_count(backend: Backend, state: Any) -> None:
    for number, name in enumerate("abc"):
        await state.create_team({"id": name, "name": "n", "updated_at": float(number)})
    await state.update_team("a", status="archived", reason_code="team.archived.operator")
    assert ["a", "c", "b"] == [row["id"] for row in await state.list_teams(name="n")]
    assert ["c"] == [row["id"] for row in await state.list_teams(limit=1, offset=1)]
    assert ["a"] == [row["id"] for row in await state.list_teams(status="archived")]
    assert [3, 2, 0] == [
        await state.count_teams(),
        await state.count_teams(status="active"),
        await state.count_teams(name="x"),
    ]


async def test_changes_of_teams(backend: Backend, state: Any) -> None:
    await _team(state)
    await state.update_team("t", members=["ann"], name="new", node_metadata={"a": 1})
    row = await state.get_team("t")
    assert (["ann"], 1, "new", {"a": 1}) == pick(row, "members", "member_count", "name", "node_metadata")
    await state.update_team("t", status="archived", reason_code="team.archived.operator")
    with pytest.raises(TransitionRejectedError):
        await state.update_team("t", status="active", reason_code="legacy.imported", name="x")
    assert "new" == (await state.get_team("t"))["name"]


async def test_bad_teams_and_messages_change_nothing(backend: Backend, state: Any) -> None:
    await _team(state, _message("m"))
    await assert_refused_unchanged(
        backend,
        InvalidInputError,
        state.create_team({"id": "u"}),
        state.create_team({"id": "u", "name": "u", "members": "ann"}),
        state.create_team({"id": "u", "name": "u", "status": "x"}),
        state.update_team("t", members=None),
        state.update_team("t", member_count=9),
        state.update_team("t", id="x"),
        state.create_team_message({"id": "n", "team_id": "t", "sender": "ann"}),
        state.create_team_message(_message("n", content=3)),
        state.update_team_message("m", sender="x"),
        state.update_team_message("m", content=None),
        state.mark_team_messages_read("t", "a,b"),
        state.mark_team_messages_read("t", ""),
        state.mark_team_messages_read("t", "a", [1]),
        state.count_unread_team_messages("t", ["x"] * 101),
        state.list_team_messages("t", limit=0),
        state.list_team_messages("t", unread_by="a,b"),
    )
    with pytest.warns(DeprecationWarning), pytest.raises(InvalidInputError):
        await state.update_team("t", status="archived")
    await assert_refused_unchanged(
        backend,
        ForeignKeyError,
        state.create_team_message(_message("n", team_id="missing")),
        state.create_team_message(_message("n", session_id="missing")),
        state.update_team_message("m", session_id="missing"),
    )


async def test_missing_teams_and_messages(backend: Backend, state: Any) -> None:
    assert await state.get_team("m") is None
    assert await state.get_team_message("m") is None
    await state.update_team("m", name="x")
    with pytest.raises(NotFoundError):
        await state.update_team("m", status="archived", reason_code="team.archived.operator")
    assert [False] * 3 == [
        await state.delete_team("m"),
        await state.update_team_message("m", content="x"),
        await state.delete_team_message("m"),
    ]
    assert [] == await state.list_team_messages("m")
    assert 0 == await state.count_team_messages("m") == await state.mark_team_messages_read("m", "ann")
    assert {"ann": 0} == await state.count_unread_team_messages("m", ["ann"])
    assert {} == await state.count_unread_team_messages("m", [])


async def test_a_message_is_inserted_once_changed_and_removed(backend: Backend, state: Any) -> None:
    await put_session(backend, "s")
    await _team(state, _message("m"), _message("m", content="again"))
    row = await state.get_team_message("m")
    assert ("m", "all", [], None) == pick(row, "content", "recipient", "read_by", "summary")
    assert await state.update_team_message("m") is False
    assert await state.update_team_message("m", content="c", summary="s", session_id="s") is True
    row = await state.get_team_message("m")
    assert ("c", "s", "s") == pick(row, "content", "summary", "session_id")
    assert await state.delete_team_message("m") is True
    assert [] == await state.list_team_messages("t")


async def test_a_deleted_team_takes_its_messages_along(backend: Backend, state: Any) -> None:
    await _team(state, _message("m"))
    assert await state.delete_team("t") is True
    assert [] == await backend.rows("SELECT id FROM team_messages")


async def test_recipients_see_what_is_sent_to_them(backend: Backend, state: Any) -> None:
    await _team(
        state,
        _message("all"),
        _message("bob", recipient="bob"),
        _message("both", recipient="cy, bob"),
        _message("upper", recipient="BOB"),
        _message("longer", recipient="bobby,notbob"),
        _message("own", sender="bob"),
    )
    found = [row["id"] for row in await state.list_team_messages("t", recipient="bob")]
    assert ["all", "bob", "both", "own"] == found
    unread = [row["id"] for row in await state.list_team_messages("t", unread_by="bob")]
    assert ["all", "bob", "both"] == unread
    assert ["own"] == [row["id"] for row in await state.list_team_messages("t", sender="bob")]
    assert ["bob"] == [row["id"] for row in await state.list_team_messages("t", unread_by="bob", limit=1, offset=1)]
    assert 4 == await state.count_team_messages("t", recipient="bob")
    assert 6 == await state.count_team_messages("t")
    assert {"bob": 3, "cy": 3, "ann": 1, "x": 2} == await state.count_unread_team_messages(
        "t", ["bob", "cy", "ann", "x"]
    )


async def test_marking_reads_only_what_was_unread(backend: Backend, state: Any) -> None:
    await _team(state, _message("a"), _message("b", recipient="bob"), _message("c", recipient="cy"))
    assert 1 == await state.mark_team_messages_read("t", "bob", ["b", "c", "missing"])
    assert 1 == await state.mark_team_messages_read("t", "bob")
    assert 0 == await state.mark_team_messages_read("t", "bob")
    assert 0 == await state.mark_team_messages_read("t", "ann")
    assert {"bob": 0, "cy": 2} == await state.count_unread_team_messages("t", ["bob", "cy"])
    assert 2 == await state.mark_team_messages_read("t", "cy")
    assert ["bob", "cy"] == (await state.get_team_message("a"))["read_by"]


async def test_concurrent_readers_are_all_kept(backend: Backend, state: Any) -> None:
    await _team(state, _message("a"))
    names = [f"r{number:02d}" for number in range(12)]
    counts = await asyncio.gather(*(state.mark_team_messages_read("t", name) for name in [*names, *names]))
    assert 12 == sum(counts)
    assert names == (await state.get_team_message("a"))["read_by"]


async def test_unusual_read_by_values_count_as_unread_and_are_kept(backend: Backend, state: Any) -> None:
    await _team(state)
    for number, value in enumerate(('{"bob": 1}', "null", '[["bob"], 7]', '"bob"')):
        row = {"team_id": "t", "sender": "ann", "content": "x", "created_at": 1.0}
        await put(backend, "team_messages", id=f"m{number}", read_by=value, **row)
    assert {"bob": 4, '["bob"]': 4} == await state.count_unread_team_messages("t", ["bob", '["bob"]'])
    assert 4 == await state.mark_team_messages_read("t", "bob")
    assert [["bob"], 7, "bob"] == (await state.get_team_message("m2"))["read_by"]
