"""How fast migration has moved lately: measured by its steps and kept in the store, so that no figure is guessed."""

from __future__ import annotations

import json
import time
from dataclasses import astuple, dataclass
from typing import Any, Final, Protocol

from sqlalchemy import Connection

from lionstate.dialects import dialect_of
from lionstate.migration.control import get_row
from lionstate.schema.own import migration_control

__all__ = ["Moved", "Sample", "Speed", "SpeedKeeper", "load_speed", "weight_of"]

SPEED_KEY: Final = "speed"
_SAMPLES: Final = 30
_FRESH_SECONDS: Final = 30.0
_YOUNG_SECONDS: Final = 5.0
_YOUNG_SAMPLES: Final = 3
_FLUSH_SECONDS: Final = 2.0
# Admission, proof and cutover of one progression take about as long as copying so much of its JSON.
_OVERHEAD_BYTES: Final = 2_000
# What json.dumps adds to an id.
_QUOTES_BYTES: Final = 4


def weight_of(size_bytes: float, progressions: int) -> float:
    """Work in bytes of JSON: that of values of this size, and what each progression takes besides."""
    return size_bytes + _OVERHEAD_BYTES * progressions


class Moved(Protocol):
    """Of ``MigrationStep``, what is measured."""

    @property
    def items(self) -> int: ...
    @property
    def size_bytes(self) -> int: ...
    @property
    def cut_over(self) -> int: ...
    @property
    def seconds(self) -> float: ...
    @property
    def growth_bytes(self) -> int: ...
    @property
    def sizing_seconds(self) -> float: ...
    @property
    def chunk_lock_seconds(self) -> float: ...
    @property
    def cutover_lock_seconds(self) -> float: ...


@dataclass(frozen=True, slots=True)
class Sample:
    """What moved within about two seconds: one step, or several short ones.

    Attributes:
        size_bytes: JSON that it copied, with what stands between the ids.
        cut_over: Progressions that it finished.
        items: Elements copied.
        seconds: Of the step, without the noting of sizes.
        elapsed_seconds: Since the step before it ended, waiting included.
        growth_bytes: What the store grew by while it copied.
        chunk_lock_seconds: The longest hold of a chunk.
        cutover_lock_seconds: The longest hold of a cutover; 0 without one.
        log_bytes: Size of the write-ahead log afterwards; None where it is not seen.
    """

    size_bytes: int
    cut_over: int
    items: int
    seconds: float
    elapsed_seconds: float
    growth_bytes: int
    chunk_lock_seconds: float
    cutover_lock_seconds: float
    log_bytes: int | None

    def and_then(self, later: Sample) -> Sample:
        """Both as one."""
        logs = [one.log_bytes for one in (self, later) if one.log_bytes is not None]
        return Sample(
            size_bytes=self.size_bytes + later.size_bytes,
            cut_over=self.cut_over + later.cut_over,
            items=self.items + later.items,
            seconds=self.seconds + later.seconds,
            elapsed_seconds=self.elapsed_seconds + later.elapsed_seconds,
            growth_bytes=self.growth_bytes + later.growth_bytes,
            chunk_lock_seconds=max(self.chunk_lock_seconds, later.chunk_lock_seconds),
            cutover_lock_seconds=max(self.cutover_lock_seconds, later.cutover_lock_seconds),
            log_bytes=max(logs, default=None),
        )


@dataclass(frozen=True, slots=True)
class Speed:
    """The last 30 samples, a minute of steady work, and when they were kept (epoch seconds).

    Every figure is None until it was measured.
    """

    samples: tuple[Sample, ...] = ()
    updated_at: float = 0.0

    def is_fresh(self, now: float) -> bool:
        """Whether something was moved a moment ago; a clock that jumps makes it stale until the next step."""
        return bool(self.samples) and abs(now - self.updated_at) <= _FRESH_SECONDS

    def work_seconds(self, weight: float) -> float | None:
        """How long steps would work on so much, waiting between them not included."""
        return self._per_weight(sum(one.seconds for one in self.samples), weight)

    def left_seconds(self, weight: float, now: float) -> float | None:
        """How long so much would take as things go; None when nothing moves now, or has not moved for long enough."""
        elapsed = sum(one.elapsed_seconds for one in self.samples)
        is_young = len(self.samples) < _YOUNG_SAMPLES or elapsed < _YOUNG_SECONDS
        return None if is_young or not self.is_fresh(now) else self._per_weight(elapsed, weight)

    def _per_weight(self, seconds: float, weight: float) -> float | None:
        moved = sum(weight_of(one.size_bytes, one.cut_over) for one in self.samples)
        return weight * seconds / moved if moved else None

    @property
    def items_per_second(self) -> float | None:
        """Elements copied, waiting between the steps included."""
        elapsed = sum(one.elapsed_seconds for one in self.samples)
        return sum(one.items for one in self.samples) / elapsed if elapsed else None

    def growth_bytes(self, size_bytes: float) -> float | None:
        """What the store grows by while so much JSON is copied."""
        copied = sum(one.size_bytes for one in self.samples)
        return size_bytes * sum(one.growth_bytes for one in self.samples) / copied if copied else None

    @property
    def chunk_lock_seconds(self) -> float | None:
        """The longest hold of a chunk."""
        return max((one.chunk_lock_seconds for one in self.samples if one.items), default=None)

    @property
    def cutover_lock_seconds(self) -> float | None:
        """The longest hold of a cutover."""
        return max((one.cutover_lock_seconds for one in self.samples if one.cutover_lock_seconds), default=None)

    @property
    def log_bytes(self) -> int | None:
        """The largest write-ahead log seen after a step."""
        return max((one.log_bytes for one in self.samples if one.log_bytes is not None), default=None)


def load_speed(conn: Connection, /) -> Speed:
    """What was measured on this store; an empty one when nothing was. Cost: one primary-key seek."""
    row = get_row(conn, SPEED_KEY)
    if row is None:
        return Speed()
    text, *_, updated_at, _ = row
    try:
        return Speed(tuple(Sample(*one) for one in json.loads(text)), updated_at)
    except (TypeError, ValueError):
        # Of a version that measured something else.
        return Speed()


def _add(conn: Connection, /, sample: Sample, *, actor: str, now: float) -> None:
    kept = (*load_speed(conn).samples, sample)[-_SAMPLES:]
    row: dict[str, Any] = {
        "key": SPEED_KEY,
        "value": json.dumps([astuple(one) for one in kept]),
        "actor": actor,
        "updated_at": now,
    }
    conn.execute(dialect_of(conn).upsert(migration_control, ["key"], ["value", "actor", "updated_at"]), row)


@dataclass(slots=True)
class SpeedKeeper:
    """Samples of one service that are not in the store yet; losing them costs nothing."""

    _waiting: Sample | None = None
    _last_end: float | None = None
    _last_flush: float | None = None

    def note(self, step: Moved, log_bytes: int | None) -> None:
        """Take a step's figures if it moved anything."""
        end = time.monotonic()
        since = None if self._last_end is None else end - self._last_end
        if not (step.items or step.cut_over):
            return
        self._last_end = end
        found = Sample(
            size_bytes=step.size_bytes + _QUOTES_BYTES * step.items,
            cut_over=step.cut_over,
            items=step.items,
            seconds=max(0.0, step.seconds - step.sizing_seconds),
            # After a longer rest nobody waited for the step.
            elapsed_seconds=max(
                0.0,
                (step.seconds if since is None or since > _FRESH_SECONDS else max(since, step.seconds))
                - step.sizing_seconds,
            ),
            growth_bytes=step.growth_bytes,
            chunk_lock_seconds=step.chunk_lock_seconds,
            cutover_lock_seconds=step.cutover_lock_seconds,
            log_bytes=log_bytes,
        )
        self._waiting = found if self._waiting is None else self._waiting.and_then(found)

    def due(self, actor: str, now: float) -> Any:
        """A script that writes what waits, at most one in two seconds; None when there is nothing to write yet."""
        moment = time.monotonic()
        if self._waiting is None or (self._last_flush is not None and moment - self._last_flush < _FLUSH_SECONDS):
            return None
        sample, self._waiting, self._last_flush = self._waiting, None, moment

        def script(conn: Connection) -> None:
            _add(conn, sample, actor=actor, now=now)

        return script
