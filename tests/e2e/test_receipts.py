"""``kill -9`` of the daemon between a COMMIT and its answer, and the same call again (design decision 39)."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from lionstate import StateClient
from tests.demo.processes import DaemonProcess
from tests.e2e.conftest import Daemons

pytestmark = pytest.mark.anyio
TASK: dict[str, Any] = {"action_kind": "agent", "args": {}, "execution_target": "host"}


async def _answer_on_the_way(daemon: DaemonProcess, key: str) -> Any:
    """What the daemon answers; the caller never hears of it."""
    reader, writer = await asyncio.open_unix_connection(str(daemon.socket))
    body = json.dumps(TASK)
    writer.write(
        f"POST /v1/ops/submit_task HTTP/1.1\r\nhost: d\r\ncontent-type: application/json\r\nidempotency-key: {key}\r\n"
        f"content-length: {len(body)}\r\n\r\n{body}".encode()
    )
    head = await reader.readuntil(b"\r\n\r\n")
    length = next(line for line in head.decode().lower().split("\r\n") if line.startswith("content-length:"))
    answer = json.loads(await reader.readexactly(int(length.partition(":")[2])))
    daemon.kill()
    writer.close()
    return answer


async def test_a_write_survives_the_kill_and_happens_once(daemons: Daemons, store_url: str) -> None:
    """fault 34: killed after COMMIT, the answer lost; the retry finds the receipt."""
    first = await _answer_on_the_way(daemons(store_url), "k")
    async with StateClient(daemons(store_url).target) as client:
        assert first == await client.with_key("k").submit_task(**TASK)
        assert 1 == await client.count_tasks()
