"""13 client processes on all families for a minute, on one SQLite daemon."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.conftest import Daemons, daemons, folder
from tests.support.mixed_load import mixed_load

__all__ = ["daemons", "folder"]

pytestmark = pytest.mark.anyio


async def test_nothing_acknowledged_is_lost_and_nobody_starves(daemons: Daemons, folder: Path) -> None:
    print(await mixed_load(daemons, folder, clients=13, seconds=60))
