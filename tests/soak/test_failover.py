"""A primary that dies under load, three times, with a synchronous standby that takes over."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import Daemons, daemons, folder
from tests.support.failover import Pair, failover
from tests.support.missing import missing
from tests.support.postgres import PostgresUnavailableError

__all__ = ["daemons", "folder"]

pytestmark = [pytest.mark.anyio, pytest.mark.postgresql]


@pytest.fixture(params=[15, 18])
def pair(request: pytest.FixtureRequest) -> Iterator[Pair]:
    """Two servers of a version."""
    try:
        found = Pair(request.param)
    except PostgresUnavailableError as error:
        missing(str(error))
    yield found
    found.stop()


async def test_nothing_acknowledged_is_lost(daemons: Daemons, folder: Path, pair: Pair) -> None:
    """fault 10, fault 34: the daemons recover by themselves, and every reply was true."""
    print()
    print(await failover(daemons, folder, pair, rounds=3, progressions=60, size=2_500))
