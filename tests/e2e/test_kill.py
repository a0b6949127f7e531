"""``kill -9`` of the daemon under load: the short twin of tests/soak/test_kill.py."""

from __future__ import annotations

import pytest

from tests.e2e.conftest import Daemons
from tests.support.kills import kill_under_load

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]


@pytest.mark.parametrize("migrating", [False, True])
async def test_what_was_acknowledged_survives(daemons: Daemons, store_url: str, migrating: bool) -> None:
    """fault 61: the stale socket of the killed daemon is replaced; faults 12, 34."""
    print(await kill_under_load(daemons, store_url, kills=3, migrating=migrating, seed=1))
