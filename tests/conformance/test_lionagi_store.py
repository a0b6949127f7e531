"""A store that LionAGI 0.36.0 wrote reads equal: orders, sessions, definitions, artifacts, every row.

The expectations were recorded with LionAGI's own reads when the store was made.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from lionstate import StateDB

_FIXTURE = Path(__file__).parent.parent / "fixtures" / "lionagi-0.36.0-small.db"
_NESTED = (
    "node_metadata",
    "content",
    "details",
    "status_evidence_refs",
    "artifact_contract_json",
    "artifact_verification_json",
)


@pytest.fixture(scope="module")
def recorded() -> Mapping[str, Any]:
    """What LionAGI read."""
    found: Mapping[str, Any] = json.loads(_FIXTURE.with_suffix(".json").read_text())
    return found


@pytest.fixture(scope="module")
def rows() -> Mapping[str, dict[str, dict[str, Any]]]:
    """Every row of the tables compared, as the standard library's module reads them, JSON decoded."""
    tables = ("messages", "sessions", "branches", "definitions", "artifacts", "admin_events")
    with sqlite3.connect(f"file:{_FIXTURE}?mode=ro&immutable=1", uri=True) as conn:
        conn.row_factory = sqlite3.Row
        found = {table: {row["id"]: dict(row) for row in conn.execute(f"SELECT * FROM {table}")} for table in tables}
    conn.close()
    for table, by_id in found.items():
        for row in by_id.values():
            for name in row.keys() & set(_NESTED) if table != "definitions" else ():
                row[name] = None if row[name] is None else json.loads(row[name])
            if "ended_at_is_approximate" in row:
                row["ended_at_is_approximate"] = bool(row["ended_at_is_approximate"])
    return found


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[StateDB]:
    """A copy of the store, opened."""
    path = tmp_path / "state.db"
    shutil.copyfile(_FIXTURE, path)
    async with StateDB(path) as state:
        yield state


async def test_every_branch_reads_its_messages_in_order(
    store: StateDB, recorded: Mapping[str, Any], rows: Mapping[str, Any]
) -> None:
    assert 12 == len(recorded["branches"]) == len(rows["branches"])
    for branch_id, expected in recorded["branches"].items():
        found = await store.get_branch_messages(branch_id)
        assert expected["order"] == [message["id"] for message in found]
        for message in found:
            lion_class = message.pop("lion_class_str")
            assert rows["messages"][message["id"]] == message
            assert (message["node_metadata"] or {}).get("lion_class", "__unknown__") == lion_class
        branch = await store.get_branch(branch_id)
        assert rows["branches"][branch_id] == branch
        assert expected["progression_id"] == rows["branches"][branch_id]["progression_id"]


async def test_every_session_reads_equal(store: StateDB, recorded: Mapping[str, Any], rows: Mapping[str, Any]) -> None:
    listed = {row["id"]: row for row in await store.list_sessions()}
    assert rows["sessions"] == listed
    assert len(listed) == await store.count_sessions() == 4
    for session_id, expected in recorded["sessions"].items():
        assert expected["order"] == await store.get_progression(expected["progression_id"])
        branches = {row["id"]: row for row in await store.list_branches(session_id)}
        assert {k: v for k, v in rows["branches"].items() if v["session_id"] == session_id} == branches
    session = recorded["families"]["session"]
    assert session == await store.get_session(session["id"])


@pytest.mark.parametrize("readonly", [False, True])
async def test_every_message_reads_equal(tmp_path: Path, rows: Mapping[str, Any], readonly: bool) -> None:
    path = tmp_path / "state.db"
    shutil.copyfile(_FIXTURE, path)
    async with StateDB(path, readonly=readonly) as store:
        found = await store.get_messages(list(rows["messages"]))
        assert 4 == await store.count_sessions()
    assert rows["messages"] == {k: {n: v for n, v in row.items() if n != "lion_class_str"} for k, row in found.items()}
    assert 240 == len(found)


async def test_definitions_and_artifacts_read_as_lionagi_read_them(
    store: StateDB, recorded: Mapping[str, Any], rows: Mapping[str, Any]
) -> None:
    latest, versions = recorded["families"]["definition"]
    assert latest == await store.get_definition(latest["kind"], latest["name"])
    assert versions == await store.list_definition_versions(versions[0]["kind"], versions[0]["name"])
    for definition in rows["definitions"].values():
        kind, name, version = (definition[key] for key in ("kind", "name", "version"))
        assert definition == await store.get_definition(kind, name, version=version)
    artifact = recorded["families"]["artifact"]
    assert artifact == await store.get_artifact(artifact["id"])
    assert [artifact] == await store.list_artifacts_for_invocation(artifact["invocation_id"])
    assert list(rows["admin_events"].values()) == await store.list_admin_events()
    (event,) = rows["admin_events"].values()
    assert [event] == await store.list_admin_events(target_id=event["target_id"])


async def test_rows_of_kind_skill_stay_readable(tmp_path: Path) -> None:
    """LionAGI's CHECK has a third kind, which is not accepted for new versions (reference 4, row 1)."""
    path = tmp_path / "state.db"
    shutil.copyfile(_FIXTURE, path)
    with sqlite3.connect(path) as conn:
        conn.execute("INSERT INTO definitions VALUES ('d', 'skill', 'n', '/n', '# n', 2, 1.0, NULL)")
    conn.close()
    async with StateDB(path) as state:
        found = await state.get_definition("skill", "n")
        assert found is not None
        assert ("skill", 2, "# n") == (found["kind"], found["version"], found["content"])
        assert [2] == [row["version"] for row in await state.list_definition_versions("skill", "n")]
        assert ("skill", "n", 2) in {
            (row["kind"], row["name"], row["version"]) for row in await state.list_latest_definition_versions()
        }


async def test_new_messages_continue_a_lionagi_conversation(tmp_path: Path, recorded: Mapping[str, Any]) -> None:
    path = tmp_path / "state.db"
    shutil.copyfile(_FIXTURE, path)
    branch_id, branch = next(iter(recorded["branches"].items()))
    async with StateDB(path) as state:
        session_id = (await state.get_branch(branch_id) or {})["session_id"]
        message = {"id": "new", "created_at": 1.0, "role": "user", "content": {"text": "é"}}
        await state.record_message(message, session_id, branch["progression_id"])
        assert [*branch["order"], "new"] == [row["id"] for row in await state.get_branch_messages(branch_id)]
    with sqlite3.connect(path) as conn:
        (stored,) = conn.execute("SELECT collection FROM progressions WHERE id = ?", (branch["progression_id"],))
    conn.close()
    # At the end of the value, without another spelling for what LionAGI wrote.
    assert json.dumps(branch["order"], separators=(",", ":"))[:-1] + ', "new"]' == stored[0]
