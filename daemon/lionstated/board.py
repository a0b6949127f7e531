"""What the status page tells, put together from memory: counts, codes and times, never an id or an operator's words."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from lionstate import __version__
from lionstate.migration import Activity, MigrationStatus, SignalStatus
from lionstate.migration.throttle import SIGNAL_UNAVAILABLE

from . import logs
from .history import SLOT_SECONDS, History
from .metrics import PHASES, held_of

__all__ = ["Board", "Sources", "Standing", "Waiting"]


class Waiting(NamedTuple):
    """What waits in the write queue, and how many operations may."""

    operations: int = 0
    size_bytes: int = 0
    age_seconds: float = 0.0
    limit_operations: int = 0


class Standing(NamedTuple):
    """Where migration stands, as last read, and what it waits for.

    Attributes:
        valid_seconds: How long after it was measured it tells what is the case now.
    """

    status: MigrationStatus
    enabled: bool
    waits_for: tuple[str, ...]
    valid_seconds: float = math.inf

    def is_stale(self, now: float) -> bool:
        """Whether it is too old to tell what is the case at ``now``."""
        return now - self.status.measured_at > self.valid_seconds


@dataclass(frozen=True, slots=True)
class Sources:
    """Where figures come from while a store is open; each answers from memory.

    Attributes:
        database: Kind and version of the database; None before a store is open.
        queue: What waits.
        migration: Where it stands; None when that was not read yet.
    """

    database: str | None = None
    queue: Callable[[], Waiting] = Waiting
    migration: Callable[[], Standing | None] = lambda: None


@dataclass(slots=True)
class Board:
    """The status page's figures of one daemon."""

    history: History
    sources: Sources = field(default_factory=Sources)
    clock: Callable[[], float] = time.time
    _began: float = field(default_factory=time.monotonic)

    def document(self, state: str, reason: str | None, absent_since: float | None = None) -> dict[str, Any]:
        """All of it, as JSON values; every set of keys is closed.

        Args:
            state: The daemon's, as `/readyz` says it.
            reason: Why it is not ready, where that is known.
            absent_since: Since when the store does not answer; None while it does.
        """
        standing, now = self.sources.migration(), self.clock()
        if standing is not None and absent_since is not None:
            standing = _unread(standing, f"database: {reason} since {logs.utc(absent_since)}")
        elif standing is not None and standing.is_stale(now):
            standing = _unread(standing, f"status: not read since {logs.utc(standing.status.measured_at)}")
        return {
            "now": round(now, 3),
            "state": state,
            "reason": reason,
            "absent_since": absent_since,
            "version": __version__,
            "database": self.sources.database,
            "uptime_seconds": round(time.monotonic() - self._began, 1),
            "queue": self.sources.queue()._asdict(),
            "migration": None if standing is None else _migration(standing),
            "history": self._history(),
        }

    def _history(self) -> dict[str, Any]:
        slots = self.history.read()
        columns = zip(slots[0]._fields, zip(*slots, strict=True), strict=True)
        return {"slot_seconds": SLOT_SECONDS, **{name: list(values) for name, values in columns}}


def _unread(standing: Standing, waits_for: str) -> Standing:
    """The same for a moment at which nothing can be read: a signal that is not known is tripped (decision 24)."""
    status = standing.status
    signals = tuple(
        replace(
            one,
            value=None,
            tripped=True,
            reason=SIGNAL_UNAVAILABLE,
            age_seconds=one.age_seconds if one.tripped else 0.0,
        )
        for one in status.throttle.signals
    )
    progress = replace(status.progress, items_per_second=None, eta_seconds=None)
    if progress.activity is Activity.MOVING:
        progress = replace(progress, activity=Activity.WAITING)
    throttle = replace(status.throttle, throttled=bool(signals), signals=signals)
    return standing._replace(
        status=replace(status, throttle=throttle, progress=progress), waits_for=(waits_for, *standing.waits_for)
    )


def _migration(standing: Standing) -> dict[str, Any]:
    status, progress = standing.status, standing.status.progress
    proof, throttle = status.proof, status.throttle
    # Those under way are the next ones after those that are done; blocked ones have no place in the row.
    done = status.phases.get("items", 0)
    of = done + progress.left
    return {
        "measured_at": status.measured_at,
        "enabled": standing.enabled,
        "waits_for": list(standing.waits_for),
        "owner": "none" if status.owner.owner is None else "self" if status.owner.is_self else "other",
        "owner_since": status.owner.since,
        "pause": None
        if status.pause is None
        else {"code": status.pause.code, "since": status.pause.since, "expires_at": status.pause.expires_at},
        "phases": {phase: status.phases.get(phase, 0) for phase in PHASES},
        "activity": progress.activity,
        "fraction": progress.fraction,
        "left": progress.left,
        "left_bytes": progress.left_bytes,
        "items_per_second": _finite(progress.items_per_second),
        "eta_seconds": _finite(progress.eta_seconds),
        "under_way": [
            {"number": done + place, "of": of, "copied": one.copied, "to_copy": one.to_copy}
            for place, one in enumerate(progress.under_way, 1)
        ],
        "throttle": {
            "throttled": throttle.throttled,
            "starved": throttle.starved,
            "waited_seconds": _finite(throttle.waited_seconds),
            "signals": [_signal(one, status.measured_at) for one in throttle.signals],
        },
        "blocked": _counted(status.blocked),
        "held": _counted(held_of(status)),
        "foreign": {
            "sessions": status.foreign_sessions,
            "progressions": status.foreign_progressions,
            "sighted_at": status.foreign_sighted_at,
            "accepted": status.accept_foreign_writers,
        },
        "scrub": {
            "coverage": proof.coverage,
            "checked": proof.checked,
            "findings": proof.findings + proof.last_pass_findings,
            "running_since": proof.pass_began_at,
            "last_pass_at": proof.last_pass_at,
        },
    }


def _signal(one: SignalStatus, measured_at: float) -> dict[str, Any]:
    return {
        "signal": one.signal,
        "value": _finite(one.value),
        "limit": _finite(one.limit),
        "tripped": one.tripped,
        "reason": one.reason,
        "since": None if one.age_seconds is None else measured_at - one.age_seconds,
    }


def _counted(counts: Mapping[Any, int]) -> dict[str, int]:
    return {str(code): count for code, count in sorted(counts.items()) if count}


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
