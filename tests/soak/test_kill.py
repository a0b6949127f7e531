"""``kill -9`` of the daemon under load, 20 times, and 50 times during one migration."""

from __future__ import annotations

import pytest

from tests.e2e.conftest import Daemons, daemons, folder, store_url
from tests.support.kills import kill_under_load

__all__ = ["daemons", "folder", "store_url"]

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("migrating", [False, True])
async def test_what_was_acknowledged_survives(daemons: Daemons, store_url: str, migrating: bool) -> None:
    """Issue A: every acknowledged id is present once, in order per writer; unacknowledged ones either way."""
    print(await kill_under_load(daemons, store_url, kills=20, migrating=migrating, seed=20))


async def test_fifty_kills_of_one_migration(daemons: Daemons, store_url: str) -> None:
    """faults 4, 12, 13: zero lost, zero twice, digests equal, no manual step."""
    print(await kill_under_load(daemons, store_url, kills=50, migrating=True, seed=50))
