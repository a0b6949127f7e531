"""Failures that are the store's and not a caller's: told to the log seldom, and to `/readyz` while writes fail."""

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


class StoreFailures:
    """A full disk fails every call; one line in ten seconds says so, and it is known until a write succeeds again.

    Attributes:
        write_failure: The code of the last write that the store could not take; None while it takes them.
    """

    def __init__(self) -> None:
        """Nothing has failed."""
        self.write_failure: str | None = None
        self._failing = anyio.Event()
        self._seldom = Seldom(_SECONDS)

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

    def written(self) -> None:
        """A write succeeded."""
        if self.write_failure is not None:
            self.write_failure = None
            self._failing = anyio.Event()
            get_logger().info("writes_succeed_again")

    async def keep_probing(self, probe: Callable[[], Awaitable[Any]]) -> None:
        """While writes fail, write something every two seconds, for ever: who is told to stay away writes nothing."""
        while True:
            await self._failing.wait()
            await anyio.sleep(_PROBE_SECONDS)
            with suppress(StateError):
                await probe()
                self.written()
