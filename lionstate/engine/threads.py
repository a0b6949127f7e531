"""A thread that owns one SQLite connection; everything on that connection happens there."""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from lionstate.engine.mailbox import Done, Jobs, Replies
from lionstate.errors import ClosedError

__all__ = ["Mailbox", "WorkerThread"]

R = TypeVar("R")


def _deliver(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.cancelled():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)


class Mailbox:
    """Where threads take their jobs and leave their results; one for threads that do the same."""

    def __init__(self) -> None:
        """Open; the loop that posts first gets its results the quick way."""
        self.jobs = Jobs()
        self._replies: Replies | None = None

    def replies_to(self, loop: asyncio.AbstractEventLoop) -> Callable[[Done, Any, BaseException | None], None]:
        """How a thread sends a result to this loop."""
        if self._replies is None:
            try:
                self._replies = Replies(loop)
            except NotImplementedError:  # what asyncio says where a loop watches no pipes, as on Windows
                return functools.partial(_send_plainly, loop)
        if self._replies.loop is loop:
            return self._replies.send
        return functools.partial(_send_plainly, loop)

    def close_after(self, threads: Iterable[WorkerThread]) -> None:
        """Give the pipes back, unless a thread still runs that may use them."""
        if any(thread.is_alive for thread in threads):
            return
        self.jobs.close()
        if self._replies is not None:
            self._replies.close()


def _send_plainly(loop: asyncio.AbstractEventLoop, done: Done, result: Any, error: BaseException | None) -> None:
    try:
        loop.call_soon_threadsafe(done, result, error)
    except RuntimeError:
        # The loop is closed: nobody waits any more.
        return


class WorkerThread:
    """Runs callables one after another on a thread of its own.

    The thread is a daemon thread: a process that fails between open and close still ends (a driver thread that does
    not was seen to keep a dead process alive).
    """

    def __init__(self, name: str, mailbox: Mailbox | None = None) -> None:
        """Prepare the thread; several threads may share one ``mailbox``."""
        self.mailbox = mailbox if mailbox is not None else Mailbox()
        self._thread = threading.Thread(target=self._loop, name=name, daemon=True)
        self._ended = False
        # Whether a callable runs now; of one thread, so not for several that share ``jobs``.
        self.works = False

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def _loop(self) -> None:
        jobs = self.mailbox.jobs
        while (job := jobs.get()) is not None:
            job()

    def end(self) -> None:
        """Run what is queued and end; ``submit`` refuses from now on."""
        self._ended = True
        self.mailbox.jobs.put(None)

    def join(self, timeout_seconds: float = 5.0) -> bool:
        """Wait until the thread has ended; False if it did not within the time."""
        if self._thread.ident is None:
            return True
        self._thread.join(timeout_seconds)
        return not self._thread.is_alive()

    @property
    def is_alive(self) -> bool:
        """Whether it runs."""
        return self._thread.is_alive()

    @property
    def is_current(self) -> bool:
        """Whether the caller runs on this thread."""
        return threading.current_thread() is self._thread

    def submit(self, work: Callable[[], R], after: Callable[[], None] | None = None) -> asyncio.Future[R]:
        """Queue ``work`` and return a future of the running loop; a cancelled future does not stop the work.

        Args:
            after: As ``post``.
        Raises:
            ClosedError: The thread ends or has ended; the work would never run.
        """
        future: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self.post(work, functools.partial(_deliver, future), after)
        return future

    def post(self, work: Callable[[], R], done: Done, after: Callable[[], None] | None = None) -> None:
        """Queue ``work``; ``done`` is called with its result or error on the running loop, in the turn that it wakes.

        Args:
            after: Runs on the thread when the result is on its way; must not raise.
        Raises:
            ClosedError: As ``submit``.
        """
        if self._ended:
            raise ClosedError()
        send = self.mailbox.replies_to(asyncio.get_running_loop())

        def job() -> None:
            result: Any = None
            error: BaseException | None = None
            self.works = True
            try:
                result = work()
            except BaseException as raised:
                error = raised
            self.works = False
            send(done, result, error)
            if after is not None:
                after()

        self.mailbox.jobs.put(job)
