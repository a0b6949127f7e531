"""LionAGI at length: 10,000 messages migrated in their middle, and a minute of eight agents on one file."""

from __future__ import annotations

import asyncio
import dataclasses

import pytest

from tests.bridge.conftest import Daemons, Stores, daemons, folder, lionagi_python, stores
from tests.bridge.crowds import check_nothing_lost, crowd, locked
from tests.bridge.runs import check, migrated, plain

__all__ = ["daemons", "folder", "lionagi_python", "stores"]

MESSAGES = 10_000
SECONDS = 60.0


def test_ten_thousand_messages(stores: Stores, daemons: Daemons) -> None:
    expected = plain(stores("plain", "plain"), MESSAGES)
    actual = migrated(stores("bridged", "bridge"), MESSAGES, daemons)
    check(expected, actual, MESSAGES)


@pytest.mark.parametrize("stores", ["sqlite"], indirect=True)
def test_a_minute_of_eight_agents(stores: Stores, daemons: Daemons) -> None:
    alone = crowd(stores("alone", "plain"), SECONDS)
    made = stores("served", "plain")
    daemon = daemons(made.url, storage__lionagi_compatible="true", maintenance__enabled="true")
    served = crowd(dataclasses.replace(made, mode=daemon.target), SECONDS)
    kept = asyncio.run(check_nothing_lost(daemon.target, served))
    for name, found in (("each on its own", alone), ("through the daemon", served)):
        written = sum(len(agent["acknowledged"]) for agent in found)
        print(f"{name}: {written} messages, {locked(found)} times locked, errors {[a['errors'] for a in found]}")
    assert [{}] * len(served) == [agent["errors"] for agent in served]
    assert sum(len(agent["acknowledged"]) for agent in served) == kept
