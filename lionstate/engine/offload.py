"""Pure work that grows with history, kept off the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
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


async def run_pure(work: Callable[[A], R], argument: A, size_bytes: int) -> R:
    """Run a pure function: here when small, in a worker thread, in a child process above 16 MB where one can start.

    ``json.loads`` of a large array holds the interpreter lock for its whole length, so a thread is not enough there;
    ``work`` must then be a module-level function.
    """
    if size_bytes <= _INLINE_BYTES:
        return work(argument)
    if size_bytes <= _PROCESS_BYTES:
        return await asyncio.to_thread(work, argument)
    try:
        return await anyio.to_process.run_sync(work, argument)
    except BrokenWorkerProcess:
        # A program whose main module cannot be imported again, such as a script without a `__main__` guard.
        return await asyncio.to_thread(work, argument)


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
