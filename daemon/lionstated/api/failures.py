"""Tells the log of failures that are the store's and not a caller's: seldom, and counted in between."""

from __future__ import annotations

import time
from typing import Final

from lionstate.errors import BackendUnavailableError, OutcomeUnknownError, StateError

from ..logs import get_logger

__all__ = ["StoreFailures"]

_SECONDS: Final = 10.0


class StoreFailures:
    """A full disk fails every call; one line in ten seconds says so."""

    def __init__(self) -> None:
        """Nothing has failed."""
        self._told = float("-inf")
        self._since = 0

    def note(self, error: StateError) -> None:
        """Count an error of the store and log it, unless one was logged just now; errors of callers are not its."""
        if not isinstance(error, (BackendUnavailableError, OutcomeUnknownError)):
            return
        self._since += 1
        now = time.monotonic()
        if now - self._told < _SECONDS:
            return
        get_logger().error("store_failed", code=error.code, reason=str(error), failures=self._since)
        self._told, self._since = now, 0
