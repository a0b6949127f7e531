"""A large body is decoded elsewhere: the loop goes on meanwhile, and what is wrong with it is told as ever."""

from __future__ import annotations

import json
import pickle
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import anyio.to_process
import pytest

from lionstate import wire
from lionstate.engine import offload
from lionstate.errors import InvalidInputError
from lionstate.operations import OPERATIONS
from lionstated.api.handlers import _decoded

pytestmark = pytest.mark.anyio
OPERATION = OPERATIONS["set_progression"]
CODEC = wire.Codec.of(OPERATION.script)


def body_of(count: int, tail: list[Any]) -> bytes:
    ids = [f"message-{number:030d}" for number in range(count)]
    return json.dumps({"progression_id": "p", "collection": ids + tail}).encode()


async def test_a_body_is_decoded_where_its_size_belongs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A small one on the loop, a larger one in a thread; one above 16 MiB in a child, its list fetched in pieces.

    A piece holds the interpreter lock for as long as 10,000 elements take, and no piece is taken on the loop.
    """
    places: list[bool] = []
    fetched: list[tuple[bool, int]] = []
    children: list[object] = []
    here, decode, in_child = threading.get_ident(), wire.decode_call, anyio.to_process.run_sync

    def decoding(call: Any) -> Any:
        places.append(threading.get_ident() == here)
        return decode(call)

    def fetching(piece: bytes) -> Any:
        found = pickle.loads(piece)
        fetched.append((threading.get_ident() == here, len(found)))
        return found

    async def noted(work: Callable[..., Any], *arguments: Any) -> Any:
        children.append(arguments[0])
        return await in_child(work, *arguments)

    monkeypatch.setattr(offload, "pickle", SimpleNamespace(dumps=pickle.dumps, loads=fetching))
    monkeypatch.setattr(anyio.to_process, "run_sync", noted)
    with monkeypatch.context() as threads:
        threads.setattr(wire, "decode_call", decoding)
        for count in (10, 10_000):
            assert count == len((await _decoded(OPERATION, CODEC, body_of(count, [])))["collection"])
    assert ([False], [], []) == (places, fetched, children)
    body = body_of(405_000, [])
    assert CODEC.decode_params(body) == await _decoded(OPERATION, CODEC, body)
    assert [decode] == children
    assert [*[(False, 10_000)] * 40, (False, 5_000)] == fetched


@pytest.mark.parametrize("count", [10, 10_000, 500_000])
async def test_what_is_wrong_is_told_wherever_it_was_decoded(count: int) -> None:
    """Inline, in a thread and in a child: the name of the parameter, never a value."""
    with pytest.raises(InvalidInputError, match="collection") as caught:
        await _decoded(OPERATION, CODEC, body_of(count, [5]))
    assert "message-" not in str(caught.value)
