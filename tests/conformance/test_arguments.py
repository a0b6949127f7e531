"""Texts that no row can be called are refused alike: what one database takes for a missing row fails the other."""

from __future__ import annotations

from typing import Any

import pytest

from lionstate.errors import InvalidInputError
from lionstate.operations import OPERATIONS
from tests.support.backends import Backend
from tests.support.records import assert_refused_unchanged

# They leave ids out that are in no row, as they do with any other id that is missing.
_LEAVE_OUT = {"get_message", "get_messages"}
_READS = {
    name: entry.parameters[0].name
    for name, entry in sorted(OPERATIONS.items())
    if not entry.writes and entry.parameters and entry.parameters[0].annotation == "str" and name not in _LEAVE_OUT
}


@pytest.mark.parametrize("bad", ["a\0b", 5])
async def test_reads_refuse_what_is_no_text(backend: Backend, state: Any, bad: object) -> None:
    more: dict[str, dict[str, Any]] = {
        "get_definition": {"name": "n"},
        "list_definition_versions": {"name": "n"},
        "get_session_signals_after": {"after_seq": 0},
        "count_unread_team_messages": {"readers": []},
        "spend_rollup": {"window_start": 0.0},
    }
    for name, first in _READS.items():
        with pytest.raises(InvalidInputError):
            await getattr(state, name)(**{first: bad, **more.get(name, {})})


@pytest.mark.parametrize("bad", ["a\0b", 5, ["p"]])
async def test_a_progression_is_called_by_a_text(backend: Backend, state: Any, bad: Any) -> None:
    await assert_refused_unchanged(
        backend,
        InvalidInputError,
        state.create_progression(bad),
        state.set_progression(bad, ["m"]),
        state.append_to_progression(bad, "m"),
        state.delete_progression(bad),
    )


async def test_messages_leave_out_what_no_row_is_called(state: Any) -> None:
    assert await state.get_message("a\0b") is None
    assert {} == await state.get_messages(["a\0b", "missing"])
