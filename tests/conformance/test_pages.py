"""Lists of the records of one owner come in pages (ADR-0055 D1, D2, D4)."""

from __future__ import annotations

from typing import Any

import pytest

from lionstate.errors import InvalidInputError
from tests.support.backends import Backend
from tests.support.conversations import conversation
from tests.support.records import assert_refused_unchanged, put

_COUNT = 5
# Methods, what they are asked for, and what tells one entry from another.
_LISTS: dict[str, tuple[dict[str, Any], str]] = {
    "list_branches": ({"session_id": "s"}, "id"),
    "get_sessions_for_run": ({"run_id": "r"}, "id"),
    "list_sessions_for_invocation": ({"invocation_id": "i"}, "id"),
    "list_definition_versions": ({"kind": "agent", "name": "d"}, "version"),
    "list_latest_definition_versions": ({}, "name"),
    "list_artifacts_for_invocation": ({"invocation_id": "i"}, "id"),
    "list_artifacts_for_session": ({"session_id": "s"}, "id"),
    "list_admin_events": ({"action": "a"}, "id"),
    "list_run_tags": ({"session_id": "s"}, ""),
    "list_pending_session_controls": ({"session_id": "s"}, "id"),
}


async def _fill(backend: Backend) -> None:
    """Five entries of each list, written so that their times do not tell them apart."""
    await conversation(backend)
    await put(backend, "invocations", id="i", skill="x", started_at=1.0, created_at=1.0, updated_at=1.0)
    for number in range(_COUNT):
        name, at = f"n{number}", {"created_at": 5.0}
        both = {**at, "updated_at": 5.0}
        if number:
            await put(backend, "branches", id=name, session_id="s", progression_id="bp", **at)
        row = {"progression_id": "sp", "run_id": "r", "invocation_id": "i", **both}
        await put(backend, "sessions", id=name, **row)
        row = {"kind": "agent", "path": "", "content": "", **at}
        await put(backend, "definitions", id=f"v{number}", name="d", version=number + 1, **row)
        if number:
            await put(backend, "definitions", id=name, name=name, version=1, **row)
        for parent, value in (("invocation_id", "i"), ("session_id", "s")):
            row = {"kind": "k", "name": name, "content": "{}", **both}
            await put(backend, "artifacts", id=f"{parent}{number}", **{parent: value}, **row)
        await put(backend, "admin_events", id=name, action="a", actor="x", details="{}", **at)
        await put(backend, "run_tags", session_id="s", tag=name, **at)
        await put(backend, "session_controls", id=name, session_id="s", verb="pause", payload="{}", **at)


async def test_pages_make_up_the_whole(backend: Backend, state: Any) -> None:
    await _fill(backend)
    for name, (arguments, key) in _LISTS.items():
        read = getattr(state, name)
        whole = await read(**arguments)
        assert _COUNT == len({row[key] if key else row for row in whole}), name
        assert whole == [row for start in range(0, 6, 2) for row in await read(**arguments, limit=2, offset=start)], (
            name
        )
        assert [] == await read(**arguments, offset=_COUNT), name


@pytest.mark.parametrize("page", [{"limit": 0}, {"limit": 1001}, {"limit": None}, {"limit": True}, {"offset": -1}])
async def test_a_page_out_of_bounds_is_refused(backend: Backend, state: Any, page: dict[str, Any]) -> None:
    calls = [getattr(state, name)(**arguments, **page) for name, (arguments, _) in _LISTS.items()]
    await assert_refused_unchanged(backend, InvalidInputError, *calls)


async def test_what_is_missing_has_no_pages(state: Any) -> None:
    for name, (arguments, _) in _LISTS.items():
        assert [] == await getattr(state, name)(**dict.fromkeys(arguments, "missing")), name
