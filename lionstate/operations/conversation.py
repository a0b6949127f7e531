"""Operations on messages, sessions and branches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from lionstate.operations.table import KeysFunction, Operation, operation
from lionstate.records import branch_messages, branches, live, messages, metadata_merge, session_changes, sessions
from lionstate.records.schemas import ANY, MAPPING, TEXT, list_of, nullable
from lionstate.records.values import check_text, encoded_json, finite_number, rough_size

__all__ = ["TABLE"]

Params = dict[str, Any]


def _recording(make: Callable[[Mapping[str, Any]], live.Recording]) -> KeysFunction:
    def keys(params: Mapping[str, Any]) -> frozenset[str]:
        return frozenset(make(params).keys())

    return keys


def _size_of(msg: object) -> int:
    if isinstance(msg, messages.MessageRow):
        return msg.size
    # Only these two can be large; the rest is not worth a walk.
    large = (msg.get("content"), msg.get("embedding")) if isinstance(msg, Mapping) else msg
    return 256 + rough_size(large)


def _message_size(params: Mapping[str, Any]) -> int:
    if "msg" in params:
        return _size_of(params["msg"])
    found = params.get("msgs")
    return sum(map(_size_of, found)) if isinstance(found, (list, tuple)) else rough_size(found)


def _session_keys(params: Mapping[str, Any]) -> frozenset[str]:
    """The session, and every row that it points at or changes."""
    row = params["session"]
    found = {f"s:{row['id']}", f"p:{row['progression_id']}"}
    pointers = {"invocation_id": "i", "project": "j", "first_msg_id": "m", "last_msg_id": "m"}
    found.update(f"{prefix}:{row[name]}" for name, prefix in pointers.items() if row.get(name) is not None)
    return frozenset(found)


def _session_key(params: Mapping[str, Any]) -> frozenset[str]:
    found = {f"s:{params['session_id']}"}
    if params.get("project") is not None:
        found.add(f"j:{params['project']}")
    if params.get("new") is not None:
        found.add(f"p:{params['new']}")
    return frozenset(found)


def _branch_keys(params: Mapping[str, Any]) -> frozenset[str]:
    row = params["branch"]
    found = {f"b:{row['id']}", f"s:{row['session_id']}", f"p:{row['progression_id']}"}
    if row.get("system_msg_id") is not None:
        found.add(f"m:{row['system_msg_id']}")
    return frozenset(found)


def _branch_key(params: Mapping[str, Any]) -> frozenset[str]:
    found = {f"b:{params['branch_id']}"}
    for name, prefix in (("system_msg_id", "m"), ("new", "p")):
        if params.get(name) is not None:
            found.add(f"{prefix}:{params[name]}")
    return frozenset(found)


def _of_one_row(name: str) -> Callable[[Params], Params]:
    """Check the id that an operation names."""

    def prepare(params: Params) -> Params:
        check_text(name, params[name])
        if "new" in params:
            check_text("new", params["new"])
        return params

    return prepare


_session_named = _of_one_row("session_id")
_branch_named = _of_one_row("branch_id")


def _touch(params: Params) -> Params:
    if params.get("at") is not None:
        params["at"] = finite_number("at", params["at"])
    return _session_named(params)


def _patch(params: Params) -> Params:
    metadata_merge.check_patch("patch", params["patch"])
    return _session_named(params)


def _label(params: Params) -> Params:
    params["label"] = session_changes.checked_label(params["label"])
    return _session_named(params)


def _provenance(params: Params) -> Params:
    _session_named(params)
    given = {name: value for name, value in params.items() if name != "session_id"}
    return {"session_id": params["session_id"], **session_changes.checked_provenance(given)}


def _verification(params: Params) -> Params:
    params["verification"] = encoded_json("verification", params["verification"])
    return _session_named(params)


def _changes(params: Params) -> Params:
    _branch_named(params)
    fields = {name: value for name, value in params.items() if name != "branch_id"}
    return {"branch_id": params["branch_id"], **branches.checked_changes(fields)}


def _session_json(
    script: Callable[..., Any], prepare: Callable[[Params], Params], schemas: Mapping[str, Any]
) -> Operation:
    """An operation that stores a JSON value on one session."""
    return operation(script, writes=True, keys=_session_key, prepare=prepare, size=rough_size, schemas=schemas)


_LABEL = {"type": ["string", "null"], "pattern": r"^[^\u0000-\u001f\u007f-\u009f]*$", "maxLength": 160}

TABLE: tuple[Operation, ...] = (
    operation(
        live.record_message,
        writes=True,
        keys=_recording(live.recording_of),
        fold=live.record_many,
        prepare=live.checked_record,
        size=_message_size,
        schemas={"msg": messages.MESSAGE_SCHEMA},
    ),
    operation(
        live.insert_message,
        writes=True,
        keys=_recording(live.message_of),
        fold=live.insert_message_many,
        prepare=live.checked_record,
        size=_message_size,
        schemas={"msg": messages.MESSAGE_SCHEMA},
    ),
    operation(
        live.insert_messages,
        writes=True,
        keys=_recording(live.several_of),
        fold=live.insert_messages_many,
        prepare=live.checked_record,
        size=_message_size,
        schemas={"msgs": list_of(messages.MESSAGE_SCHEMA), "progression_ids": list_of(TEXT)},
    ),
    operation(messages.get_message),
    operation(messages.get_messages),
    operation(
        sessions.create_session,
        writes=True,
        keys=_session_keys,
        prepare=lambda params: {"session": sessions.checked_session(params["session"])},
        size=rough_size,
        schemas={"session": sessions.SESSION_SCHEMA},
    ),
    operation(sessions.get_session),
    operation(sessions.get_session_by_cc_id),
    operation(sessions.get_sessions_for_run),
    operation(sessions.list_sessions),
    operation(sessions.count_sessions),
    operation(session_changes.touch_session_activity, writes=True, keys=_session_key, prepare=_touch),
    _session_json(session_changes.merge_session_node_metadata, _patch, {"patch": MAPPING}),
    operation(
        session_changes.set_session_user_label,
        writes=True,
        keys=_session_key,
        prepare=_label,
        schemas={"label": _LABEL},
    ),
    _session_json(session_changes.set_session_provenance, _provenance, {"node_metadata": ANY}),
    _session_json(session_changes.update_artifact_verification, _verification, {"verification": nullable(MAPPING)}),
    operation(session_changes.repair_session_progression, writes=True, keys=_session_key, prepare=_session_named),
    operation(
        branches.create_branch,
        writes=True,
        keys=_branch_keys,
        prepare=lambda params: {"branch": branches.checked_branch(params["branch"])},
        size=rough_size,
        schemas={"branch": branches.BRANCH_SCHEMA},
    ),
    operation(branches.get_branch),
    operation(branches.list_branches),
    operation(
        branches.update_branch,
        writes=True,
        keys=_branch_key,
        prepare=_changes,
        size=rough_size,
        schemas=branches.CHANGES_SCHEMAS,
    ),
    operation(branch_messages.get_branch_messages),
    operation(branches.repair_branch_progression, writes=True, keys=_branch_key, prepare=_branch_named),
)
