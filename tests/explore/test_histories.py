"""Many histories of calls against a plain-Python model: the long twin of tests/properties/test_histories.py."""

from __future__ import annotations

from tests.support.machine import target, try_histories

__all__ = ["target"]


def test_no_history_shows_anything_but_the_model(target: str) -> None:
    """faults 8, 23, 30, 31: whatever is done in whatever order, reads give what was acknowledged."""
    try_histories(target, examples=300, steps=60)
