"""Following a progression over the death of the daemon."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from lionstate import StateClient
from lionstate.errors import DaemonUnreachableError, OutcomeUnknownError
from tests.e2e.conftest import Daemons
from tests.support.eventually import eventually

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(180)]


async def _append(client: StateClient, message_id: str) -> None:
    """Again after a connection that had died: an id has one place however often it comes."""
    for _ in range(3):
        try:
            return await client.append_to_progression("p", message_id)
        except (OutcomeUnknownError, DaemonUnreachableError):
            continue
    raise AssertionError("the daemon does not answer")


async def test_nothing_is_missed_or_doubled_over_kills(daemons: Daemons, store_url: str) -> None:
    found: list[Any] = []
    acknowledged: list[str] = []
    daemon = daemons(store_url)

    async def follow(client: StateClient) -> None:
        async for ordinal, message_id in client.follow_progression("p", wait_seconds=60):
            found.append((ordinal, message_id))

    async with StateClient(daemon.target) as client:
        await client.create_progression("p")
        following = asyncio.create_task(follow(client))
        for kill in range(3):
            for number in range(20):
                acknowledged.append(f"m{kill}.{number}")
                await _append(client, acknowledged[-1])
            if kill:
                await eventually(lambda: len(found) == len(acknowledged))
            daemon.kill()
            daemon = daemons(store_url)
        await eventually(lambda: len(found) >= len(acknowledged))
        assert list(enumerate(acknowledged)) == found
        following.cancel()
