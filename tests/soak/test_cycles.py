"""500 starts and stops of the daemon in one process."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.conftest import folder
from tests.support.cycles import start_and_stop

__all__ = ["folder"]

pytestmark = pytest.mark.anyio


async def test_a_stop_at_any_moment_ends_in_time(folder: Path) -> None:
    """fault 63: a cancel that lands on a task's first step."""
    await start_and_stop(folder, 500)
