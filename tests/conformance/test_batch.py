"""``batch()``: calls collected in a block and run at its end (design §1, §2.2)."""

from __future__ import annotations

from typing import Any

import pytest

from lionstate.engine import NotWritten, Written
from lionstate.errors import InvalidInputError
from tests.support.backends import Backend


async def test_an_atomic_batch_writes_all(backend: Backend, state: Any) -> None:
    await backend.put_progression("p", "[]")
    await backend.put_progression("q", "[]")
    async with state.batch() as batch:
        batch.append_to_progression("p", "a")
        await batch.append_to_progression("q", message_id="b")
        batch.append_to_progression("p", "c")
        assert [] == await state.get_progression("p")
    assert (Written(None),) * 3 == batch.results
    assert ["a", "c"] == await state.get_progression("p")
    assert ["b"] == await state.get_progression("q")


async def test_an_atomic_batch_writes_all_or_nothing(backend: Backend, state: Any) -> None:
    await backend.put_progression("p", "[]")
    with pytest.raises(InvalidInputError):
        async with state.batch(atomic=True) as batch:
            batch.append_to_progression("p", "a")
            batch.append_to_progression("p", "bad\0")
    assert [NotWritten, NotWritten] == [type(found) for found in batch.results]
    assert [] == await state.get_progression("p")


async def test_calls_of_another_batch_have_outcomes_of_their_own(backend: Backend, state: Any) -> None:
    await backend.put_progression("p", "[]")
    async with state.batch(atomic=False) as batch:
        for message_id in ("a", "bad\0", "b", "a"):
            batch.append_to_progression("p", message_id)
    assert [Written, NotWritten, Written, Written] == [type(found) for found in batch.results]
    assert isinstance(batch.results[1].error, InvalidInputError)
    assert ["a", "b"] == await state.get_progression("p")


async def test_a_block_that_raises_sends_nothing(backend: Backend, state: Any) -> None:
    await backend.put_progression("p", "[]")
    with pytest.raises(ZeroDivisionError):
        async with state.batch() as batch:
            batch.append_to_progression("p", "a")
            raise ZeroDivisionError
    assert () == batch.results
    assert [] == await state.get_progression("p")


async def test_an_empty_batch_is_nothing(state: Any) -> None:
    async with state.batch() as batch:
        pass
    assert () == batch.results


async def test_only_writes_inside_the_block(state: Any) -> None:
    async with state.batch() as batch:
        with pytest.raises(InvalidInputError):
            batch.get_progression("p")
        with pytest.raises(TypeError):
            batch.append_to_progression("p")
        for name in ("transaction", "batch", "_run", "no_such_method"):
            with pytest.raises(AttributeError):
                getattr(batch, name)
    with pytest.raises(InvalidInputError):
        batch.append_to_progression("p", "late")
