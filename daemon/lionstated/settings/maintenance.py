"""The settings of the background migration; most are the defaults of its knobs."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from lionstate.migration.knobs import KNOBS, Knobs

from .section import Section

__all__ = ["Maintenance"]


def _knob(name: str) -> Any:
    one = KNOBS[name]
    return Field(default=one.default, ge=one.low, le=one.high, description=one.what)


class Maintenance(Section):
    """The background migration; `progression-migrate knobs set` goes before what is set here."""

    enabled: bool = Field(default=False, description="Run it; pause and resume apply on top.")
    interval_seconds: float = Field(default=1.0, gt=0, description="Time between two ticks.")
    lease_seconds: float = Field(
        default=15.0, ge=1, le=3600, description="After this another process takes over from one that died."
    )
    chunks_per_tick: int = Field(default=20, ge=1, description="Chunks of one tick, counted at their full size.")
    accept_foreign_writers: bool = Field(
        default=False, description="Cut over although another program was seen writing the store."
    )
    scrub_items_per_second: int = Field(
        default=5000, ge=0, description="Rows that the scrubber compares; 0: it does not run by itself."
    )
    scrub_interval_seconds: float = Field(
        default=3600.0, ge=0, description="From the end of a pass of the scrubber to the next one."
    )
    shadow_read_ratio: float = Field(
        default=0.01, ge=0, le=1, description="Share of the reads in dual that are compared with the rows afterwards."
    )
    max_items: int = _knob("max_items")
    min_items: int = _knob("min_items")
    hold_target_seconds: float = _knob("hold_target_seconds")
    nice_ratio: float = _knob("nice_ratio")
    verify_budget_seconds: float = _knob("verify_budget_seconds")
    lock_wait_limit_seconds: float = _knob("lock_wait_limit_seconds")
    wal_frames_limit: int = _knob("wal_frames_limit")
    wal_pinned_limit_seconds: float = _knob("wal_pinned_limit_seconds")
    queue_depth_limit: int = _knob("queue_depth_limit")
    queue_age_limit_seconds: float = _knob("queue_age_limit_seconds")
    parity_limit_per_minute: int = _knob("parity_limit_per_minute")
    long_transaction_limit_seconds: float = _knob("long_transaction_limit_seconds")
    wal_rate_limit_bytes: int = _knob("wal_rate_limit_bytes")
    free_disk_floor_bytes: int = _knob("free_disk_floor_bytes")
    minimum_items_per_minute: int = _knob("minimum_items_per_minute")
    starved_after_seconds: float = _knob("starved_after_seconds")
    error_budget: int = _knob("error_budget")
    error_window_seconds: float = _knob("error_window_seconds")

    @property
    def knobs(self) -> Knobs:
        """The defaults of the knobs."""
        return Knobs(**{name: getattr(self, name) for name in KNOBS})
