"""The knobs of migration: names, types, bounds, defaults, and what each does. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final

from lionstate.errors import InvalidInputError

__all__ = ["KNOBS", "Knob", "KnobSetting", "Knobs", "checked_knob", "spelled", "with_values"]

_MIB = 1024 * 1024


def _knob(default: float, low: float, high: float, what: str) -> Any:
    return field(default=default, metadata={"low": low, "high": high, "what": what})


@dataclass(frozen=True, slots=True)
class Knobs:
    """Every knob, with the value in force; units end the names. Contract: design decisions 7, 24-26, 36."""

    max_items: int = _knob(500, 1, 500, "Most elements of one chunk, and where its size starts.")
    min_items: int = _knob(50, 1, 500, "Elements below which the hold target makes no chunk smaller.")
    hold_target_seconds: float = _knob(
        0.002, 0.0001, 10.0, "Lock hold a chunk is fitted to; PostgreSQL: 50 times that, as it locks one progression."
    )
    nice_ratio: float = _knob(
        0.1, 0.01, 1.0, "Share of time that maintenance may hold the lock while others write; alone, half of it."
    )
    verify_budget_seconds: float = _knob(0.05, 1e-9, 3600.0, "Lock hold of a cutover for each 100,000 ids.")
    lock_wait_limit_seconds: float = _knob(0.25, 0.001, 60.0, "Throttled from this wait for the write lock on.")
    wal_frames_limit: int = _knob(
        40_000,
        1_000,
        100_000_000,
        "SQLite: throttled from so many frames on that no checkpoint has moved; up to 16,000 wait for a slow disk.",
    )
    wal_pinned_limit_seconds: float = _knob(
        60.0, 1.0, 86_400.0, "SQLite: throttled when readers have kept over 1,000 frames in the log for so long."
    )
    queue_depth_limit: int = _knob(1_000, 1, 1_000_000, "Throttled from so many waiting writes on.")
    queue_age_limit_seconds: float = _knob(1.0, 0.001, 3600.0, "Throttled when a write has waited for so long.")
    parity_limit_per_minute: int = _knob(3, 1, 1_000_000, "Throttled from so many parity errors a minute on.")
    long_transaction_limit_seconds: float = _knob(
        600.0, 1.0, 604_800.0, "PostgreSQL: throttled while a transaction has been open for so long."
    )
    wal_rate_limit_bytes: int = _knob(
        64 * _MIB, 1024, 1024 * 1024 * _MIB, "PostgreSQL: throttled from so many bytes of WAL a second on."
    )
    free_disk_floor_bytes: int = _knob(
        512 * _MIB, 0, 1024 * 1024 * 1024 * _MIB, "SQLite: throttled below so many free bytes beside the store."
    )
    minimum_items_per_minute: int = _knob(
        0, 0, 10_000_000, "Elements to move each minute although throttled; never below the disk floor."
    )
    starved_after_seconds: float = _knob(600.0, 1.0, 604_800.0, "Throttled without progress for so long: starved.")
    error_budget: int = _knob(10, 1, 1_000_000, "So many errors within error_window_seconds pause migration.")
    error_window_seconds: float = _knob(3600.0, 60.0, 604_800.0, "Errors older than this do not count.")


@dataclass(frozen=True, slots=True)
class Knob:
    """One knob: its bounds, its built-in default, and what it does."""

    name: str
    default: float
    low: float
    high: float
    is_whole: bool
    what: str


_BUILT_IN: Final = Knobs()

KNOBS: Final[Mapping[str, Knob]] = {
    one.name: Knob(
        one.name,
        getattr(_BUILT_IN, one.name),
        one.metadata["low"],
        one.metadata["high"],
        one.type == "int",
        one.metadata["what"],
    )
    for one in fields(Knobs)
}


@dataclass(frozen=True, slots=True)
class KnobSetting:
    """The value of one knob and where it comes from.

    Attributes:
        value: In force now.
        default: What holds without an operator's value: a daemon's settings, else the built-in one.
        low: Least value.
        high: Largest value.
        what: What it does.
        actor: Who set it; None while the default holds.
        reason: Why.
        since: When it was set, epoch seconds.
        expires_at: When the default comes back, epoch seconds; None is never.
    """

    name: str
    value: float
    default: float
    low: float
    high: float
    what: str
    actor: str | None = None
    reason: str | None = None
    since: float | None = None
    expires_at: float | None = None


def spelled(value: float) -> str:
    """A value for people: thousands grouped, a large one whole, no exponent."""
    return f"{value:,.0f}" if abs(value) >= 100_000 else f"{value:,.6g}"


def checked_knob(name: str, value: object) -> float:
    """The value of a knob, within its bounds and of its type.

    Raises:
        InvalidInputError: There is no such knob, or the value is no number, not whole where it must be, or out of
            bounds.
    """
    knob = KNOBS.get(name)
    if knob is None:
        raise InvalidInputError(f"there is no such knob; there are {', '.join(KNOBS)}")
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not knob.low <= value <= knob.high:
        raise InvalidInputError(f"{name} must be a number from {spelled(knob.low)} to {spelled(knob.high)}")
    if knob.is_whole and value != int(value):
        raise InvalidInputError(f"{name} must be a whole number")
    return int(value) if knob.is_whole else float(value)


def with_values(defaults: Knobs, values: Mapping[str, float]) -> Knobs:
    """The defaults with an operator's values over them."""
    given: dict[str, Any] = dict(values)
    return replace(defaults, **given)
