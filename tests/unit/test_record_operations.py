"""What the queue is told of the records' operations: keys, checked parameters, sizes; no I/O."""

from __future__ import annotations

from typing import Any

import pytest

from lionstate.errors import InvalidInputError
from lionstate.operations import OPERATIONS
from lionstate.records.metadata_merge import merge_patch
from lionstate.records.values import CheckedJson, encoded_json, rough_size
from lionstate.schema.types import RawJson

MESSAGE = {"id": "m", "created_at": 1.0, "role": "user", "content": {}}
KEYS: list[tuple[str, dict[str, Any], set[str]]] = [
    (
        "record_message",
        {"msg": MESSAGE, "session_id": "s", "branch_progression_id": "x", "session_progression_id": "y"},
        {"m:m", "s:s", "p:x", "p:y"},
    ),
    ("record_message", {"msg": MESSAGE, "session_id": "s", "system_branch_id": "b"}, {"m:m", "s:s", "b:b"}),
    ("insert_message", {"msg": MESSAGE}, {"m:m"}),
    (
        "insert_messages",
        {"msgs": [MESSAGE, {**MESSAGE, "id": "n"}], "progression_ids": ["x"], "session_id": "s"},
        {"m:m", "m:n", "p:x", "s:s"},
    ),
    ("insert_messages", {"msgs": [], "progression_ids": ["x"], "session_id": "s"}, set()),
    (
        "create_session",
        {"session": {"id": "s", "progression_id": "x", "invocation_id": "i", "project": "j", "last_msg_id": "m"}},
        {"s:s", "p:x", "i:i", "j:j", "m:m"},
    ),
    ("touch_session_activity", {"session_id": "s", "at": 1}, {"s:s"}),
    ("merge_session_node_metadata", {"session_id": "s", "patch": {}}, {"s:s"}),
    ("set_session_user_label", {"session_id": "s", "label": None}, {"s:s"}),
    ("set_session_provenance", {"session_id": "s", "project": "j", "cc_session_id": None}, {"s:s", "j:j"}),
    ("update_artifact_verification", {"session_id": "s", "verification": None}, {"s:s"}),
    ("repair_session_progression", {"session_id": "s", "new": "x"}, {"s:s", "p:x"}),
    (
        "create_branch",
        {"branch": {"id": "b", "session_id": "s", "progression_id": "x", "system_msg_id": "m"}},
        {"b:b", "s:s", "p:x", "m:m"},
    ),
    ("update_branch", {"branch_id": "b", "system_msg_id": "m", "name": None}, {"b:b", "m:m"}),
    ("repair_branch_progression", {"branch_id": "b", "new": "x"}, {"b:b", "p:x"}),
    ("save_definition", {"kind": "agent", "name": "n", "path": "", "content": ""}, {"d:agent:n"}),
    ("insert_admin_event", {"action": "a", "details": {}}, set()),
]


@pytest.mark.parametrize(("name", "params", "expected"), KEYS)
def test_what_two_calls_touch_in_common_is_a_key_of_both(name: str, params: dict[str, Any], expected: set[str]) -> None:
    operation = OPERATIONS[name]
    assert operation.writes and operation.prepare is not None
    before = operation.size(params)
    prepared = operation.prepare(dict(params))
    assert expected == operation.keys(prepared)
    assert before >= 0 <= operation.size(prepared)
    assert expected == operation.keys(operation.prepare(dict(prepared)))


def test_an_artifact_waits_for_its_parents_and_its_own_key() -> None:
    operation = OPERATIONS["insert_artifact"]

    def keys(**fields: Any) -> frozenset[str]:
        found = operation.keys({"kind": "k", "name": "n", **fields})
        assert found is not None
        return found

    assert {"i:i", "s:s"} < keys(invocation_id="i", session_id="s")
    alone = [keys(), keys(name="m"), keys(kind="j"), keys(invocation_id="i"), keys(session_id="i")]
    assert 5 == len({next(key for key in found if key.startswith("a:")) for found in alone})


def test_large_content_counts_before_and_after_it_is_encoded() -> None:
    operation = OPERATIONS["record_message"]
    assert operation.prepare is not None
    params = {"msg": {**MESSAGE, "content": {"text": "x" * 300_000}}, "session_id": "s"}
    assert 300_000 <= operation.size(params) <= 301_000
    assert 300_000 <= operation.size(operation.prepare(dict(params))) <= 301_000


def test_further_keywords_stand_beside_the_named_ones() -> None:
    operation = OPERATIONS["update_branch"]
    assert {"branch_id": "b", "name": "n", "status": None} == operation.bind(("b",), {"name": "n", "status": None})
    for args, kwargs in (((), {"name": "n"}), (("b", "c"), {}), (("b",), {"branch_id": "b"})):
        with pytest.raises(InvalidInputError):
            operation.bind(args, kwargs)
    with pytest.raises(InvalidInputError):
        OPERATIONS["get_branch"].bind(("b",), {"more": 1})


def test_a_patch_is_merged_as_the_examples_of_rfc_7396() -> None:
    examples: list[tuple[Any, Any, Any]] = [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b"}, {"a": None}, {}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        (["a", "b"], ["c", "d"], ["c", "d"]),
        ({"a": "b"}, ["c"], ["c"]),
        ({"a": "foo"}, None, None),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ([1, 2], {"a": "b", "c": None}, {"a": "b"}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
    ]
    for target, patch, expected in examples:
        assert expected == merge_patch(target, patch)


def test_encoded_json_is_proved_once() -> None:
    proved = encoded_json("x", RawJson('{"a": 1}'))
    assert isinstance(proved, CheckedJson)
    assert proved is encoded_json("x", proved)
    for bad in ("{", "", "NaN", '"a" 1', "[1,]"):
        with pytest.raises(InvalidInputError):
            encoded_json("x", RawJson(bad))


def test_an_estimate_gives_up_when_it_is_large_enough() -> None:
    assert 5 <= rough_size({"a": ["bc", 1]}) < 100
    assert 128 * 1024 <= rough_size([["x" * 100] * 10_000] * 10_000) < 1_000_000
