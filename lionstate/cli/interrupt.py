"""Ctrl-C in a command: undo what is under way, but never wait long for it."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Coroutine
from typing import Any, TypeVar

from lionstate.startup import leave_interrupted

__all__ = ["run_until_interrupted"]

R = TypeVar("R")

# Whatever a command does is safe to cut off: it is transactions of the store or requests to a daemon.
_PATIENCE_SECONDS = 1.5


def _leave() -> None:
    leave_interrupted("lionstate")


def run_until_interrupted(work: Coroutine[Any, Any, R]) -> R:
    """Run ``work`` to its end, or to the first SIGINT.

    Raises:
        KeyboardInterrupt: After the interrupted work has cleaned up. When that takes too long, or at a second SIGINT,
            the process ends at once with the same exit code.
    """
    interrupted = False

    async def run() -> R:
        task = asyncio.current_task()
        assert task is not None

        def interrupt() -> None:
            nonlocal interrupted
            if interrupted:
                _leave()
            interrupted = True
            patience = threading.Timer(_PATIENCE_SECONDS, _leave)
            patience.daemon = True
            patience.start()
            task.cancel()

        asyncio.get_running_loop().add_signal_handler(signal.SIGINT, interrupt)
        return await work

    try:
        return asyncio.run(run())
    except BaseException as error:
        # Whatever cleaning up made of the cancellation.
        if interrupted:
            raise KeyboardInterrupt from error
        raise
