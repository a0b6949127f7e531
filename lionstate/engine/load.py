"""What a writer's measurements say about the load of its store now; feeds the throttle of migration."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from lionstate.codes import ThrottleSignal
from lionstate.engine.observer import Observer, SilentObserver

__all__ = ["Load", "RecentMaximum", "Waiting"]

_MAINTENANCE = "maintenance"
_WINDOW_SECONDS = 1.0
_OTHERS_SECONDS = 2.0
_LEAST_WAIT_SECONDS = 0.001
# A log that is kept this short by readers harms nobody, however long.
_PINNED_FRAMES = 1_000


class Waiting(Protocol):
    """The part of a write queue that tells how much waits in it."""

    @property
    def depth(self) -> int: ...

    def oldest_age_seconds(self) -> float: ...


class RecentMaximum:
    """The largest value of the last one to two seconds, in constant memory."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """Nothing was seen."""
        self._clock = clock
        self._window, self._now, self._before = 0, 0.0, 0.0

    def _turn(self) -> None:
        window = int(self._clock() / _WINDOW_SECONDS)
        if window != self._window:
            self._before = self._now if window == self._window + 1 else 0.0
            self._window, self._now = window, 0.0

    def note(self, value: float) -> None:
        """A value was seen."""
        self._turn()
        self._now = max(self._now, value)

    def value(self) -> float:
        """The largest one; 0 when none was seen."""
        self._turn()
        return max(self._now, self._before)


class Load(SilentObserver):
    """Passes every measurement of a writer on, and remembers a few of them.

    Told on the writer's thread and asked on the loop's; a race costs one measurement.

    Attributes:
        queue: What waits for the writer; None while there is no queue.
        checkpoint_fails: The last checkpoint ended with an error, as on a full disk: no reader keeps the log long.
    """

    def __init__(
        self, observer: Observer, path: Path | None = None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """Pass on to ``observer``.

        Args:
            path: The store's file; None where there is none.
            clock: Monotonic.
        """
        self._observer = observer
        self._path = path
        self._clock = clock
        self._hold: float | None = None
        self._checkpoint: float | None = None
        self._others_at = float("-inf")
        self._waits = RecentMaximum(clock)
        self._pending: int | None = None
        self._pinned_since: float | None = None
        self.queue: Waiting | None = None
        self.checkpoint_fails = False
        own = type(self).__dict__
        for name in (each for each in vars(SilentObserver) if not each.startswith("_") and each not in own):
            # Straight through: a measurement costs what it did.
            setattr(self, name, getattr(observer, name))

    def lock_hold(self, lane: str, seconds: float) -> None:
        """Remember the last hold of maintenance, and when others had one."""
        if lane == _MAINTENANCE:
            self._hold = seconds
        else:
            self._others_at = self._clock()
        self._observer.lock_hold(lane, seconds)

    def lock_wait(self, lane: str, seconds: float) -> None:
        """Remember the longest recent wait; one that no limit could be set to is not worth it."""
        if seconds >= _LEAST_WAIT_SECONDS:
            self._waits.note(seconds)
        self._observer.lock_wait(lane, seconds)

    def foreign_commit(self) -> None:
        """Remember when another process wrote."""
        self._others_at = self._clock()
        self._observer.foreign_commit()

    def checkpoint(self, mode: str, outcome: str, seconds: float) -> None:
        """Remember how long the last one took, and since when none could move every frame."""
        self._checkpoint = seconds
        self.checkpoint_fails = outcome == "error"
        if outcome == "complete":
            self._pinned_since = None
        elif self._pinned_since is None:
            self._pinned_since = self._clock()
        self._observer.checkpoint(mode, outcome, seconds)

    def wal(self, log_frames: int, checkpointed_frames: int, wal_bytes: int) -> None:
        """Remember the frames that no checkpoint has moved."""
        self._pending = max(0, log_frames - checkpointed_frames)
        self._observer.wal(log_frames, checkpointed_frames, wal_bytes)

    @property
    def others_write(self) -> bool:
        """Whether anybody but maintenance wrote in the last two seconds: the store is asked about others every one."""
        return self._clock() - self._others_at < _OTHERS_SECONDS

    def take_hold(self) -> float | None:
        """How long maintenance held the lock since this was last asked; None if it did not."""
        found, self._hold = self._hold, None
        return found

    def take_checkpoint(self) -> float | None:
        """How long the last checkpoint kept every writer out; None if there was none since this was last asked."""
        found, self._checkpoint = self._checkpoint, None
        return found

    def readings(self) -> dict[ThrottleSignal, float | None]:
        """The signals that this process knows by itself, None for one that cannot be read. No wait, no query."""
        found: dict[ThrottleSignal, float | None] = {}
        if self.queue is not None:
            found[ThrottleSignal.LOCK_WAIT] = self._waits.value()
            found[ThrottleSignal.QUEUE_DEPTH] = self.queue.depth
            found[ThrottleSignal.QUEUE_AGE] = self.queue.oldest_age_seconds()
        if self._pending is not None:
            found[ThrottleSignal.WAL_FRAMES] = self._pending
            since = self._pinned_since if self._pending > _PINNED_FRAMES else None
            found[ThrottleSignal.WAL_PINNED] = 0.0 if since is None else self._clock() - since
        if self._path is not None:
            found[ThrottleSignal.FREE_DISK] = self.free_bytes()
        return found

    def free_bytes(self) -> float | None:
        """Bytes that may still be written beside the store's file, which is not opened (design §2.4).

        None where the store is no file, or nobody can tell.
        """
        if self._path is None:
            return None
        try:
            found = os.statvfs(self._path)
        except OSError:
            return None
        return float(found.f_bavail) * found.f_frsize
