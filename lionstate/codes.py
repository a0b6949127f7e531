"""The closed sets of reasons that stores, metrics and people see."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["CONTENT_CODES", "BlockedCode", "HeldReason", "PauseCode", "ThrottleSignal"]


class BlockedCode(StrEnum):
    """Why a progression is ``blocked``: a closed set, stored in ``blocked_reason`` (ADR-0117 D3, D5)."""

    MALFORMED_JSON = "malformed_json"
    NOT_ARRAY = "not_array"
    NON_STRING = "non_string"
    NUL_IN_ID = "nul_in_id"
    LONE_SURROGATE = "lone_surrogate"
    ID_TOO_LONG = "id_too_long"
    NOT_TEXT = "not_text"
    COUNT_MISMATCH = "count_mismatch"
    DIGEST_MISMATCH = "digest_mismatch"
    ORDINAL_MISMATCH = "ordinal_mismatch"
    ALLOCATOR_MISMATCH = "allocator_mismatch"
    ORDINAL_COLLISION = "ordinal_collision"
    FOREIGN_WRITE = "foreign_write"
    ORPHAN_ITEMS = "orphan_items"
    DELETING = "deleting"


# Verdicts about what a store holds, found before anything is copied; the others say that parity did not hold.
CONTENT_CODES = frozenset(
    (
        BlockedCode.MALFORMED_JSON,
        BlockedCode.NOT_ARRAY,
        BlockedCode.NON_STRING,
        BlockedCode.NUL_IN_ID,
        BlockedCode.LONE_SURROGATE,
        BlockedCode.ID_TOO_LONG,
        BlockedCode.NOT_TEXT,
    )
)


class HeldReason(StrEnum):
    """Why automatic work waits for a progression without blocking it: a closed set."""

    FOREIGN_WRITER = "foreign_writer"
    VERIFY_OVER_BUDGET = "verify_over_budget"
    FENCE_MISSING = "fence_missing"
    OPERATOR = "operator"


class PauseCode(StrEnum):
    """What paused migration: a person, or the lane itself; a closed set."""

    OPERATOR = "operator"
    ERROR_BUDGET = "error_budget"


class ThrottleSignal(StrEnum):
    """What migration waits for while it is too high (free disk: too low): a closed set (design decisions 23, 24)."""

    LOCK_WAIT = "lock_wait"
    WAL_FRAMES = "wal_frames"
    WAL_PINNED = "wal_pinned"
    QUEUE_DEPTH = "queue_depth"
    QUEUE_AGE = "queue_age"
    PARITY = "parity"
    LONG_TRANSACTION = "long_transaction"
    WAL_RATE = "wal_rate"
    FREE_DISK = "free_disk"
