"""Methods whose other tests call them neither for a row that is missing nor with an input that is refused.

`tests/support/method_kinds.py` finds them.
"""

from __future__ import annotations

from typing import Any

import pytest

from lionstate.errors import InvalidInputError
from tests.support.backends import Backend
from tests.support.conversations import message
from tests.support.records import assert_refused_unchanged, snapshot

Call = tuple[str, dict[str, Any]]

_EMPTY: list[Call] = [
    ("activity_stats", {"window_start": 2e9, "bucket_seconds": 60}),
    ("count_run_tags", {}),
    ("list_approval_evidence", {}),
    ("list_latest_definition_versions", {}),
    ("list_projects", {}),
    ("list_running_invocations_for_reaping", {}),
    ("list_teams", {}),
]
_SILENT: list[Call] = [
    ("finish_dispatch_attempt", {"dispatch_id": "missing", "attempt": 1}),
    ("mark_session_control_applying", {"control_id": "missing"}),
    ("merge_invocation_node_metadata", {"invocation_id": "missing", "patch": {"a": 1}}),
    ("record_engine_run_outcome", {"run_id": "missing", "outcome_json": {}}),
    ("resolve_claimed_session_control", {"control_id": "missing", "outcome": "done"}),
    ("set_progression", {"progression_id": "missing", "collection": ["m"]}),
    ("update_engine_def", {"def_id": "missing", "name": "n"}),
    ("update_engine_run", {"run_id": "missing", "status": "failed"}),
    ("update_workflow_def", {"def_id": "missing", "name": "n"}),
]
_LINEAGE = {"invocation_id": None, "signal_session_id": None, "parent_session_id": None}
_REFUSED: list[Call] = [
    ("attach_session_invocation", {"session_id": "s", "invocation_id": 5}),
    ("consume_approval", {"approval_id": "a", "action_kind": "k", "params": ["no", "mapping"]}),
    ("count_invocations", {"status": 5}),
    ("count_dispatches", {"status": "no such word"}),
    ("count_run_tags", {"limit": 0}),
    ("count_sessions", {"status": 5}),
    ("count_teams", {"name": 5}),
    ("delete_engine_def", {"def_id": "a\0b"}),
    ("delete_project", {"name": "a\0b"}),
    ("delete_run_tag", {"session_id": "s", "tag": " "}),
    ("delete_team", {"team_id": "a\0b"}),
    ("delete_team_message", {"message_id": "a\0b"}),
    ("delete_worker", {"worker_id": "a\0b"}),
    ("delete_workflow_def", {"def_id": "a\0b"}),
    ("deny_approval", {"approval_id": "a\0b"}),
    ("get_approval", {"approval_id": "a\0b"}),
    ("grant_approval", {"approval_id": "a\0b"}),
    ("list_dispatched_running_schedule_runs", {"limit": 0}),
    ("list_invocations", {"limit": 0}),
    ("list_teams", {"offset": -1}),
    ("mark_session_control_applying", {"control_id": "a\0b"}),
    ("purge_dispatch", {"dispatch_id": "a\0b"}),
    ("repair_branch_progression", {"branch_id": "b", "new": "a\0b"}),
    ("repair_session_progression", {"session_id": "s", "new": "a\0b"}),
    ("resolve_claimed_session_control", {"control_id": "c", "outcome": 5}),
    ("set_engine_run_lineage", {"run_id": "r", **_LINEAGE, "parent_session_id": 5}),
    ("spend_stats", {"window_start": "yesterday"}),
    ("verify_approval_chain", {"hmac_key": 5}),
]


@pytest.mark.parametrize(("name", "params"), _EMPTY)
async def test_an_empty_store_has_an_empty_answer(state: Any, name: str, params: dict[str, Any]) -> None:
    assert [] == await getattr(state, name)(**params)


async def test_nothing_is_due_or_remembered_in_an_empty_store(state: Any) -> None:
    assert await state.next_dispatch_at() is None
    assert {"available": True, "events": []} == await state.get_schedule_history("missing")


async def test_a_missing_row_is_silent_and_changes_nothing(backend: Backend, state: Any) -> None:
    before = await snapshot(backend)
    for name, params in _SILENT:
        assert await getattr(state, name)(**params) is None, name
    assert before == await snapshot(backend)


async def test_a_message_is_kept_whatever_else_is_missing(state: Any) -> None:
    await state.record_message(message("m"), "missing", "missing", "missing-too")
    assert (await state.get_message("m"))["id"] == "m"
    assert [] == await state.get_progression("missing")


async def test_what_is_refused_changes_nothing(backend: Backend, state: Any) -> None:
    await assert_refused_unchanged(
        backend, InvalidInputError, *(getattr(state, name)(**params) for name, params in _REFUSED)
    )
