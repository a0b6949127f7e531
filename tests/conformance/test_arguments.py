"""Texts that no row can be called are refused alike: what one database takes for a missing row fails the other."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from lionstate.errors import InvalidInputError, MissingKeyError
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


_PLAIN = {"str": "n", "float": 0.0, "int": 0, "Mapping[str, Any]": {}}


def _required(name: str) -> dict[str, Any]:
    """Arguments that a call must have: None where they may be, a list where they are nothing simpler."""
    found = [one for one in OPERATIONS[name].parameters if one.default is one.empty]
    return {one.name: None if one.annotation.endswith("None") else _PLAIN.get(one.annotation, []) for one in found}


def _mappings() -> dict[str, tuple[str, list[str]]]:
    """Of each operation that takes a mapping, the parameter and the keys that it must have."""
    return {
        name: (parameter, schema["required"])
        for name, entry in sorted(OPERATIONS.items())
        for parameter, schema in entry.schemas.items()
        if "required" in schema
    }


async def test_a_mapping_without_a_required_key(backend: Backend, state: Any) -> None:
    """One rule for all of them: a KeyError, as in LionAGI, and an invalid argument; None is a value, not a lack."""
    found = _mappings()
    assert {"create_session", "create_schedule_run", "insert_message"} < found.keys() and len(found) > 12
    lacking, empty = [], []
    for name, (parameter, required) in found.items():
        arguments = _required(name)
        for key in required:
            given = {other: "x" for other in required if other != key}
            lacking.append(getattr(state, name)(**{**arguments, parameter: given}))
        empty.append(getattr(state, name)(**{**arguments, parameter: {**dict.fromkeys(required, "x"), "id": None}}))
    await assert_refused_unchanged(backend, MissingKeyError, *lacking)
    with pytest.raises(KeyError, match=r"^session needs progression_id$"):
        await state.create_session({"id": "s"})
    outcomes = await asyncio.gather(*empty, return_exceptions=True)
    assert {InvalidInputError} == {type(outcome) for outcome in outcomes}


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
