"""Pure work that grows with history, kept off the event loop."""

from __future__ import annotations

import asyncio
import functools
import io
import os
import pickle
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

import anyio.to_process
from anyio import BrokenWorkerProcess

from lionstate.engine.observer import Observer
from lionstate.engine.script import Continued, Deferred, Script

__all__ = ["finished", "run_pure"]

A = TypeVar("A")
R = TypeVar("R")

_INLINE_BYTES = 64 * 1024
_PROCESS_BYTES = 16 * 1024 * 1024
_SLICE = 10_000
_PIECE_CHARS = 1024 * 1024


async def run_pure(work: Callable[[A], R], argument: A, size_bytes: int) -> R:
    """Run a pure function: here when small, in a worker thread, in a child process above 16 MB where one can start.

    ``json.loads`` of a large array holds the interpreter lock for its whole length, so a thread is not enough there;
    ``work`` must then be a module-level function.
    """
    if size_bytes <= _INLINE_BYTES:
        return work(argument)
    if size_bytes <= _PROCESS_BYTES:
        return await asyncio.to_thread(work, argument)
    if isinstance(argument, str):
        with suppress(OSError, AttributeError, BrokenWorkerProcess):
            lent: R = await _through_memory(work, argument)
            return lent
    try:
        packed = await asyncio.to_thread(_pack, argument)
        found: R = await asyncio.to_thread(_unpack, await anyio.to_process.run_sync(_packed_work, work, packed))
        return found
    except BrokenWorkerProcess:
        # A program whose main module cannot be imported again, such as a script without a `__main__` guard.
        return await asyncio.to_thread(work, argument)


class _Memory:
    """Memory that a child process can open by a name; freed when nobody in this process refers to it.

    Raises:
        OSError, AttributeError: This system has none, or forbids it.
    """

    def __init__(self) -> None:
        self.descriptor = os.memfd_create("lionstate")
        self.name = f"/proc/{os.getpid()}/fd/{self.descriptor}"

    def __del__(self) -> None:
        if hasattr(self, "descriptor"):
            os.close(self.descriptor)


async def _through_memory(work: Callable[[Any], Any], text: str) -> Any:
    """Run ``work`` in a child with a text that does not go through a pipe.

    The pipe's loop is the caller's: with 36 MB it was seen to stand still for 100 ms, to pickle and to copy.
    """
    given, taken = await asyncio.to_thread(_lend, text)
    await anyio.to_process.run_sync(_lent_work, work, given.name, taken.name)
    return await asyncio.to_thread(_taken, taken)


def _lend(text: str) -> tuple[_Memory, _Memory]:
    given, taken = _Memory(), _Memory()
    for start in range(0, len(text), _PIECE_CHARS):
        left = memoryview(text[start : start + _PIECE_CHARS].encode(errors="surrogatepass"))
        while left:
            left = left[os.write(given.descriptor, left) :]
    return given, taken


def _lent_work(work: Callable[[Any], Any], given: str, taken: str) -> None:
    with io.FileIO(given) as file:
        text = file.readall().decode(errors="surrogatepass")
    with io.FileIO(taken, "wb") as file, io.BufferedWriter(file) as written:
        pickle.dump(_pack(work(text)), written, 5)


def _taken(memory: _Memory) -> Any:
    with io.FileIO(memory.descriptor, closefd=False) as file, io.BufferedReader(file) as read:
        return _unpack(pickle.load(read))


@dataclass(frozen=True, slots=True)
class _Sliced:
    """A long list or tuple, pickled in pieces: a piece holds the interpreter lock for milliseconds only."""

    kind: type
    pieces: list[bytes]


def _pack(value: Any) -> Any:
    kind = type(value)
    if kind in (list, tuple) and len(value) > _SLICE:
        pieces = [pickle.dumps(value[start : start + _SLICE], 5) for start in range(0, len(value), _SLICE)]
        return _Sliced(kind, pieces)
    if kind is tuple:
        return tuple(map(_pack, value))
    if kind is dict:
        return {key: _pack(one) for key, one in value.items()}
    return _rebuilt(value, _pack)


def _unpack(value: Any) -> Any:
    if isinstance(value, _Sliced):
        whole: list[Any] = []
        for piece in value.pieces:
            whole += pickle.loads(piece)
        return whole if value.kind is list else value.kind(whole)
    if type(value) is tuple:
        return tuple(map(_unpack, value))
    if type(value) is dict:
        return {key: _unpack(one) for key, one in value.items()}
    return _rebuilt(value, _unpack)


def _rebuilt(value: Any, each: Callable[[Any], Any]) -> Any:
    """What is to be read next, with what it was given put through ``each``; anything else as it is."""
    if not isinstance(value, Continued) or not isinstance(value.script, functools.partial):
        return value
    script = value.script
    given = {name: each(one) for name, one in script.keywords.items()}
    return Continued(functools.partial(script.func, *script.args, **given))


def _packed_work(work: Callable[[Any], Any], packed: Any) -> Any:
    return _pack(work(_unpack(packed)))


async def finished(found: Any, observer: Observer, run: Callable[[Script[Any]], Awaitable[Any]]) -> Any:
    """What a script returned, with the pure work that it left undone, and the reads that this asks for.

    Args:
        run: Runs a read script in a snapshot of its own.
    """
    while isinstance(found, Deferred):
        if found.observe is not None:
            found.observe(observer)
        answered = found.answered
        found = await run_pure(found.finish, found.raw, found.size)
        if isinstance(found, Continued):
            found = await run(found.script)
        elif answered is not None:
            answered(observer, found)
    return found
