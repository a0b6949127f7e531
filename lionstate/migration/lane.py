"""Whether migration fails or waits, for whoever asks: what fails in memory, what is waited for in the store too."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

from sqlalchemy import Connection, select

from lionstate.dialects import dialect_of
from lionstate.errors import BackendError, DeadlineExceededError, OverloadedError, StateError
from lionstate.migration.control import AUTOMATIC_ACTOR
from lionstate.migration.throttle import SignalStatus
from lionstate.schema.own import migration_control as table

__all__ = ["MOVING_PARTS", "Elsewhere", "Failing", "Lane", "note_waits", "read_elsewhere"]

_KEY: Final = "lane.waits"
# A process that waits says so this often, and is believed for as long as several times that.
_TELL_SECONDS: Final = 5.0
_BELIEVED_SECONDS: Final = 20.0
MOVING_PARTS: Final = ("lease", "step")
"""What must not fail for migration to move."""
_STORES: Final = (BackendError, OverloadedError, DeadlineExceededError)


@dataclass(frozen=True, slots=True)
class Failing:
    """Attempts that failed one after the other, in the process that is asked.

    Attributes:
        part: ``lease``, ``step`` or ``scrub``.
        code: Of the last error, or its cause (``disk_full``); ``internal`` for one that is no error of the store.
        attempts: How many.
        since: The first one, epoch seconds.
        last_at: The last one, epoch seconds.
    """

    part: str
    code: str
    attempts: int
    since: float
    last_at: float


@dataclass(frozen=True, slots=True)
class Elsewhere:
    """What another process that migrates this store waits for, as it last said.

    Attributes:
        process: Host, process id and a random part.
        seen_at: When it said so, epoch seconds.
        signals: The signals that it waits for, with value, limit and age at that time.
    """

    process: str
    seen_at: float
    signals: tuple[SignalStatus, ...]


@dataclass(slots=True)
class Lane:
    """What one service remembers about its own attempts."""

    _failing: dict[str, Failing] = field(default_factory=dict)
    _told_at: float = float("-inf")
    _told: frozenset[str] = frozenset()

    @contextmanager
    def attempt(self, part: str) -> Iterator[None]:
        """Count what fails inside, until something does not."""
        try:
            yield
        except Exception as error:
            self.failed(part, error)
            raise
        self.worked(part)

    def failed(self, part: str, error: Exception) -> None:
        """An attempt failed; what is the caller's mistake does not count."""
        if isinstance(error, StateError) and not isinstance(error, _STORES):
            return
        code, now = error.cause if isinstance(error, StateError) else "internal", time.time()
        before = self._failing.get(part) or Failing(part, code, 0, now, now)
        self._failing[part] = replace(before, code=code, attempts=before.attempts + 1, last_at=now)

    def worked(self, part: str) -> None:
        """An attempt came to its end, whatever it found."""
        self._failing.pop(part, None)

    def failing(self) -> tuple[Failing, ...]:
        """What fails now."""
        return tuple(self._failing.values())

    def is_news(self, signals: Sequence[SignalStatus], now: float) -> bool:
        """Whether others must be told what is waited for: other signals, or it was told a while ago."""
        names = frozenset(one.signal for one in signals)
        if names == self._told and now - self._told_at < _TELL_SECONDS:
            return False
        self._told, self._told_at = names, now
        return True


def note_waits(conn: Connection, /, process: str, signals: Sequence[SignalStatus], *, now: float) -> None:
    """Keep for 20 s what this process waits for, so that the status of another one names it. Cost: one upsert."""
    row = {
        "key": _KEY,
        "value": json.dumps({"process": process, "signals": [asdict(one) for one in signals]}),
        "actor": AUTOMATIC_ACTOR,
        "reason": None,
        "updated_at": now,
        "expires_at": now + _BELIEVED_SECONDS,
    }
    conn.execute(dialect_of(conn).upsert(table, ["key"], [name for name in row if name != "key"]), row)


def read_elsewhere(conn: Connection, /, process: str, now: float) -> Elsewhere | None:
    """What another process than ``process`` waits for; None when none said so lately. Cost: one seek."""
    query = select(table.c.value, table.c.updated_at, table.c.expires_at).where(table.c.key == _KEY)
    row = conn.execute(query).one_or_none()
    if row is None or row[2] is None or row[2] <= now:
        return None
    try:
        told: Any = json.loads(row[0])
        signals = tuple(SignalStatus(**one) for one in told["signals"])
        found = Elsewhere(told["process"], row[1], signals)
    except (ValueError, TypeError, KeyError):
        # Another release says it in other words.
        return None
    return None if found.process == process else found
