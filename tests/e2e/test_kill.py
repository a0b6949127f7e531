"""``kill -9`` of the daemon under load: the short twin of tests/soak/test_kill.py."""

from __future__ import annotations

from pathlib import Path

import pytest

from lionstate import StateClient, StateDB
from lionstate.errors import BackendUnavailableError
from tests.e2e.conftest import Daemons
from tests.support.kills import kill_under_load

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(300)]


@pytest.mark.parametrize("migrating", [False, True])
async def test_what_was_acknowledged_survives(daemons: Daemons, store_url: str, migrating: bool) -> None:
    """fault 61: the stale socket of the killed daemon is replaced; faults 12, 34."""
    print(await kill_under_load(daemons, store_url, kills=3, migrating=migrating, seed=1))


async def test_what_was_acknowledged_survives_the_loss_of_its_log(daemons: Daemons, folder: Path) -> None:
    """faults 12, 34: ``-wal`` is removed under a daemon, which is killed once it has noticed."""
    path, acknowledged = folder / "state.db", ["first"]
    daemon = daemons(path)
    async with StateClient(daemon.target) as client:
        await client.create_progression("p", acknowledged)
        (folder / "state.db-wal").unlink()
        with pytest.raises(BackendUnavailableError, match="write-ahead log"):
            while True:
                await client.append_to_progression("p", name := f"m{len(acknowledged)}")
                acknowledged.append(name)
    daemon.kill()
    async with StateDB(path) as state:
        assert acknowledged == await state.get_progression("p")
