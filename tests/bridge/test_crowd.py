"""Several LionAGI processes on one file: through the daemon nobody is locked out."""

from __future__ import annotations

import asyncio
import dataclasses

import pytest

from tests.bridge.conftest import Daemons, Stores
from tests.bridge.crowds import check_nothing_lost, crowd, locked

pytestmark = [pytest.mark.timeout(600), pytest.mark.slow]

SECONDS = 3.0


@pytest.mark.parametrize("mode", ["daemon", "bridge"])
def test_loses_nothing(stores: Stores, daemons: Daemons, mode: str) -> None:
    made = stores("crowd", "plain")
    daemon = daemons(made.url, storage__lionagi_compatible="true", maintenance__enabled="true")
    store = dataclasses.replace(made, mode=daemon.target if mode == "daemon" else "bridge")
    found = crowd(store, SECONDS)
    assert [{}] * len(found) == [agent["errors"] for agent in found]
    assert 0 == locked(found)
    assert asyncio.run(check_nothing_lost(daemon.target, found)) > len(found)
