"""When migration waits for the store: signals, thresholds with hysteresis, starvation, budgets. Pure.

A signal that cannot be read counts as tripped (design decision 24). Times are those of a monotonic clock that the
caller gives.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from lionstate.codes import ThrottleSignal
from lionstate.migration.knobs import Knobs, spelled

__all__ = ["SIGNAL_UNAVAILABLE", "Allowance", "ErrorBudget", "SignalStatus", "Starvation", "Throttle", "reading"]

SIGNAL_UNAVAILABLE: Final = "signal_unavailable"

# The knob that is a signal's limit.
_LIMITS: Final[Mapping[str, str]] = {
    ThrottleSignal.LOCK_WAIT: "lock_wait_limit_seconds",
    ThrottleSignal.WAL_FRAMES: "wal_frames_limit",
    ThrottleSignal.WAL_PINNED: "wal_pinned_limit_seconds",
    ThrottleSignal.QUEUE_DEPTH: "queue_depth_limit",
    ThrottleSignal.QUEUE_AGE: "queue_age_limit_seconds",
    ThrottleSignal.PARITY: "parity_limit_per_minute",
    ThrottleSignal.LONG_TRANSACTION: "long_transaction_limit_seconds",
    ThrottleSignal.WAL_RATE: "wal_rate_limit_bytes",
    ThrottleSignal.FREE_DISK: "free_disk_floor_bytes",
}
# Those that trip below their limit.
_FLOORS: Final = frozenset((ThrottleSignal.FREE_DISK,))
# How far a value must come back before its signal clears, as a share of the limit: of one that trips above, below.
_CLEARS, _FLOOR_CLEARS = 0.5, 1.25
_MINUTE: Final = 60.0
# A lane that nobody asks for any more is not starved.
_ASKS_SECONDS = 60.0


_KIB, _MIB, _GIB = 1024, 1024**2, 1024**3


def reading(signal: str, value: float | None) -> str:
    """A value or limit of a signal as text, with its unit; ``unknown`` for None."""
    if value is None:
        return "unknown"
    knob = _LIMITS.get(signal, "")
    if knob.endswith("_seconds"):
        return f"{spelled(value)} s"
    if not knob.endswith("_bytes"):
        return spelled(value)
    unit, name = next(((unit, name) for unit, name in ((_GIB, "GiB"), (_MIB, "MiB")) if value >= unit), (_KIB, "KiB"))
    return f"{value / unit:,.1f} {name}{'/s' if signal == ThrottleSignal.WAL_RATE else ''}"


@dataclass(frozen=True, slots=True)
class SignalStatus:
    """One signal now.

    Attributes:
        signal: Of the closed set ``ThrottleSignal``; the unit ends the name of its limit's knob.
        value: As last read; None when it could not be.
        limit: Where it trips.
        tripped: Whether migration waits for it.
        reason: ``signal_unavailable`` or ``over_limit`` (``under_floor``); ``checkpoint_fails`` where it is no reader
            that keeps the log long; None while it does not.
        age_seconds: How long it has been tripped; None while it is not.
    """

    signal: str
    value: float | None
    limit: float
    tripped: bool
    reason: str | None = None
    age_seconds: float | None = None


class Throttle:
    """The signals of one store. Contract: design decisions 24, 25.

    Attributes:
        seconds: How long each signal has been tripped so far, all times together.
    """

    def __init__(self) -> None:
        """Nothing is known, and nothing tripped."""
        self._seen: dict[ThrottleSignal, tuple[float | None, float]] = {}
        self._since: dict[ThrottleSignal, float] = {}
        self._looked_at: float | None = None
        self.seconds: dict[ThrottleSignal, float] = dict.fromkeys(ThrottleSignal, 0.0)

    def observe(self, readings: Mapping[ThrottleSignal, float | None], knobs: Knobs, now: float) -> None:
        """Take what was read.

        Args:
            readings: The value of every signal that there is in this process; None for one that could not be read.
        """
        if self._looked_at is not None:
            for signal in self._since:
                self.seconds[signal] += max(0.0, now - self._looked_at)
        self._looked_at = now
        self._seen = {}
        for signal, value in readings.items():
            limit = float(getattr(knobs, _LIMITS[signal]))
            self._seen[signal] = (value, limit)
            if _trips(signal, value, limit, signal in self._since):
                self._since.setdefault(signal, now)
            else:
                self._since.pop(signal, None)
        for gone in self._since.keys() - readings.keys():
            del self._since[gone]

    @property
    def tripped(self) -> frozenset[ThrottleSignal]:
        """The signals that migration waits for."""
        return frozenset(self._since)

    def signals(self) -> tuple[SignalStatus, ...]:
        """Every signal as of the last look, in the order of the closed set."""
        return tuple(self._status(signal) for signal in ThrottleSignal if signal in self._seen)

    def _status(self, signal: ThrottleSignal) -> SignalStatus:
        value, limit = self._seen[signal]
        since, now = self._since.get(signal), self._looked_at
        if since is None or now is None:
            return SignalStatus(signal.value, value, limit, False)
        over = "under_floor" if signal in _FLOORS else "over_limit"
        return SignalStatus(
            signal.value, value, limit, True, SIGNAL_UNAVAILABLE if value is None else over, max(0.0, now - since)
        )


def _trips(signal: ThrottleSignal, value: float | None, limit: float, tripped: bool) -> bool:
    if value is None or value != value:
        return True
    if signal in _FLOORS:
        return value < (limit * _FLOOR_CLEARS if tripped else limit)
    return value > limit * _CLEARS if tripped else value >= limit


class Starvation:
    """Whether a lane that wants to work has been kept from it for too long (design decision 25)."""

    def __init__(self) -> None:
        """Nobody waits."""
        self._since: float | None = None
        self._asked_at = 0.0
        self._told = False

    def refused(self, now: float) -> None:
        """It wanted to work and was throttled."""
        if self._since is None or now - self._asked_at > _ASKS_SECONDS:
            self._since, self._told = now, False
        self._asked_at = now

    def progressed(self) -> None:
        """It worked, or need not wait any more."""
        self._since, self._told = None, False

    def waited_seconds(self, now: float) -> float | None:
        """How long it has waited; None while it does not."""
        if self._since is None or now - self._asked_at > _ASKS_SECONDS:
            return None
        return max(0.0, now - self._since)

    def is_starved(self, now: float, knobs: Knobs) -> bool:
        """Whether it has waited for longer than ``starved_after_seconds``."""
        waited = self.waited_seconds(now)
        return waited is not None and waited >= knobs.starved_after_seconds

    def is_news(self, now: float, knobs: Knobs) -> bool:
        """Whether it is starved and `told` was not called since it began to wait."""
        return self.is_starved(now, knobs) and not self._told

    def told(self) -> None:
        """The event of this wait is written."""
        self._told = True


class Allowance:
    """The progress that an operator asks for although signals are tripped: so many elements a minute."""

    def __init__(self) -> None:
        """Nothing is spent."""
        self._window = float("-inf")
        self._spent = 0

    def left(self, now: float, knobs: Knobs) -> int:
        """Elements that may be moved now."""
        if now - self._window >= _MINUTE:
            self._window, self._spent = now, 0
        return max(0, knobs.minimum_items_per_minute - self._spent)

    def spend(self, items: int) -> None:
        """So many were moved, or a transaction without elements ended; each counts as one at least."""
        self._spent += max(1, items)


class ErrorBudget:
    """The errors of the lane: parity that did not hold, and steps that failed for no reason of the store's."""

    def __init__(self) -> None:
        """No errors yet."""
        self._times: deque[float] = deque()

    def note(self, now: float, count: int = 1) -> None:
        """So many errors were found."""
        self._times.extend([now] * count)

    def count(self, now: float, seconds: float) -> int:
        """Errors of the last ``seconds``."""
        return sum(1 for when in self._times if when > now - seconds)

    def per_minute(self, now: float) -> int:
        """Errors of the last minute: the signal ``parity``."""
        return self.count(now, _MINUTE)

    def is_spent(self, now: float, knobs: Knobs) -> bool:
        """Whether the lane must pause by itself; older errors are forgotten."""
        while self._times and self._times[0] <= now - max(_MINUTE, knobs.error_window_seconds):
            self._times.popleft()
        return self.count(now, knobs.error_window_seconds) >= knobs.error_budget

    def clear(self) -> None:
        """Somebody was told and decides."""
        self._times.clear()
