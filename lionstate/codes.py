"""The closed sets of reasons that stores, metrics and people see."""

from __future__ import annotations

from enum import StrEnum

__all__ = ["BlockedCode", "HeldReason"]


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


class HeldReason(StrEnum):
    """Why automatic work waits for a progression without blocking it: a closed set."""

    FOREIGN_WRITER = "foreign_writer"
    VERIFY_OVER_BUDGET = "verify_over_budget"
    FENCE_MISSING = "fence_missing"
    OPERATOR = "operator"
