"""A few client processes on all families at once; the run of a minute is soak/test_mixed_load.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.conftest import Daemons
from tests.support.mixed_load import mixed_load

pytestmark = [pytest.mark.anyio, pytest.mark.slow, pytest.mark.timeout(300)]


async def test_nothing_acknowledged_is_lost_and_nobody_starves(daemons: Daemons, folder: Path) -> None:
    await mixed_load(daemons, folder, clients=4, seconds=5)
