"""A PostgreSQL store that goes away under load: backends ended, the server restarted, a standby promoted."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable

from lionstate import StateClient
from tests.demo.processes import DaemonProcess
from tests.support.eventually import eventually
from tests.support.load import Load, orders_in
from tests.support.postgres import PostgresServer
from tests.support.pressure import readiness

__all__ = ["outages"]

_END = (
    "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
    " WHERE application_name = 'lionstate' AND pid <> pg_backend_pid()"
)


async def _recovered(daemon: DaemonProcess, load: Load) -> None:
    """Wait until writes are acknowledged again and the daemon says that it is ready."""
    await asyncio.wait_for(load.acknowledge(50), 60)
    await eventually(lambda: "reason" not in readiness(daemon.ops), seconds=30)


async def outages(start: Callable[..., DaemonProcess], server: PostgresServer, url: str, *, terminations: int) -> str:
    """End backends so often, then crash and restart the server; check every reply; a line of what was seen."""
    daemon = start(url, maintenance__enabled="true")
    before: dict[str, list[str]] = {f"p{number}": ["old"] for number in range(4)}
    async with StateClient(daemon.target) as client:
        for progression, ids in before.items():
            await client.create_progression(progression, ids)
    load = Load(daemon.target, sorted(before))
    async with load.running():
        for _ in range(terminations):
            await load.acknowledge(20)
            await asyncio.to_thread(server.execute, _END)
        await _recovered(daemon, load)
        server.crash()
        said = await eventually(lambda: readiness(daemon.ops).get("reason"), seconds=30)
        server.restart()
        await _recovered(daemon, load)
    assert 0 == daemon.stop()
    found, _ = await orders_in(url)
    load.check(found, before)
    refused = Counter(code for writer in load.writers for code in writer.refused.values())
    acknowledged, unknown = (
        sum(len(part) for part in parts)
        for parts in ([writer.acknowledged for writer in load.writers], [writer.unknown for writer in load.writers])
    )
    return (
        f"{terminations} times all backends ended, one crash and restart: {acknowledged} acknowledged and there once,"
        f" {dict(refused)} refused and not there, {unknown} unknown; /readyz said {said} meanwhile"
    )
