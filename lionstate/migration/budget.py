"""Caps of a step, the cut of a chunk and the time budget of a cutover. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lionstate.errors import InvalidInputError

__all__ = [
    "CHUNK_BYTES",
    "CHUNK_ITEMS",
    "MAX_VERIFY_MISSES",
    "Caps",
    "allowed_seconds",
    "check_caps",
    "cut_chunk",
]

CHUNK_ITEMS = 500
CHUNK_BYTES = 4 * 1024 * 1024
MAX_VERIFY_MISSES = 3

_BUDGET_ITEMS = 100_000


@dataclass(frozen=True, slots=True)
class Caps:
    """What one step may do: elements and bytes of ids copied, seconds on the monotonic clock."""

    max_items: int
    max_bytes: int
    max_seconds: float


def check_caps(max_items: int, max_bytes: int, max_seconds: float) -> Caps:
    """Refuse caps that would let a step do nothing.

    Raises:
        InvalidInputError: A cap is not above zero.
    """
    for name, value in (("max_items", max_items), ("max_bytes", max_bytes), ("max_seconds", max_seconds)):
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
            raise InvalidInputError(f"{name} must be above 0")
    return Caps(int(max_items), int(max_bytes), float(max_seconds))


def cut_chunk(
    ids: Sequence[str], start: int, stop: int, *, max_items: int, max_bytes: int, at_least_one: bool = True
) -> tuple[list[str], int]:
    """Take the ids of one chunk: from ``start``, before ``stop``, within both caps.

    Args:
        at_least_one: Take one id even if it alone is over the byte cap; a chunk of none would never end.
    Returns:
        The ids and their UTF-8 bytes.

    Cost: linear in the chunk.
    Contract: ADR-0117 D3; design decisions 17, 36.
    """
    end = min(stop, start + max_items)
    taken = 0
    for position in range(start, end):
        found = ids[position]
        size = len(found) if found.isascii() else len(found.encode())
        if taken + size > max_bytes and (position > start or not at_least_one):
            return list(ids[start:position]), taken
        taken += size
    return list(ids[start:end]), taken


def allowed_seconds(count: int, budget_seconds: float) -> float:
    """How long a cutover of ``count`` ids may hold the lock: the budget for each 100,000, never less than one.

    Contract: design decision 7.
    """
    return budget_seconds * max(1.0, count / _BUDGET_ITEMS)
