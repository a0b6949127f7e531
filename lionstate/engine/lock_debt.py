"""When a SQLite writer owes other processes the lock: how much longer it held it than it left it free."""

from __future__ import annotations

import time
from typing import Final

__all__ = ["LOCK_DEBT_LIMIT_SECONDS", "LONGEST_POLL_SECONDS", "LockDebt"]

LOCK_DEBT_LIMIT_SECONDS: Final = 0.5
"""Holds beyond the free time after which the lock is left alone."""

LONGEST_POLL_SECONDS: Final = 0.110
"""How long: longer than the longest sleep of SQLite's busy handler, so that everybody who waits looks once."""


class LockDebt:
    """Counts holds against free time, second by second.

    A waiting process looks at the lock again and again, so one that finds it free half of the time gets it after a
    few looks; only a writer that keeps it for longer than that owes anything. Used on the writer's thread.

    Contract: design §2.2.
    """

    def __init__(self) -> None:
        """Nothing was held yet."""
        self._held_since = 0.0
        self._free_since = 0.0
        self._seconds = 0.0

    def take(self) -> None:
        """The lock is held from now on."""
        now = time.monotonic()
        free_for = now - self._free_since
        self._seconds = 0.0 if free_for >= LONGEST_POLL_SECONDS else max(0.0, self._seconds - free_for)
        self._held_since = now

    def release(self) -> float | None:
        """The lock is free from now on; how long it was held, None if it was not."""
        if not self._held_since:
            return None
        self._free_since = time.monotonic()
        held = self._free_since - self._held_since
        self._held_since = 0.0
        self._seconds += held
        return held

    def pause(self) -> float:
        """Seconds for which the caller leaves the lock alone before it takes it: all is paid then; 0 if little is."""
        free_for = time.monotonic() - self._free_since
        if self._seconds - free_for < LOCK_DEBT_LIMIT_SECONDS:
            return 0.0
        self._seconds = 0.0
        return max(0.0, LONGEST_POLL_SECONDS - free_for)
