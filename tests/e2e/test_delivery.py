"""Delivery over the death of the daemon: at least once."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import pytest

from lionstate import StateClient
from tests.e2e.conftest import Daemons
from tests.support.eventually import eventually

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]

# Notes the attempt; the first one of a dispatch never ends.
_COMMAND = """
import json, os, pathlib, sys, time
payload = json.load(sys.stdin)
calls = pathlib.Path(sys.argv[1])
attempt = os.environ["LIONSTATE_DISPATCH_ATTEMPT"]
(calls / (payload["dispatch_id"] + "." + attempt)).write_text(str(os.getpid()))
if attempt == "1" and payload["body"]["hang"]:
    time.sleep(60)
"""


async def test_what_a_killed_daemon_was_delivering_is_delivered_again(
    daemons: Daemons, store_url: str, folder: Path
) -> None:
    calls = folder / "calls"
    calls.mkdir()
    flags = {
        "delivery__enabled": "true",
        "delivery__command": json.dumps([sys.executable, "-c", _COMMAND, str(calls)]),
        "delivery__timeout_seconds": "3",
        "delivery__kill_seconds": "0.1",
        "delivery__interval_seconds": "0.1",
    }
    daemon = daemons(store_url, **flags)
    async with StateClient(daemon.target) as client:
        hanging = await client.enqueue_dispatch(kind="k", deliver_to="d", body={"hang": True})
        await eventually(lambda: (calls / f"{hanging}.1").exists() and (calls / f"{hanging}.1").read_text())
    daemon.kill()
    os.kill(int((calls / f"{hanging}.1").read_text()), signal.SIGKILL)
    daemon = daemons(store_url, **flags)
    async with StateClient(daemon.target) as client:
        row = await client.get_dispatch(hanging)
        assert row is not None and ("delivering", 1) == (row["status"], row["attempt"])
        quick = await client.enqueue_dispatch(kind="k", deliver_to="d", body={"hang": False})

        async def both() -> bool:
            return 2 == await client.count_dispatches(status="delivered")

        await eventually(both, seconds=60)
        rows = [await client.get_dispatch(found) for found in (hanging, quick)]
        assert [2, 1] == [row["attempt"] for row in rows if row is not None]
    assert {f"{hanging}.1", f"{hanging}.2", f"{quick}.1"} == {file.name for file in calls.iterdir()}
