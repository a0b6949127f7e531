"""More ids than a statement may bind: 32,766 on SQLite, 32,767 on PostgreSQL (ADR-0055 D1, D3; ADR-0117 D1)."""

from __future__ import annotations

import json
from typing import Any

import pytest

from lionstate.errors import InvalidInputError
from tests.support.backends import Backend
from tests.support.conversations import message
from tests.support.records import assert_refused_unchanged, put

# Seconds of work each on an idle machine, and a minute on one that is far from it.
pytestmark = pytest.mark.timeout(180)
_COUNT = 33_000
_NUMBERS = "WITH RECURSIVE numbers(n) AS (SELECT 0 UNION ALL SELECT n + 1 FROM numbers WHERE n + 1 < :count)"
_ID = "'{}' || substr('00000' || n, length('00000' || n) - 4)"
_IDS = [f"m{number:05}" for number in range(_COUNT)]
# What takes at most 1,000 of a kind, or fewer.
_BOUNDED: dict[str, dict[str, Any]] = {
    "list_sessions_for_invocations": {"invocation_ids": _IDS},
    "count_schedule_runs_batch": {"schedule_ids": _IDS},
    "schedule_run_streaks": {"schedule_ids": _IDS},
    "schedule_health_evidence": {"schedule_ids": _IDS},
    "list_schedule_runs": {"schedule_id": "s", "status": _IDS},
    "list_tasks": {"status": _IDS},
    "count_tasks": {"status": _IDS},
    "list_sessions_with_tags": {"tags": _IDS},
    "count_unread_team_messages": {"team_id": "t", "readers": _IDS},
    "mark_team_messages_read": {"team_id": "t", "reader": "r", "message_ids": _IDS},
    "enqueue_revival_heartbeat": {"seats": _IDS, "reset_epoch": 1.0},
    "apply_schedule_set": {"creates": [], "updates": [], "disables": _IDS},
    "claim_tasks": {"worker_id": "w", "advertised_capabilities": _IDS},
    "register_heartbeat": {"worker_id": "w", "execution_targets": _IDS},
    "submit_task": {"action_kind": "agent", "args": {}, "execution_target": "host", "required_capabilities": _IDS},
    "update_session": {"session_id": "s", "set_if_null": _IDS},
    "prune_sessions": {"before": 1.0, "limit": _COUNT},
    "purge_dispatches": {"status": "delivered", "limit": _COUNT},
}


async def _messages(backend: Backend) -> None:
    await backend.execute(
        f"{_NUMBERS} INSERT INTO messages (id, created_at, content, role, lion_class)"
        f" SELECT {_ID.format('m')}, 1.0, '{{}}', 'user', 0 FROM numbers",
        count=_COUNT,
    )


async def _session(backend: Backend, **columns: Any) -> None:
    """A session whose progression names every message, with as many branches and rows of history."""
    await _messages(backend)
    await backend.put_progression("p", json.dumps(_IDS))
    row = {"created_at": 1.0, "updated_at": 1.0, "status": "completed", "progression_id": "p", **columns}
    await put(backend, "sessions", id="s", **row)
    await backend.execute(
        f"{_NUMBERS} INSERT INTO branches (id, created_at, session_id, progression_id)"
        f" SELECT {_ID.format('b')}, 1.0, 's', 'p' FROM numbers",
        count=_COUNT,
    )
    await backend.execute(
        f"{_NUMBERS} INSERT INTO status_transitions"
        " (id, entity_type, entity_id, status, reason_code, source, created_at)"
        f" SELECT {_ID.format('h')}, 'session', 's', 'running', 'run.started.ok', 'system', 1.0 FROM numbers",
        count=_COUNT,
    )


async def _count(backend: Backend, table: str) -> int:
    (row,) = await backend.rows(f'SELECT count(*) AS n FROM "{table}"')
    return int(row["n"])


async def test_messages_are_read_by_any_number_of_ids(backend: Backend, state: Any) -> None:
    await _messages(backend)
    await backend.put_progression("p", json.dumps(_IDS))
    assert _IDS == sorted(await state.get_messages([*_IDS, "missing"]))
    await put(backend, "sessions", id="s", created_at=1.0, updated_at=1.0, progression_id="p")
    await put(backend, "branches", id="b", created_at=1.0, session_id="s", progression_id="p")
    assert _IDS == [row["id"] for row in await state.get_branch_messages("b")]


async def test_a_progression_takes_any_number_of_ids(state: Any) -> None:
    await state.create_progression("p", _IDS)
    assert _COUNT == await state.count_progression_items("p")
    await state.set_progression("p", _IDS[::-1])
    assert _IDS[::-1] == await state.get_progression("p")
    while await state.delete_progression("p") or await state.remove_deleted_rows():
        pass
    assert [] == await state.get_progression("p")


async def test_messages_go_to_any_number_of_progressions(state: Any) -> None:
    await state.create_progression("p")
    await state.insert_messages([message("m")], progression_ids=["p", *_IDS])
    assert ["m"] == await state.get_progression("p")


async def test_a_large_session_is_pruned(backend: Backend, state: Any) -> None:
    await _session(backend)
    found = await state.prune_sessions(before=2.0)
    assert (1, _COUNT, 1, _COUNT) == tuple(found[name] for name in ("sessions", "branches", "progressions", "messages"))
    assert [0, 0, 0] == [await _count(backend, name) for name in ("messages", "branches", "status_transitions")]


async def test_a_large_imported_session_is_deleted(backend: Backend, state: Any) -> None:
    await _session(backend, source_kind="imported_fs")
    assert await state.delete_imported_session("s", require_source_kind="imported_fs")
    assert [0, 0, 0] == [await _count(backend, name) for name in ("messages", "branches", "status_transitions")]


async def test_any_number_of_dispatches_is_purged(backend: Backend, state: Any) -> None:
    await backend.execute(
        f"{_NUMBERS} INSERT INTO dispatch_outbox"
        " (id, kind, deliver_to, payload, status, next_attempt_at, created_at, updated_at)"
        f" SELECT {_ID.format('d')}, 'k', 'to', '{{}}', 'delivered', 1.0, 1.0, 1.0 FROM numbers",
        count=_COUNT,
    )
    gone = 0
    while found := (await state.purge_dispatches(status="delivered"))["total"]:
        gone += found
    assert (_COUNT, 0) == (gone, await _count(backend, "dispatch_outbox"))


async def test_what_has_a_bound_says_so(backend: Backend, state: Any) -> None:
    calls = [getattr(state, name)(**arguments) for name, arguments in _BOUNDED.items()]
    await assert_refused_unchanged(backend, InvalidInputError, *calls)
