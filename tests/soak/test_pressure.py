"""A store pressed from outside for minutes: a reader that pins the log, a writer that has the lock."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.conftest import Daemons, daemons, folder
from tests.support.pressure import foreign_writer, pinned_reader

__all__ = ["daemons", "folder"]

pytestmark = pytest.mark.anyio


async def test_a_reader_for_ten_minutes(daemons: Daemons, folder: Path) -> None:
    """fault 35"""
    print(await pinned_reader(daemons, folder, seconds=600))


async def test_a_lock_that_is_taken_most_of_the_time(daemons: Daemons, folder: Path) -> None:
    """faults 5, 7"""
    print(await foreign_writer(daemons, folder, seconds=300))
