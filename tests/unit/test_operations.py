"""The facade and the table of operations say the same: names, parameters, and a wire form for each."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

import pytest

from lionstate.facade import Facade
from lionstate.operations import OPERATIONS
from lionstate.wire import Codec

_NO_OPERATIONS = {"batch", "stale_ok", "with_key"}
_METHODS: dict[str, Callable[..., Any]] = {
    name: method
    for name, method in inspect.getmembers(Facade, inspect.isfunction)
    if not name.startswith("_") and name not in _NO_OPERATIONS
}
_EACH = pytest.mark.parametrize("name", sorted(OPERATIONS))
_CLAUSE = re.compile(r"ADR-0055 D[1-5]|ADR-0117 D[1-6]")
# Reads without a page, and what bounds them.
_WHOLE = {
    "get_progression": "the whole by contract (ADR-0055 D3); its pages are list_progression_items",
    "activity_stats": "10,000 buckets",
    "spend_rollup": "the highest 50",
}


def test_every_method_is_an_operation_and_the_other_way_round() -> None:
    assert sorted(OPERATIONS) == sorted(_METHODS)


@_EACH
def test_a_method_takes_what_its_script_takes(name: str) -> None:
    of_method = list(inspect.signature(_METHODS[name]).parameters.values())[1:]
    of_script = list(OPERATIONS[name].parameters)
    assert [(p.name, p.kind, p.default) for p in of_script] == [(p.name, p.kind, p.default) for p in of_method]


@_EACH
def test_an_operation_has_a_wire_form(name: str) -> None:
    assert name == Codec.of(OPERATIONS[name].script).name


@_EACH
def test_a_docstring_names_its_clause_bounds_and_units(name: str) -> None:
    """Its last paragraph cites a clause of an ADR; bounds of a page and units of a time are said."""
    method = _METHODS[name]
    told = inspect.getdoc(method) or ""
    contract = told.rpartition("Contract: ")[2]
    assert _CLAUSE.search(contract), told
    takes = inspect.signature(method).parameters
    if "limit" in takes:
        assert re.search(r"\b1 to [0-9,]*[0-9]\b", told), told
    if takes.keys() & {"now", "before", "at", "window_start", "since"}:
        assert "poch seconds" in told, told


def test_reads_that_grow_have_pages() -> None:
    cursors = {"offset", "after_id", "after_ordinal", "after_seq", "after_sequence", "before_id"}
    without = []
    for name in OPERATIONS:
        signature = inspect.signature(_METHODS[name])
        if not OPERATIONS[name].writes and str(signature.return_annotation).startswith("list["):
            paged = "limit" in signature.parameters and cursors & signature.parameters.keys()
            without += [] if paged else [name]
    assert sorted(_WHOLE) == sorted(without)


@pytest.mark.parametrize(
    ("name", "params", "expected"),
    [
        ("update_status", {"entity_type": "run", "entity_id": "x"}, {"s:x"}),
        ("update_session", {"session_id": "x", "first_msg_id": "m"}, {"s:x", "m:m"}),
        ("update_status", {"entity_type": "plays", "entity_id": "x"}, {"play:x"}),
        ("update_play", {"play_id": "x", "session_id": None}, {"play:x"}),
        ("update_status", {"entity_type": "invocation", "entity_id": "x"}, {"i:x"}),
        ("create_invocation", {"invocation": {"id": "x"}}, {"i:x"}),
        ("attach_session_invocation", {"session_id": "x", "invocation_id": "y"}, {"s:x", "i:y"}),
        ("insert_session_control", {"session_id": "x"}, {"s:x"}),
        ("register_project", {"name": "x"}, {"j:x"}),
        ("create_team_message", {"message": {"id": "m", "team_id": "t"}}, {"tm:m", "team:t"}),
        ("mark_team_messages_read", {"team_id": "t"}, {"team:t"}),
        ("grant_approval", {"approval_id": "x"}, {"approval-evidence"}),
        ("finish_dispatch_attempt", {"dispatch_id": "x", "attempt": 1}, {"dispatch:x"}),
        ("enqueue_dispatch", {"dedup_key": "x", "session_id": "s"}, {"dispatch-dedup:x", "s:s"}),
        ("delete_team", {"team_id": "t"}, None),
        ("create_schedule", {"schedule": {"id": "x"}}, {"schedule:x"}),
        ("update_schedule", {"schedule_id": "x"}, {"schedule:x"}),
        ("apply_schedule_set", {"creates": [], "updates": [], "disables": []}, None),
        ("create_schedule_run", {"run": {"id": "x", "schedule_id": "y"}}, {"run:x", "schedule:y"}),
        ("update_schedule_run", {"run_id": "x"}, {"run:x"}),
        ("update_status", {"entity_type": "schedule_runs", "entity_id": "x"}, {"run:x"}),
        ("finish_task", {"run_id": "x", "worker_id": "w"}, {"run:x"}),
        ("claim_tasks", {"worker_id": "w"}, {"worker:w"}),
        ("submit_task", {"action_kind": "agent"}, set()),
    ],
)
def test_operations_on_one_row_have_its_key_in_common(name: str, params: dict[str, Any], expected: set[str]) -> None:
    assert expected == OPERATIONS[name].keys(params)
