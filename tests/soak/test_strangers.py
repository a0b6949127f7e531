"""10,000 requests that are none, and 500 slow clients beside appends."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.conftest import Daemons, daemons, folder
from tests.support.strangers import broken_ones, slow_ones

__all__ = ["daemons", "folder"]

pytestmark = pytest.mark.anyio


async def test_requests_that_are_none(daemons: Daemons, folder: Path) -> None:
    print(await broken_ones(daemons, folder, count=10_000, seed=11))


async def test_slow_clients_beside_appends(daemons: Daemons, folder: Path) -> None:
    print(await slow_ones(daemons, folder, count=500, rounds=2))
