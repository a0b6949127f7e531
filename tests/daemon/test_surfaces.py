"""CLI, HTTP, socket and metrics tell the same while a migration is paused and resumed (fault 9)."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import pytest

from lionstate import StateClient
from lionstated.assembly import assemble
from lionstated.process import Daemon
from tests.daemon.conftest import free_address
from tests.daemon.fakes import settings_for
from tests.e2e.conftest import LIONSTATE, clean_environment

pytestmark = pytest.mark.anyio

PHASES = ("json", "dual", "items", "blocked")


def of_metrics(text: str) -> tuple[dict[str, int], bool]:
    gauges = dict(re.findall(r'^lionstate_migration_progressions\{phase="(\w+)"\} (\S+)$', text, re.MULTILINE))
    (paused,) = re.findall(r'^lionstate_migration_paused\{reason="operator"\} (\S+)$', text, re.MULTILINE)
    return {phase: int(float(gauges[phase])) for phase in PHASES}, float(paused) == 1.0


def of_status(found: Any) -> tuple[dict[str, int], bool]:
    return {phase: found["phases"][phase] for phase in PHASES}, found["pause"] is not None


async def test_every_surface_tells_the_same(folder: Path, tmp_path: Path) -> None:
    """fault 9: the same phase counts while it stands still, and the same pause when a verb is answered."""
    token = tmp_path / "token"
    token.write_text("secret-token-of-this-test\n", encoding="ascii")
    token.chmod(0o600)
    settings = settings_for(
        folder,
        storage__lionagi_compatible="true",
        database__sqlite_module="stdlib",
        maintenance__enabled="true",
        maintenance__interval_seconds="0.05",
        maintenance__chunks_per_tick="1",
        listen__http=free_address(),
        auth__token_file=str(token),
    )
    parts = assemble()
    daemon = Daemon(settings, operations=parts.operations, store_factory=parts.store_factory)
    async with anyio.create_task_group() as group:
        await group.start(daemon.run)
        socket = f"unix:{folder / 'd.sock'}"
        key = {"authorization": "Bearer secret-token-of-this-test"}
        async with (
            StateClient(socket) as client,
            aiohttp.ClientSession(daemon.addresses["http"], headers=key) as http,
            aiohttp.ClientSession(daemon.addresses["ops"]) as ops,
        ):

            async def seen() -> list[tuple[dict[str, int], bool]]:
                by_socket = await client.migration.status(limit=0)
                by_http = await (await http.get("/v1/migration/status?limit=0")).json()
                by_cli = await _status_of_the_command(socket)
                metrics = await (await ops.get("/metrics")).text()
                told = {"phases": by_socket.phases, "pause": by_socket.pause}
                return [of_status(told), of_status(by_http), of_status(by_cli), of_metrics(metrics)]

            for number in range(30):
                await client.create_progression(f"p{number}", [f"m{place}" for place in range(2_000)])
            counts: list[dict[str, int]] = []
            for _ in range(3):
                await client.migration.pause(reason="test")
                # It stands still, and the gauges show it when the verb is answered.
                found = await seen()
                assert [found[0]] * 4 == found
                assert found[0][1]
                counts.append(found[0][0])
                await client.migration.resume()
                assert [False] * 4 == [paused for _, paused in await seen()]
                await _until_further(client, counts[-1])
            assert 0 < counts[-1]["json"], "paused in the middle"
            assert 3 == len({one["items"] for one in counts})
        daemon.stop()


async def _status_of_the_command(socket: str) -> Any:
    command = [LIONSTATE, "progression-migrate", "status", "--json", "--daemon", socket]
    process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE, env=clean_environment())
    out, _ = await process.communicate()
    return json.loads(out)


async def _until_further(client: StateClient, before: dict[str, int]) -> None:
    """Until one more progression is in items."""
    while (await client.migration.status(limit=0)).phases["items"] <= before["items"]:
        pass
