"""Failures that are the store's and not a caller's: told to the log seldom, and to `/readyz` while they last."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

import anyio

from lionstate.errors import BackendUnavailableError, OutcomeUnknownError, StateError

from ..logs import Seldom, get_logger, utc

__all__ = ["StoreFailures"]

T = TypeVar("T")

_SECONDS: Final = 10.0
_PROBE_SECONDS: Final = 2.0
_LOOK_SECONDS: Final = 2.0
# A look that takes longer, while no call is answered either, is none.
_ANSWER_SECONDS: Final = 5.0
_NO_ANSWER: Final = "no_answer"


class StoreFailures:
    """A full disk fails every call; one line in ten seconds says so, and it is known until a write succeeds again.

    Attributes:
        write_failure: The cause of the last write that the store could not take; None while it takes them.
        read_failure: Why the last look at the store found nobody there; None while it answers.
        absent_since: When a look first found that, epoch seconds; None while it answers.
    """

    def __init__(self) -> None:
        """Nothing has failed."""
        self.write_failure: str | None = None
        self.read_failure: str | None = None
        self.absent_since: float | None = None
        self._mute = asyncio.Event()
        self._answers = 0
        self._failing = anyio.Event()
        self._seldom = Seldom(_SECONDS)

    @property
    def reason(self) -> str | None:
        """Why the store cannot serve now; None while it can."""
        return self.read_failure or self.write_failure

    def note(self, error: StateError, *, wrote: bool) -> None:
        """Count an error of the store and log it, unless one was logged just now; errors of callers are not its.

        Args:
            error: What a call ended with.
            wrote: It was a write.
        """
        if not isinstance(error, (BackendUnavailableError, OutcomeUnknownError)):
            return
        if wrote:
            self.write_failure = error.cause
            self._failing.set()
        if count := self._seldom.due():
            get_logger().error("store_failed", code=error.code, reason=str(error), failures=count)

    def answered(self, *, wrote: bool) -> None:
        """A call succeeded, as far as the store is concerned."""
        self._answers += 1
        if wrote and self.write_failure is not None:
            self.write_failure = None
            self._failing = anyio.Event()
            get_logger().info("writes_succeed_again")

    async def watch(self, look: Callable[[], Awaitable[bool]], probe: Callable[[], Awaitable[Any]]) -> None:
        """Find out, for ever, what no caller tells.

        Args:
            look: Reads something small; True when it is doubtful whether the store takes writes.
            probe: Writes something.
        """
        async with anyio.create_task_group() as group:
            group.start_soon(self._keep_probing, probe)
            group.start_soon(self._keep_looking, look, probe)

    async def _keep_probing(self, probe: Callable[[], Awaitable[Any]]) -> None:
        """While writes fail, write something every two seconds, for ever: who is told to stay away writes nothing."""
        while True:
            await self._failing.wait()
            await anyio.sleep(_PROBE_SECONDS)
            try:
                await probe()
            except BackendUnavailableError as error:
                # The caller's may have said no more than that its outcome is unknown.
                self.write_failure = error.reason or self.write_failure
            except StateError:
                pass
            else:
                self.answered(wrote=True)

    async def _keep_looking(self, look: Callable[[], Awaitable[bool]], probe: Callable[[], Awaitable[Any]]) -> None:
        """Look every two seconds whether the store answers: nobody may be calling while it is away."""
        while True:
            await anyio.sleep(_LOOK_SECONDS)
            ended, answers = anyio.Event(), self._answers
            # One that hangs is not cut off, which would cost a connection; there is one at a time.
            async with anyio.create_task_group() as group:
                group.start_soon(self._look, look, probe, ended)
                with anyio.move_on_after(_ANSWER_SECONDS):
                    await ended.wait()
                if not ended.is_set() and self._answers == answers:
                    self._absent(_NO_ANSWER, f"no answer within {_ANSWER_SECONDS:g} s")

    async def _look(
        self, look: Callable[[], Awaitable[bool]], probe: Callable[[], Awaitable[Any]], ended: anyio.Event
    ) -> None:
        try:
            doubtful = await look()
        except StateError as error:
            if isinstance(error, BackendUnavailableError):
                self._absent(error.cause, str(error))
            return
        finally:
            ended.set()
        if self.read_failure is not None:
            self.read_failure = self.absent_since = None
            self._mute.clear()
            get_logger().info("store_answers_again")
        if doubtful and self.write_failure is None:
            try:
                await probe()
            except StateError as error:
                self.note(error, wrote=True)

    def _absent(self, code: str, reason: str) -> None:
        if self.read_failure is None:
            get_logger().error("store_absent", code=code, reason=reason)
            self.absent_since = time.time()
        self.read_failure = code
        if code == _NO_ANSWER:
            self._mute.set()

    async def unless_mute(self, call: Callable[[], Awaitable[T]], *, reads: bool) -> T:
        """Make a call, unless the store is known not to answer; a read is given up as soon as that is known.

        A read that is given up goes on by itself: cut off, it would cost a connection.

        Raises:
            BackendUnavailableError: The store does not answer; nothing was written.
        """
        if self._mute.is_set():
            raise self._no_answer()
        if not reads:
            return await call()
        work, mute = asyncio.ensure_future(call()), asyncio.ensure_future(self._mute.wait())
        try:
            await asyncio.wait((work, mute), return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            work.cancel()
            raise
        finally:
            mute.cancel()
        if work.done():
            return work.result()
        work.add_done_callback(_forget)
        raise self._no_answer()

    def _no_answer(self) -> BackendUnavailableError:
        since = utc(self.absent_since or time.time())
        return BackendUnavailableError(
            f"{_NO_ANSWER} since {since}: the database does not answer the daemon, which is up and asks again every"
            f" {_LOOK_SECONDS:g} s; nothing was changed: see to the database",
            reason=_NO_ANSWER,
        )


def _forget(work: asyncio.Future[Any]) -> None:
    if not work.cancelled():
        work.exception()
