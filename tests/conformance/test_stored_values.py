"""What is stored is answered: by a daemon as in process, alone, in batches, and under a key."""

from __future__ import annotations

import asyncio
import math
import struct
from typing import Any

import pytest

from lionstate import StateClient
from lionstate.engine import Written
from lionstate.errors import BackendError, InvalidInputError, MissingKeyError, StateError
from lionstate.schema.types import RawJson
from tests.support.backends import Backend
from tests.support.conversations import conversation, message

# What LionAGI writes and strict JSON encoders refuse.
_ODD = {"text": "half \ud83d", "\udc00": ["\ud800", "\U0001f600", None]}
_INFINITE = {"x": [math.inf, -math.inf]}


async def _store(backend: Backend) -> None:
    await conversation(backend)
    rows = [
        message("plain"),
        message("odd", content=_ODD, node_metadata=_ODD),
        message("inf", content=RawJson('{"x":[1e999,-1e999]}')),
    ]
    await backend.direct.insert_messages(rows, progression_ids=["bp"])


async def test_messages_with_half_characters_and_infinities_are_read(backend: Backend, state: Any) -> None:
    await _store(backend)
    odd, infinite = await asyncio.gather(state.get_message("odd"), state.get_message("inf"))
    assert (_ODD, _ODD, _INFINITE) == (odd["content"], odd["node_metadata"], infinite["content"])
    page = await state.get_branch_messages("b")
    assert ["plain", "odd", "inf"] == [row["id"] for row in page]
    assert page == await backend.direct.get_branch_messages("b")
    assert await state.get_messages(["odd", "inf"]) == {"odd": odd, "inf": infinite}
    await backend.direct.update_session("s", node_metadata=_ODD)
    (session,) = await state.list_sessions()
    assert _ODD == session["node_metadata"]


async def test_what_is_claimed_is_told(backend: Backend, state: Any) -> None:
    """One odd row among others: the claim is committed and its answer is whole, also when it is asked for again."""
    for body in ({}, _ODD, {}):
        await backend.direct.enqueue_dispatch(kind="k", deliver_to="d", body=body)
        await backend.direct.submit_task(action_kind="agent", args=body, execution_target="host")
    claims = state.with_key("k").claim_tasks
    tasks, claimed = await asyncio.gather(claims(worker_id="w", limit=5), state.claim_due_dispatches(limit=5))
    assert (3, 1) == (len(claimed), [row["payload"]["body"] for row in claimed].count(_ODD))
    assert (3, 1) == (len(tasks), [row["action_args"] for row in tasks].count(_ODD))
    assert tasks == await claims(worker_id="w", limit=5)
    again = await state.list_dispatches()
    assert 1 == [row["payload"]["body"] for row in again].count(_ODD)


async def test_a_batch_tells_what_it_wrote(backend: Backend, state: Any) -> None:
    await backend.direct.submit_task(action_kind="agent", args=_ODD, execution_target="host")
    async with state.batch(atomic=True) as calls:
        calls.create_progression("new")
        calls.claim_tasks(worker_id="w", limit=5)
    assert [Written] * 2 == [type(one) for one in calls.results]
    assert [_ODD] == [row["action_args"] for row in calls.results[1].value]


async def test_nan_is_null_over_http_and_hides_nothing(backend: Backend, state: Any) -> None:
    await _store(backend)
    packed = struct.pack("<2f", math.nan, 0.5)
    await backend.execute("UPDATE messages SET embedding = :packed WHERE id = 'odd'", packed=packed)
    (_, odd, _) = await state.get_branch_messages("b")
    assert [None if isinstance(state, StateClient) else math.nan, 0.5] == pytest.approx(odd["embedding"], nan_ok=True)
    # JSON text with NaN in it is none: SQLite, which checks nothing, gives the text.
    text = '{"x": NaN}'
    change = backend.execute("UPDATE messages SET content = :text WHERE id = 'odd'", text=text)
    if backend.is_postgresql:
        with pytest.raises(StateError):
            await change
    else:
        await change
        assert text == (await state.get_message("odd"))["content"]


async def test_an_embedding_that_is_text_is_the_stores_fault(backend: Backend, state: Any) -> None:
    await _store(backend)
    change = backend.execute("UPDATE messages SET embedding = :text WHERE id = 'odd'", text="[1.0]")
    if backend.is_postgresql:
        with pytest.raises(StateError):
            await change
        return
    await change
    for read in (state.get_message("odd"), state.get_branch_messages("b")):
        with pytest.raises(BackendError, match="a stored embedding is str"):
            await read
    assert "inf" == (await state.get_message("inf"))["id"]


async def test_a_half_character_in_a_progression_is_followed(backend: Backend, state: Any) -> None:
    await backend.put_progression("p", '["a", "half \\ud83d"]')
    assert ["a", "half \ud83d"] == await state.get_progression("p")
    if isinstance(state, StateClient):
        following = state.follow_progression("p")
        async with asyncio.timeout(20):
            assert [(0, "a"), (1, "half \ud83d")] == [await anext(following) for _ in range(2)]
        await following.aclose()  # type: ignore[attr-defined]


async def test_both_facades_say_the_same_of_what_is_given(state: Any) -> None:
    for bad in ({"a": math.nan}, {"a": 10**5_000}, {"a": object()}, {(): 1}):
        with pytest.raises(InvalidInputError):
            await state.create_approval(action_kind="k", params=bad)
        with pytest.raises(InvalidInputError):
            await state.insert_message(message(content=bad))
    mixed = {2: 1, "b": {None: 1}, 10: True}
    row = await state.create_approval(action_kind="k", params=mixed)
    text = {"10": True, "2": 1, "b": {"null": 1}}
    assert row["params_hash"] == (await state.create_approval(action_kind="k", params=text))["params_hash"]
    await state.insert_message(message(content=mixed))
    assert text == (await state.get_message("m"))["content"]


async def test_a_bad_message_among_several_is_named_by_its_place(state: Any) -> None:
    lacking = message("b")
    del lacking["role"]
    with pytest.raises(MissingKeyError, match=r"^msgs\[1\]: the message needs role$"):
        await state.insert_messages([message("a"), lacking])
    with pytest.raises(InvalidInputError, match=r"^msgs\[2\]: "):
        await state.insert_messages([message("a"), message("b"), message("c", content=None)])
    assert {} == await state.get_messages(["a", "b", "c"])
