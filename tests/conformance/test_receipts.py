"""``with_key``: a call under an idempotency key happens once, on both runners (design decision 39)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from lionstate.engine import NotWritten, Written
from lionstate.errors import IdempotencyConflictError, InvalidInputError
from tests.support.backends import Backend

TASK: dict[str, Any] = {"action_kind": "agent", "args": {"n": 1}, "execution_target": "host"}


async def test_a_call_under_a_key_happens_once(backend: Backend, state: Any) -> None:
    answers = await asyncio.gather(*(state.with_key("k").submit_task(**TASK) for _ in range(64)))
    assert {answers[0]} == set(answers)
    assert 1 == await state.count_tasks()
    assert answers[0] != await state.submit_task(**TASK)
    for call in (state.with_key("k").submit_task(**TASK | {"args": {}}), state.with_key("k").delete_project("x")):
        with pytest.raises(IdempotencyConflictError):
            await call
    assert 2 == await state.count_tasks()
    caller = "" if not backend.name.startswith("daemon") else await _own_caller(backend)
    assert {caller} == {row["caller"] for row in await backend.rows("SELECT caller FROM request_receipts")}


async def _own_caller(backend: Backend) -> str:
    rows = await backend.rows("SELECT caller FROM request_receipts WHERE caller LIKE 'uid:%' LIMIT 1")
    return str(rows[0]["caller"])


async def test_calls_of_a_batch_keep_their_keys(state: Any) -> None:
    async def batch(**keys: int) -> Any:
        async with state.batch(atomic=False) as collected:
            for key, number in keys.items():
                collected.with_key(key).submit_task(**TASK | {"args": {"n": number}})
            collected.create_progression("p")
        return collected.results

    first = await batch(a=1, b=2)
    again = await batch(b=2, a=3)
    assert [Written] * 3 == [type(outcome) for outcome in first]
    assert [first[1].value, NotWritten] == [again[0].value, type(again[1])]
    assert isinstance(again[1].error, IdempotencyConflictError)
    assert 2 == await state.count_tasks()


async def test_what_takes_no_key(state: Any) -> None:
    for read in (state.with_key("k").count_tasks, lambda: state.with_key("k").get_progression("p")):
        with pytest.raises(InvalidInputError):
            await read()
    for bad in ("", "two words", "é"):
        with pytest.raises(InvalidInputError):
            state.with_key(bad)
    async with state.batch() as batch:
        with pytest.raises(InvalidInputError):
            batch.with_key("")
        with pytest.raises(AttributeError):
            batch.with_key("k").with_key("j")
