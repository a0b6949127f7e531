"""A store pressed from outside for minutes: a reader that pins the log, a writer that has the lock, a full disk."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import Daemons, daemons, folder
from tests.support.pressure import disk_filled, disk_left_alone, foreign_writer, pinned_reader

__all__ = ["daemons", "folder"]

pytestmark = pytest.mark.anyio


@pytest.fixture
def small_disk() -> Iterator[Path]:
    """A file system of 64 MiB; skipped where none may be mounted."""
    with tempfile.TemporaryDirectory(prefix="ls") as name:
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", name], check=False)
        if mounted.returncode != 0:
            pytest.skip("mounting a file system is not allowed here")
        try:
            yield Path(name)
        finally:
            subprocess.run(["umount", "--lazy", name], check=True)


async def test_a_reader_for_ten_minutes(daemons: Daemons, folder: Path) -> None:
    """fault 35"""
    print(await pinned_reader(daemons, folder, seconds=600))


async def test_a_lock_that_is_taken_most_of_the_time(daemons: Daemons, folder: Path) -> None:
    """faults 5, 7"""
    print(await foreign_writer(daemons, folder, seconds=300))


async def test_a_disk_that_fills(daemons: Daemons, small_disk: Path) -> None:
    """fault 46"""
    print(await disk_filled(daemons, small_disk, seconds=20))


async def test_a_full_disk_and_no_caller(daemons: Daemons, small_disk: Path) -> None:
    """fault 46: not ready by name, and ready again by the probe."""
    print(await disk_left_alone(daemons, small_disk))
