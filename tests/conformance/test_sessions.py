"""Sessions: creation, reads, changes that are no status changes (ADR-0055 D1, D5)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from lionstate.errors import ConflictError, ForeignKeyError, InvalidInputError
from tests.support.backends import Backend
from tests.support.conversations import conversation, message, put_items_progression


async def _progression(backend: Backend) -> None:
    await backend.put_progression("sp", "[]")


async def _invocation(backend: Backend, name: str = "i") -> None:
    await backend.execute(
        "INSERT INTO invocations (id, skill, started_at, created_at, updated_at) VALUES (:id, 'review', 1.0, 1.0, 1.0)",
        id=name,
    )


async def test_a_session_gets_its_defaults(backend: Backend, state: Any) -> None:
    await _progression(backend)
    await state.create_session({"id": "s", "progression_id": "sp"})
    found = await state.get_session("s")
    now = found["created_at"]
    assert now > 1_000_000_000.0
    given = {"id": "s", "progression_id": "sp", "source_kind": "live", "ended_at_is_approximate": False}
    times = {"created_at": now, "updated_at": now, "last_message_at": now}
    columns = {row["name"] for row in await _columns(backend)}
    assert {**dict.fromkeys(columns), **given, **times} == found
    assert await state.get_session("missing") is None


async def _columns(backend: Backend) -> list[dict[str, Any]]:
    if backend.is_postgresql:
        return await backend.rows(
            "SELECT column_name AS name FROM information_schema.columns"
            " WHERE table_name = 'sessions' AND table_schema = current_schema()"
        )
    return await backend.rows("SELECT name FROM pragma_table_info('sessions')")


async def test_every_column_that_may_be_given_comes_back(backend: Backend, state: Any) -> None:
    await _progression(backend)
    await _invocation(backend)
    await state.insert_message(message("m"))
    given = {
        "id": "s",
        "cc_session_id": "cc",
        "run_id": "r",
        "created_at": 1.5,
        "node_metadata": {"k": ["v", None]},
        "name": "n",
        "user_label": "label",
        "user": "u",
        "progression_id": "sp",
        "first_msg_id": "m",
        "last_msg_id": "m",
        "updated_at": 2.5,
        "playbook_name": "pb",
        "agent_name": "a",
        "invocation_kind": "show-play",
        "show_topic": "t",
        "show_play_name": "p",
        "artifacts_path": "/x",
        "source_kind": "imported_codex",
        "status": "running",
        "started_at": 3.5,
        "ended_at": 4.5,
        "last_message_at": 5.5,
        "current_phase": "ph",
        "invocation_id": "i",
        "model": "mo",
        "provider": "pr",
        "effort": "high",
        "agent_hash": "h",
        "project": "proj",
        "project_source": "config_toml",
        "artifact_contract_json": {"expected": []},
        "artifact_verification_json": [1],
        "input_tokens": 1,
        "output_tokens": 2,
        "total_cost_usd": 0.25,
        "num_turns": 3,
        "duration_ms": 4.0,
    }
    await state.create_session({**given, "unknown_key": 1})
    reasons = {"status_reason_code": "run.started.ok", "status_reason_summary": "", "status_evidence_refs": []}
    assert {**given, "ended_at_is_approximate": False, **reasons} == await state.get_session("s")


async def test_what_is_refused_changes_nothing(backend: Backend, state: Any) -> None:
    await _progression(backend)
    good = {"id": "s", "progression_id": "sp"}
    bad: list[dict[str, Any]] = [
        {"id": "s"},
        {"progression_id": "sp"},
        {**good, "status": "done"},
        {**good, "invocation_kind": "party"},
        {**good, "source_kind": "imported"},
        {**good, "created_at": "today"},
        {**good, "num_turns": 1.5},
        {**good, "name": 7},
        {**good, "node_metadata": {"x": float("inf")}},
    ]
    for one in bad:
        with pytest.raises(InvalidInputError):
            await state.create_session(one)
    with pytest.raises(ForeignKeyError):
        await state.create_session({"id": "s", "progression_id": "missing"})
    with pytest.raises(ForeignKeyError):
        await state.create_session({**good, "invocation_id": "missing", "project": "p"})
    assert [] == await backend.rows("SELECT id FROM sessions")
    assert [] == await backend.rows("SELECT name FROM projects")


async def test_an_existing_session_is_left_untouched(backend: Backend, state: Any) -> None:
    await _progression(backend)
    await _invocation(backend)
    await state.create_session({"id": "s", "progression_id": "sp", "name": "first"})
    before = await state.get_session("s")
    await state.create_session({"id": "s", "progression_id": "missing", "name": "second", "invocation_id": "i"})
    assert before == await state.get_session("s")
    assert [{"session_count": 0}] == await backend.rows("SELECT session_count FROM invocations")


async def test_sessions_are_counted_for_their_invocation(backend: Backend, state: Any) -> None:
    await _progression(backend)
    await _invocation(backend)
    calls = [state.create_session({"id": f"s{n}", "progression_id": "sp", "invocation_id": "i"}) for n in range(8)]
    await asyncio.gather(*calls, state.create_session({"id": "s0", "progression_id": "sp", "invocation_id": "i"}))
    (row,) = await backend.rows("SELECT session_count, updated_at FROM invocations")
    assert 8 == row["session_count"]
    assert row["updated_at"] > 1_000_000_000.0


async def test_a_session_born_terminal_has_an_end(backend: Backend, state: Any) -> None:
    await _progression(backend)
    base = {"progression_id": "sp", "status": "failed", "created_at": 1.0, "updated_at": 2.0}
    await state.create_session({"id": "a", **base, "started_at": 30.0, "last_message_at": 7.0, "duration_ms": 5.0})
    await state.create_session({"id": "b", **base, "started_at": 3.0, "ended_at": 4.5})
    await state.create_session({"id": "c", **base, "started_at": 9.0, "ended_at": 4.5})
    await state.create_session({"id": "d", **base, "started_at": 3.0, "ended_at": 4.5, "duration_ms": 7.0})
    await state.create_session({"id": "e", **base, "status": "running", "started_at": 3.0})
    names = ("ended_at", "ended_at_is_approximate", "duration_ms")
    rows = {one: await state.get_session(one) for one in "abcde"}
    found = {one: tuple(row[name] for name in names) for one, row in rows.items()}
    expected = {
        "a": (30.0, True, None),
        "b": (4.5, False, 1500.0),
        "c": (4.5, False, 0.0),
        "d": (4.5, False, 7.0),
        "e": (None, False, None),
    }
    assert expected == found
    assert 3.0 == (await state.get_session("b"))["last_message_at"]


async def test_a_project_is_registered_and_only_a_configured_source_replaces(backend: Backend, state: Any) -> None:
    await _progression(backend)

    async def source() -> Any:
        return (await backend.rows("SELECT source FROM projects"))[0]["source"]

    await state.create_session({"id": "a", "progression_id": "sp", "project": "p"})
    assert "git_remote" == await source()
    await backend.execute("UPDATE projects SET last_seen_at = 1.0, updated_at = 1.0, created_at = 1.0")
    await state.create_session({"id": "b", "progression_id": "sp", "project": "p", "project_source": "cwd"})
    assert "git_remote" == await source()
    (row,) = await backend.rows("SELECT created_at, updated_at, last_seen_at FROM projects")
    assert 1.0 == row["created_at"] < row["updated_at"] == row["last_seen_at"]
    await state.set_session_provenance("b", project="p", project_source="global_override")
    assert "global_override" == await source()
    await state.create_session({"id": "a", "progression_id": "sp", "project": "never"})
    assert ["p"] == [row["name"] for row in await backend.rows("SELECT name FROM projects")]


async def test_a_progression_that_is_being_deleted_is_refused(backend: Backend, state: Any) -> None:
    """Decision 18: until its rows are gone, nothing may point at a tombstoned id."""
    await conversation(backend)
    await put_items_progression(backend, "gone")
    await backend.execute(
        "UPDATE progression_storage_state SET phase = 'blocked', authority = 'none', blocked_reason = 'deleting'"
    )
    with pytest.raises(ConflictError):
        await state.create_session({"id": "s2", "progression_id": "gone"})
    with pytest.raises(ConflictError):
        await state.create_branch({"id": "b2", "session_id": "s", "progression_id": "gone"})
    assert "sp" == await state.repair_session_progression("s", "gone")


async def test_reads_by_other_ids(backend: Backend, state: Any) -> None:
    await _progression(backend)
    for name, at in (("late", 3.0), ("b", 2.0), ("a", 2.0)):
        session = {"id": name, "progression_id": "sp", "created_at": at, "run_id": "r", "cc_session_id": "cc"}
        await state.create_session(session)
    assert ["a", "b", "late"] == [row["id"] for row in await state.get_sessions_for_run("r")]
    assert [] == await state.get_sessions_for_run("other")
    assert "a" == (await state.get_session_by_cc_id("cc"))["id"]
    assert await state.get_session_by_cc_id("other") is None


async def test_lists_are_bounded_pages_latest_first(backend: Backend, state: Any) -> None:
    await _progression(backend)
    for number in range(5):
        status = "running" if number % 2 else "completed"
        session = {"id": f"s{number}", "progression_id": "sp", "updated_at": float(number), "status": status}
        await state.create_session(session)
    assert ["s4", "s3", "s2", "s1", "s0"] == [row["id"] for row in await state.list_sessions()]
    assert ["s3", "s1"] == [row["id"] for row in await state.list_sessions(status="running")]
    assert ["s3", "s2"] == [row["id"] for row in await state.list_sessions(limit=2, offset=1)]
    assert [] == await state.list_sessions(offset=9)
    assert (5, 2, 0) == (
        await state.count_sessions(),
        await state.count_sessions(status="running"),
        await state.count_sessions(status="no such"),
    )
    for bad in ({"limit": 0}, {"limit": 1001}, {"limit": -1}, {"offset": -1}, {"limit": 2**70}):
        with pytest.raises(InvalidInputError):
            await state.list_sessions(**bad)


async def test_activity_moves_forward_only(backend: Backend, state: Any) -> None:
    await conversation(backend)
    await asyncio.gather(*(state.touch_session_activity("s", at=at) for at in (30.0, 50.0, 20.0)))
    session = await state.get_session("s")
    assert (50.0, 50.0) == (session["last_message_at"], session["updated_at"])
    await state.touch_session_activity("s")
    assert (await state.get_session("s"))["updated_at"] > 1_000_000_000.0
    await state.touch_session_activity("missing", at=1.0)
    with pytest.raises(InvalidInputError):
        await state.touch_session_activity("s", at=float("nan"))


async def test_metadata_is_merged_as_rfc_7396_says(backend: Backend, state: Any) -> None:
    await conversation(backend)
    await state.merge_session_node_metadata("s", {"a": {"b": 1, "c": None}, "d": [1]})
    await state.merge_session_node_metadata("s", {"a": {"e": 2}, "d": None, "f": "x"})
    session = await state.get_session("s")
    assert {"a": {"b": 1, "e": 2}, "f": "x"} == session["node_metadata"]
    assert session["updated_at"] > 1_000_000_000.0
    await asyncio.gather(*(state.merge_session_node_metadata("s", {f"k{n}": n}) for n in range(10)))
    assert {f"k{n}" for n in range(10)} <= (await state.get_session("s"))["node_metadata"].keys()
    await state.merge_session_node_metadata("missing", {"a": 1})
    for bad in ([1], None, {"x": float("nan")}):
        with pytest.raises(InvalidInputError):
            await state.merge_session_node_metadata("s", bad)


async def test_metadata_that_is_no_object_is_kept_aside(backend: Backend, state: Any) -> None:
    await conversation(backend)
    await backend.execute("UPDATE sessions SET node_metadata = '[1, 2]'")
    await state.merge_session_node_metadata("s", {"a": 1})
    found = (await state.get_session("s"))["node_metadata"]
    assert {"_discarded_node_metadata": [1, 2], "_discarded_at": found["_discarded_at"], "a": 1} == found
    assert found["_discarded_at"] > 1_000_000_000.0


async def test_a_label_is_trimmed_set_and_cleared(backend: Backend, state: Any) -> None:
    await conversation(backend)
    assert await state.set_session_user_label("s", f" {'é' * 160}\n") is True
    assert "é" * 160 == (await state.get_session("s"))["user_label"]
    for bad in ("x" * 161, "a\tb", "a\x7fb", 5):
        with pytest.raises(InvalidInputError):
            await state.set_session_user_label("s", bad)
    assert "é" * 160 == (await state.get_session("s"))["user_label"]
    for blank in (" \t", None):
        assert await state.set_session_user_label("s", blank) is True
        assert (await state.get_session("s"))["user_label"] is None
    assert 10.0 == (await state.get_session("s"))["updated_at"]
    assert await state.set_session_user_label("missing", "x") is False


async def test_provenance_writes_what_is_given(backend: Backend, state: Any) -> None:
    await conversation(backend)
    await state.set_session_provenance("s", artifacts_path="/one", cc_session_id="cc")
    await state.set_session_provenance("s", artifacts_path="/two", node_metadata={"a": 1}, project="p")
    await state.set_session_provenance("s")
    await state.set_session_provenance("missing", project="q")
    session = await state.get_session("s")
    names = ("artifacts_path", "cc_session_id", "node_metadata", "project", "project_source", "updated_at")
    assert ("/one", "cc", {"a": 1}, "p", None, 10.0) == tuple(session[name] for name in names)
    assert [{"name": "p", "source": "git_remote"}] == await backend.rows("SELECT name, source FROM projects")
    with pytest.raises(InvalidInputError):
        await state.set_session_provenance("s", project=1)


async def test_an_artifact_verification_is_stored(backend: Backend, state: Any) -> None:
    await conversation(backend)
    verdict = {"status": "passed", "checked_at": 1.5, "missing_required": [], "missing_optional": [], "produced": []}
    await state.update_artifact_verification("s", verdict)
    session = await state.get_session("s")
    assert verdict == session["artifact_verification_json"]
    assert session["updated_at"] > 1_000_000_000.0
    await state.update_artifact_verification("s", None)
    assert (await state.get_session("s"))["artifact_verification_json"] is None
    stored = "SELECT CAST(artifact_verification_json AS TEXT) AS stored FROM sessions"
    assert [{"stored": "null"}] == await backend.rows(stored)
    await state.update_artifact_verification("missing", verdict)
    with pytest.raises(InvalidInputError):
        await state.update_artifact_verification("s", {"x": float("inf")})
