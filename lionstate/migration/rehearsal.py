"""What the migration of a copy tells."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["Rehearsal", "RehearsalStage"]


@dataclass(frozen=True, slots=True)
class RehearsalStage:
    """How far a rehearsal under way is.

    Attributes:
        stage: What it does: a stage of a backup or a copy, then ``migrate``.
        done: So many of what this stage counts: pages, rows, progressions.
        total: So many in all.
    """

    stage: str
    done: int
    total: int


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """What the migration of a copy did and took; holds no message ids.

    Attributes:
        source: The store, without its password; it was only read.
        copy: Where the migrated copy is; None when it was removed.
        phases: Progressions of the copy by phase at the end.
        blocked: Those that could not be migrated, by code.
        held: Those that wait, by reason. What another program writes does not hold a copy.
        cut_over: Progressions that went to ``items``.
        items: Elements copied.
        chunks: Transactions that copied them.
        verified: Proofs of both representations by outcome (``match``, ``mismatch``), with digests of all elements.
        copy_seconds: Of making and proving the copy.
        work_seconds: Of migrating it, in which nobody else used it.
        longest_hold_seconds: The longest that a transaction of the migration held its locks, COMMIT included.
        cutover_lock_seconds: The longest of a cutover, COMMIT aside.
        store_bytes: The copy before its migration, its write-ahead log aside.
        growth_bytes: What it grew by.
        log_written_bytes: What the migration wrote to the write-ahead log; None on PostgreSQL.
        log_peak_bytes: The largest size of the log; None on PostgreSQL.
    """

    source: str
    copy: str | None
    phases: Mapping[str, int]
    blocked: Mapping[str, int]
    held: Mapping[str, int]
    cut_over: int
    items: int
    chunks: int
    verified: Mapping[str, int]
    copy_seconds: float
    work_seconds: float
    longest_hold_seconds: float
    cutover_lock_seconds: float
    store_bytes: int
    growth_bytes: int
    log_written_bytes: int | None
    log_peak_bytes: int | None
