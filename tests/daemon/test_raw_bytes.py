"""Bytes that are no requests: refused or answered, never with a defect of ours."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import aiohttp
import pytest

from tests.daemon.conftest import Serving
from tests.support.raw_bytes import broken_requests, send_raw

pytestmark = pytest.mark.anyio


async def test_noise_is_refused_and_the_daemon_serves_on(
    serving: Serving, folder: Path, http: aiohttp.ClientSession
) -> None:
    async with serving(listen__header_seconds="0.2", listen__transfer_seconds="0.2", listen__idle_seconds="1"):
        answers = await asyncio.gather(*(send_raw(folder / "d.sock", data) for data in broken_requests(300, seed=7)))
        statuses = {int(found) for answer in answers for found in re.findall(rb"HTTP/1\.1 (\d{3})", answer)}
        assert 200 == (await http.get("/v1/progressions/p")).status
    assert not [status for status in statuses if status >= 500], statuses
    assert {200, 400, 404} <= statuses
