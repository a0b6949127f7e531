"""Failures that are the store's and not a caller's: told to the log seldom, and to `/readyz` while they last."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final

import anyio

from lionstate.errors import BackendUnavailableError, OutcomeUnknownError, StateError

from ..logs import Seldom, get_logger

__all__ = ["StoreFailures"]

_SECONDS: Final = 10.0
_PROBE_SECONDS: Final = 2.0
_LOOK_SECONDS: Final = 2.0
# A look that takes longer, while no call is answered either, is none.
_ANSWER_SECONDS: Final = 5.0


class StoreFailures:
    """A full disk fails every call; one line in ten seconds says so, and it is known until a write succeeds again.

    Attributes:
        write_failure: The code of the last write that the store could not take; None while it takes them.
        read_failure: Why the last look at the store found nobody there; None while it answers.
    """

    def __init__(self) -> None:
        """Nothing has failed."""
        self.write_failure: str | None = None
        self.read_failure: str | None = None
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
            self.write_failure = error.code
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
            with suppress(StateError):
                await probe()
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
                    self._absent("no_answer", f"no answer within {_ANSWER_SECONDS:g} s")

    async def _look(
        self, look: Callable[[], Awaitable[bool]], probe: Callable[[], Awaitable[Any]], ended: anyio.Event
    ) -> None:
        try:
            doubtful = await look()
        except StateError as error:
            if isinstance(error, BackendUnavailableError):
                self._absent(error.code, str(error))
            return
        finally:
            ended.set()
        if self.read_failure is not None:
            self.read_failure = None
            get_logger().info("store_answers_again")
        if doubtful and self.write_failure is None:
            try:
                await probe()
            except StateError as error:
                self.note(error, wrote=True)

    def _absent(self, code: str, reason: str) -> None:
        if self.read_failure is None:
            get_logger().error("store_absent", code=code, reason=reason)
        self.read_failure = code
