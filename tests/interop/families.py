"""Calls that write rows of each family and calls that read them back, in the names that both packages share.

A family is a pair of functions of a prefix, which keeps the rows of its two writers apart: ``writes`` gives calls, and
``reads`` gives calls from the prefix and what the writes returned. A call is a method, its arguments by position and
its arguments by name.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["FAMILIES", "Call", "Family", "call"]

Call = tuple[str, tuple[Any, ...], dict[str, Any]]
_INSTRUCTION = "lionagi.protocols.messages.instruction.Instruction"
_NOW = 1_700_000_000.25
_WHY = {"reason_code": "run.completed.ok", "reason_summary": "fertig 🦁", "evidence_refs": [{"kind": "log", "id": "1"}]}


def call(method: str, *args: Any, **kwargs: Any) -> Call:
    """One call of a method."""
    return method, args, kwargs


@dataclass(frozen=True)
class Family:
    """How the rows of a family are written and read."""

    writes: Callable[[str], list[Call]]
    reads: Callable[[str, Sequence[Any]], list[Call]]


def _session(p: str, **fields: Any) -> list[Call]:
    """A running session with one branch, each on a progression of its own."""
    session = {"id": f"{p}s", "progression_id": f"{p}sp", "created_at": _NOW, "updated_at": _NOW, "status": "running"}
    branch = {"id": f"{p}b", "session_id": f"{p}s", "progression_id": f"{p}bp", "created_at": _NOW, "name": "ast"}
    return [
        call("create_progression", f"{p}sp"),
        call("create_progression", f"{p}bp"),
        call("create_session", {**session, "started_at": _NOW, **fields}),
        call("create_branch", branch),
    ]


def _message(message_id: str, number: float, **fields: Any) -> dict[str, Any]:
    content = {"text": f"é 🦁 {number}", "nested": [1, 2.5, None, {"a": []}]}
    return {"id": message_id, "created_at": _NOW + number, "role": "user", "content": content, **fields}


def _messages(p: str) -> list[Call]:
    known = {"lion_class": _INSTRUCTION, "more": {"x": None}}
    several = [_message(f"{p}m{number}", number) for number in range(3)]
    return [
        *_session(p),
        call("insert_message", _message(f"{p}one", 0.5, node_metadata=known, embedding=[0.1, -2.5, 3e-5])),
        call("insert_message", _message(f"{p}two", 0.5, node_metadata={"lion_class": "some.Other"}, sender="a")),
        call("insert_message", _message(f"{p}text", 0.5, content="only text", recipient="b", channel="c")),
        call(
            "insert_messages", several, progression_ids=[f"{p}bp", f"{p}sp"], session_id=f"{p}s", activity_at=_NOW + 9
        ),
        call("append_to_progression", f"{p}bp", f"{p}one"),
        call("append_to_progression", f"{p}bp", f"{p}m0"),
        call("set_progression", f"{p}sp", [f"{p}two", f"{p}one", f"{p}two"]),
    ]


def _messages_read(p: str, _results: Sequence[Any]) -> list[Call]:
    return [
        *(call("get_message", f"{p}{name}") for name in ("one", "two", "text", "m0", "missing")),
        call("get_messages", [f"{p}one", f"{p}missing", f"{p}m2"]),
        call("get_progression", f"{p}bp"),
        call("get_progression", f"{p}sp"),
        call("get_branch_messages", f"{p}b"),
    ]


def _sessions(p: str) -> list[Call]:
    given = {"name": "n", "model": "m", "cc_session_id": f"{p}cc", "run_id": f"{p}run", "input_tokens": 5}
    more = {
        "node_metadata": {"a": {"b": 1}},
        "invocation_kind": "flow",
        "total_cost_usd": 0.1,
        "project": f"{p}project",
    }
    ended = {"id": f"{p}old", "progression_id": f"{p}sp", "status": "failed", "started_at": _NOW, "created_at": _NOW}
    return [
        call("create_invocation", {"id": f"{p}i", "skill": "s", "started_at": _NOW}),
        *_session(p, **given, **more),
        call("create_session", ended),
        call("update_session", f"{p}s", name="renamed", num_turns=3, node_metadata='{"a": {"b": 1}, "c": [1]}'),
        call("merge_session_node_metadata", f"{p}s", {"a": {"b": None, "d": "ü"}}),
        call("set_session_user_label", f"{p}s", "  label "),
        call("set_session_provenance", f"{p}s", artifacts_path="/tmp/x", project_source="config_toml"),
        call("attach_session_invocation", f"{p}s", f"{p}i"),
        call("update_artifact_verification", f"{p}s", {"status": "passed", "produced": []}),
        call("touch_session_activity", f"{p}s", at=_NOW + 50),
        call("update_session", f"{p}s", status="completed", ended_at=_NOW + 60, **_WHY),
    ]


def _sessions_read(p: str, _results: Sequence[Any]) -> list[Call]:
    return [
        *(call("get_session", f"{p}{name}") for name in ("s", "old", "missing")),
        call("get_session_by_cc_id", f"{p}cc"),
        call("get_sessions_for_run", f"{p}run"),
        call("list_sessions_for_invocation", f"{p}i"),
        call("get_project", f"{p}project"),
        call("get_invocation", f"{p}i"),
        call("count_sessions"),
    ]


def _branches(p: str) -> list[Call]:
    return [
        *_session(p),
        call(
            "create_branch", {"id": f"{p}b2", "session_id": f"{p}s", "progression_id": f"{p}bp", "created_at": _NOW + 1}
        ),
        call("update_branch", f"{p}b", name="zweig", node_metadata={"k": [None]}, model="m", started_at=_NOW),
        call("finalize_branch", f"{p}b", status="completed", ended_at=_NOW + 3),
    ]


def _invocations(p: str) -> list[Call]:
    row = {"id": f"{p}i", "skill": f"{p}skill", "started_at": _NOW, "prompt": "tu was", "node_metadata": {"a": 1}}
    return [
        call("create_invocation", row),
        call("create_invocation", {"id": f"{p}j", "skill": f"{p}skill", "started_at": _NOW + 1}),
        call("update_invocation", f"{p}i", plugin="p"),
        call("merge_invocation_node_metadata", f"{p}i", {"a": None, "b": {"c": True}}),
        call("update_invocation", f"{p}i", status="completed", ended_at=_NOW + 5, **_WHY),
    ]


def _shows(p: str) -> list[Call]:
    play = {"id": f"{p}p", "show_id": f"{p}w", "name": "erstes", "depends_on": ["x", "y"], "sort_order": 2}
    return [
        call("create_show", {"id": f"{p}w", "topic": f"{p}topic", "show_dir": "/d", "goal": "g", "created_at": _NOW}),
        call("update_show", f"{p}w", repo="r", status="completed", reason_code="run.completed.ok"),
        call("create_play", {**play, "created_at": _NOW}),
        call("create_play", {**play, "id": f"{p}q", "name": "zweites", "sort_order": 1, "created_at": _NOW}),
        call("update_play", f"{p}p", gate_passed=1, merge_sha="abc", depends_on=[], status="merged"),
    ]


def _projects(p: str) -> list[Call]:
    return [
        call("register_project", f"{p}seen", "git_remote", path="/p", github="o/r"),
        call("register_project", f"{p}seen", "config_toml"),
        call("create_project", f"{p}made", description="d"),
        call("update_project", f"{p}made", github="o/s"),
        *_session(p, project=f"{p}made"),
    ]


def _signals(p: str) -> list[Call]:
    payloads = [{}, {"a": [1, {"b": None}]}, {"t": "ä"}]
    signal = {"session_id": f"{p}s", "kind": "note", "ts": _NOW}
    return [*_session(p), *(call("insert_session_signal", **signal, op_id=f"o{len(x)}", payload=x) for x in payloads)]


def _controls(p: str) -> list[Call]:
    control = {"session_id": f"{p}s", "created_at": _NOW}
    return [
        *_session(p),
        call("insert_session_control", **control, verb="message", payload={"text": "hallo"}),
        call("insert_session_control", **{**control, "created_at": _NOW + 1}, verb="stop"),
        call("insert_session_control", session_id=f"{p}missing", verb="stop"),
    ]


def _engine_runs(p: str) -> list[Call]:
    run = {"kind": f"{p}kind", "spec_json": {"steps": [1, {"x": None}]}, "started_at": _NOW}
    lineage = {"invocation_id": f"{p}i", "signal_session_id": None, "parent_session_id": f"{p}s"}
    return [
        *_session(p),
        call("create_invocation", {"id": f"{p}i", "skill": "s", "started_at": _NOW}),
        call("insert_engine_run", run_id=f"{p}r", session_id=f"{p}s", **run),
        call("insert_engine_run", run_id=f"{p}r2", **{**run, "started_at": _NOW + 1}),
        call("set_engine_run_lineage", f"{p}r", **lineage),
        call("record_engine_run_outcome", f"{p}r", {"ok": True, "n": 1.5}),
        call("update_engine_run", f"{p}r", status="failed", ended_at=_NOW + 1, export_dir="/x", error="kaputt"),
    ]


def _definitions(p: str) -> list[Call]:
    agent = {"kind": "agent", "name": f"{p}agent", "path": "a.md"}
    return [
        call("save_definition", **agent, content="eins", message=None),
        call("save_definition", **agent, content="zwei", message="geändert"),
        call("save_definition", kind="playbook", name=f"{p}book", path="", content=""),
        call(
            "create_engine_def",
            {"id": f"{p}e", "name": f"{p}engine", "kind": "k", "options": {"o": [1]}, "max_depth": 2},
        ),
        call("update_engine_def", f"{p}e", options={"o": None}, max_depth=2),
        call("create_workflow_def", {"id": f"{p}w", "name": f"{p}workflow", "spec_json": {"nodes": []}}),
        call("update_workflow_def", f"{p}w", spec_json={"nodes": [{"id": "é"}]}),
    ]


def _definitions_read(p: str, _results: Sequence[Any]) -> list[Call]:
    return [
        call("get_definition", "agent", f"{p}agent"),
        call("get_definition", "agent", f"{p}agent", version=1),
        call("get_definition", "playbook", f"{p}book"),
        call("list_definition_versions", "agent", f"{p}agent"),
        call("get_engine_def", f"{p}e"),
        call("get_engine_def_by_name", f"{p}engine"),
        call("list_engine_defs", kind="k"),
        call("get_workflow_def", f"{p}w"),
        call("get_workflow_def_by_name", f"{p}workflow"),
        call("list_workflow_defs"),
    ]


def _artifacts(p: str) -> list[Call]:
    both = {"session_id": f"{p}s", "invocation_id": f"{p}i"}
    return [
        *_session(p),
        call("create_invocation", {"id": f"{p}i", "skill": "s", "started_at": _NOW}),
        call("insert_artifact", kind="k", name="n", content={"a": [1, None]}, **both),
        call("insert_artifact", kind="k", name="n", content={"b": "ü"}, file_path="f.txt", **both),
        call("insert_artifact", kind="k", name=f"{p}alone", content={}),
    ]


def _artifacts_read(p: str, results: Sequence[Any]) -> list[Call]:
    return [
        *(call("get_artifact", artifact_id) for artifact_id in results[-3:]),
        call("list_artifacts_for_invocation", f"{p}i"),
        call("list_artifacts_for_session", f"{p}s"),
    ]


def _events(p: str) -> list[Call]:
    event = {"action": f"{p}action", "target_id": f"{p}target"}
    return [
        call("insert_admin_event", **event, details={"n": 1, "deep": [{"x": None}]}, actor="somebody"),
        call("insert_admin_event", action=f"{p}action", details={}),
    ]


def _schedules(p: str) -> list[Call]:
    row = {
        "id": f"{p}c",
        "name": f"{p}schedule",
        "trigger_type": "interval",
        "interval_sec": 60,
        "action_kind": "agent",
    }
    more = {"owner_key": f"{p}owner", "github_filter": {"a": [1]}, "action_extra_args": ["-x"], "interval_sec": 60}
    run = {"schedule_id": f"{p}c", "trigger_context": {"t": None}, "action_kind": "agent", "action_args": {"a": "ü"}}
    cursors = {"next_fire_at": _NOW + 60, "last_fired_at": _NOW}
    end = {"status": "completed", "exit_code": 0, "ended_at": _NOW + 5, "reason_code": "run.completed.ok"}
    return [
        call("create_schedule", {**row, **more, "next_fire_at": _NOW}),
        call("update_schedule", f"{p}c", description="b", enabled=0, on_fail={"notify": True}),
        call("update_schedule", f"{p}c", expect_next_fire_at=1.0, description="lost"),
        call("create_schedule_run", {"id": f"{p}r", "fired_at": _NOW, "created_at": _NOW, **run}),
        call(
            "create_schedule_run_and_advance",
            {"id": f"{p}r2", "fired_at": _NOW + 1, "created_at": _NOW + 1, **run},
            schedule_id=f"{p}c",
            schedule_fields=cursors,
            expect_next_fire_at=_NOW,
        ),
        call("update_schedule_run", f"{p}r", **end),
        call("update_schedule_run", f"{p}r2", resume_packet={"n": 1}, dispatched_at=_NOW + 2),
    ]


def _schedules_read(p: str, _results: Sequence[Any]) -> list[Call]:
    return [
        *(call("get_schedule", f"{p}{name}") for name in ("c", "missing")),
        call("get_schedule_by_name", f"{p}schedule"),
        call("list_schedules_by_owner_key", f"{p}owner"),
        call("get_schedule_history", f"{p}c"),
        *(call("get_schedule_run", f"{p}{name}") for name in ("r", "r2")),
        call("list_schedule_runs", f"{p}c"),
        call("list_running_schedule_runs", f"{p}c"),
        call("count_schedule_runs", f"{p}c"),
        call("schedule_run_streak", f"{p}c"),
        call("schedule_run_exists_since", f"{p}c", _NOW),
        call("sum_schedule_spend", f"{p}c"),
    ]


def _dispatches(p: str) -> list[Call]:
    return [
        *_session(p),
        call("enqueue_dispatch", kind=p, deliver_to="a", body={"x": [None, "ü"]}, dedup_key=f"{p}key"),
        call("enqueue_dispatch", kind=p, deliver_to="b", dedup_key=f"{p}key"),
        call("enqueue_dispatch", kind=p, deliver_to="c", max_attempts=2, expires_at=2e9, session_id=f"{p}s"),
    ]


def _statuses(p: str) -> list[Call]:
    change = {"reason_code": "run.completed.ok", "evidence_refs": [{"kind": "log"}], "metadata": {"m": [1]}}
    return [
        *_session(p),
        call("update_status", "session", f"{p}s", new_status="completed", actor="me", **change),
        call(
            "update_status",
            "session",
            f"{p}s",
            new_status="running",
            reason_code="run.started.ok",
            override=True,
            override_actor="chief",
            override_justification="again",
        ),
        call("update_status", "session", f"{p}s", new_status="failed", reason_code="run.failed.exception"),
    ]


def _one_by_one(*names: tuple[str, str]) -> Callable[[str, Sequence[Any]], list[Call]]:
    """Reads of one id each, by method and the id without its prefix."""
    return lambda p, _results: [call(method, f"{p}{name}") for method, name in names]


FAMILIES: dict[str, Family] = {
    "messages": Family(_messages, _messages_read),
    "sessions": Family(_sessions, _sessions_read),
    "branches": Family(_branches, _one_by_one(("get_branch", "b"), ("get_branch", "b2"), ("list_branches", "s"))),
    "invocations": Family(
        _invocations,
        lambda p, _results: [
            call("get_invocation", f"{p}i"),
            call("list_invocations", skill=f"{p}skill"),
            call("count_invocations", skill=f"{p}skill"),
            call("list_sessions_for_invocations", [f"{p}i", f"{p}missing"]),
        ],
    ),
    "shows": Family(
        _shows,
        _one_by_one(
            ("get_show", "w"), ("get_show_by_topic", "topic"), ("get_play", "p"), ("get_play", "q"), ("list_plays", "w")
        ),
    ),
    "projects": Family(_projects, _one_by_one(("get_project", "seen"), ("get_project", "made"))),
    "signals": Family(
        _signals,
        lambda p, _results: [call("get_session_signals_after", f"{p}s", after) for after in (0, 2)],
    ),
    "controls": Family(
        _controls,
        lambda p, results: [
            *(call("get_session_control", control_id) for control_id in results[-3:-1]),
            call("list_pending_session_controls", f"{p}s"),
        ],
    ),
    "engine runs": Family(
        _engine_runs,
        lambda p, _results: [
            call("get_engine_run", f"{p}r"),
            call("list_engine_runs", kind=f"{p}kind"),
            call("list_engine_run_summaries", kind=f"{p}kind"),
        ],
    ),
    "definitions": Family(_definitions, _definitions_read),
    "artifacts": Family(_artifacts, _artifacts_read),
    "admin events": Family(
        _events,
        lambda p, _results: [call("list_admin_events", action=f"{p}action")],
    ),
    "schedules": Family(_schedules, _schedules_read),
    "dispatches": Family(
        _dispatches, lambda _p, results: [call("get_dispatch", dispatch_id) for dispatch_id in results[-3:]]
    ),
    "status transitions": Family(_statuses, lambda p, _results: [call("get_session", f"{p}s")]),
}
