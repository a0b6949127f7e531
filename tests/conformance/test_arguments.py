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


_PLAIN = {"str": "n", "float": 0.0, "int": 0}


def _required(name: str) -> dict[str, Any]:
    """Arguments that a call must have; a list where they are no number and no text."""
    found = OPERATIONS[name].parameters
    return {one.name: _PLAIN.get(one.annotation, []) for one in found if one.default is one.empty}


@pytest.mark.parametrize("bad", ["a\0b", 5])
async def test_reads_refuse_what_is_no_text(backend: Backend, state: Any, bad: object) -> None:
    for name, first in _READS.items():
        with pytest.raises(InvalidInputError):
            await getattr(state, name)(**{**_required(name), first: bad})


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


async def test_messages_leave_out_what_no_row_is_called(backend: Backend, state: Any) -> None:
    assert await state.get_message("a\0b") is None
    # Not a text at all: there is no such row either.
    assert await backend.direct.get_message({"no": "text"}) is None  # type: ignore[arg-type]
    assert {} == await state.get_messages(["a\0b", "missing"])
