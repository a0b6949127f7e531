"""Start and stop, again and again: the short twin of tests/soak/test_cycles.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.cycles import start_and_stop

pytestmark = pytest.mark.anyio


async def test_a_stop_at_any_moment_ends_in_time(folder: Path) -> None:
    """fault 63: a cancel that lands on a task's first step."""
    await start_and_stop(folder, 25)
