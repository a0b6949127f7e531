"""A thread that owns one SQLite connection; everything on that connection happens there."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Callable
from typing import Any, TypeVar

from lionstate.errors import ClosedError

__all__ = ["WorkerThread"]

R = TypeVar("R")


def _deliver(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.cancelled():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)


class WorkerThread:
    """Runs callables one after another on a thread of its own.

    The thread is a daemon thread: a process that fails between open and close still ends (a driver thread that does
    not was seen to keep a dead process alive).
    """

    def __init__(self, name: str, jobs: queue.SimpleQueue[Callable[[], None] | None] | None = None) -> None:
        """Prepare the thread; several threads may share one queue of ``jobs``."""
        self.jobs = jobs if jobs is not None else queue.SimpleQueue()
        self._thread = threading.Thread(target=self._loop, name=name, daemon=True)
        self._ended = False
        # Whether a callable runs now; of one thread, so not for several that share ``jobs``.
        self.works = False

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def _loop(self) -> None:
        while (job := self.jobs.get()) is not None:
            job()

    def end(self) -> None:
        """Run what is queued and end; ``submit`` refuses from now on."""
        self._ended = True
        self.jobs.put(None)

    def join(self, timeout_seconds: float = 5.0) -> bool:
        """Wait until the thread has ended; False if it did not within the time."""
        if self._thread.ident is None:
            return True
        self._thread.join(timeout_seconds)
        return not self._thread.is_alive()

    @property
    def is_current(self) -> bool:
        """Whether the caller runs on this thread."""
        return threading.current_thread() is self._thread

    def submit(self, work: Callable[[], R]) -> asyncio.Future[R]:
        """Queue ``work`` and return a future of the running loop; a cancelled future does not stop the work.

        Raises:
            ClosedError: The thread ends or has ended; the work would never run.
        """
        if self._ended:
            raise ClosedError()
        loop = asyncio.get_running_loop()
        future: asyncio.Future[R] = loop.create_future()

        def job() -> None:
            result: Any = None
            error: BaseException | None = None
            self.works = True
            try:
                result = work()
            except BaseException as raised:
                error = raised
            self.works = False
            try:
                loop.call_soon_threadsafe(_deliver, future, result, error)
            except RuntimeError:
                # The loop is closed: nobody waits any more.
                return

        self.jobs.put(job)
        return future
