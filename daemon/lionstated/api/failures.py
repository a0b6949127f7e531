"""Tells the log of failures that are the store's and not a caller's: seldom, and counted in between."""

from __future__ import annotations

from typing import Final

from lionstate.errors import BackendUnavailableError, OutcomeUnknownError, StateError

from ..logs import Seldom, get_logger

__all__ = ["StoreFailures"]

_SECONDS: Final = 10.0


class StoreFailures:
    """A full disk fails every call; one line in ten seconds says so."""

    def __init__(self) -> None:
        """Nothing has failed."""
        self._seldom = Seldom(_SECONDS)

    def note(self, error: StateError) -> None:
        """Count an error of the store and log it, unless one was logged just now; errors of callers are not its."""
        if not isinstance(error, (BackendUnavailableError, OutcomeUnknownError)):
            return
        if count := self._seldom.due():
            get_logger().error("store_failed", code=error.code, reason=str(error), failures=count)
