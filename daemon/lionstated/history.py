"""The last hour in memory, ten seconds a slot: what the status page plots."""

from __future__ import annotations

import math
import threading
import time
from collections import Counter, deque
from collections.abc import Callable
from typing import Final, NamedTuple

__all__ = ["SLOTS", "SLOT_SECONDS", "History", "Slot"]

SLOT_SECONDS: Final = 10
SLOTS: Final = 360
# Waits are counted by the power of this that they reach: a percentile is right to a tenth of itself.
_STEP: Final = math.log(1.1)
_SHORTEST_SECONDS: Final = 1e-6


class Slot(NamedTuple):
    """Ten seconds.

    Attributes:
        lock_p95_seconds: 95 of 100 writers got the lock within this; None when nobody asked for it.
        lock_max_seconds: The longest wait; None when nobody asked.
        wal_frames: Most frames of the write-ahead log that no checkpoint had moved; None where nobody looked yet, and
            always on PostgreSQL.
    """

    lock_p95_seconds: float | None = None
    lock_max_seconds: float | None = None
    wal_frames: int | None = None


class History:
    """A ring of slots; may be fed from any thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin an hour in which nothing has been seen."""
        self._clock = clock
        self._lock = threading.Lock()
        self._done: deque[Slot] = deque(maxlen=SLOTS - 1)
        self._number = self._number_now()
        self._waits: Counter[int] = Counter()
        self._longest = 0.0
        self._frames: int | None = None
        self._frames_now: int | None = None

    def lock_wait(self, seconds: float) -> None:
        """Somebody waited so long for the write lock."""
        with self._lock:
            self._turn()
            self._waits[math.ceil(math.log(max(seconds, _SHORTEST_SECONDS) / _SHORTEST_SECONDS) / _STEP)] += 1
            if seconds > self._longest:
                self._longest = seconds

    def wal(self, frames: int) -> None:
        """So many frames of the log were not moved by a checkpoint yet."""
        with self._lock:
            self._turn()
            self._frames_now = frames
            self._frames = frames if self._frames is None else max(self._frames, frames)

    def read(self) -> list[Slot]:
        """The slots so far, oldest first, at most ``SLOTS``; the last one is still running."""
        with self._lock:
            self._turn()
            return [*self._done, self._slot()]

    def _number_now(self) -> int:
        return int(self._clock() // SLOT_SECONDS)

    def _turn(self) -> None:
        """Close the slots that are over; those in which nobody looked at the log have what was there before."""
        now = self._number_now()
        if now == self._number:
            return
        for _ in range(min(now - self._number, SLOTS)):
            self._done.append(self._slot())
            self._waits.clear()
            self._longest, self._frames = 0.0, self._frames_now
        self._number = max(now, self._number)

    def _slot(self) -> Slot:
        if not self._waits:
            return Slot(wal_frames=self._frames)
        return Slot(round(self._percentile(0.95), 6), round(self._longest, 6), self._frames)

    def _percentile(self, share: float) -> float:
        left = math.ceil(self._waits.total() * share)
        for power, count in sorted(self._waits.items()):
            left -= count
            if left <= 0:
                return min(self._longest, _SHORTEST_SECONDS * math.exp(power * _STEP))
        return self._longest
