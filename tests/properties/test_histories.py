"""A few histories of calls against a plain-Python model; tests/explore tries many."""

from __future__ import annotations

import pytest

from tests.support.machine import target, try_histories

__all__ = ["target"]

pytestmark = pytest.mark.timeout(300)


def test_no_history_shows_anything_but_the_model(target: str) -> None:
    """faults 8, 23, 30, 31: whatever is done in whatever order, reads give what was acknowledged."""
    try_histories(target, examples=10, steps=40)
