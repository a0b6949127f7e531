"""Scrapes and looks at the status page during a migration, seen from the store: none of them touches it."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import pytest

from lionstate.engine.threads import WorkerThread
from lionstated import process
from lionstated.assembly import assemble
from lionstated.process import Daemon
from tests.daemon.fakes import settings_for

pytestmark = pytest.mark.anyio

_scraping: ContextVar[bool] = ContextVar("_scraping", default=False)


async def test_a_thousand_scrapes_touch_nothing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Issue A; fault 65. Whatever a scrape starts, in any task, would carry its mark to a thread of the store."""
    touched: list[bool] = []
    real_submit, real_app = WorkerThread.submit, process.operations_app

    def submit(self: WorkerThread, work: Any, after: Any = None) -> Any:
        touched.append(_scraping.get())
        return real_submit(self, work, after)

    def marked(*args: Any) -> Any:
        app = real_app(*args)

        async def call(scope: Any, receive: Any, send: Any) -> None:
            _scraping.set(True)
            if scope["path"] == "/touch":
                await daemon._parts.store.read(lambda conn: None)  # type: ignore[union-attr]
            await app(scope, receive, send)

        return call

    monkeypatch.setattr(WorkerThread, "submit", submit)
    monkeypatch.setattr(process, "operations_app", marked)
    settings = settings_for(
        folder,
        storage__lionagi_compatible="true",
        database__sqlite_module="stdlib",
        maintenance__enabled="true",
        maintenance__interval_seconds="0.01",
        maintenance__chunks_per_tick="1",
    )
    parts = assemble()
    daemon = Daemon(settings, operations=parts.operations, store_factory=parts.store_factory)
    async with anyio.create_task_group() as group:
        await group.start(daemon.run)
        service = aiohttp.ClientSession("http://d", connector=aiohttp.UnixConnector(str(folder / "d.sock")))
        async with service, aiohttp.ClientSession(daemon.addresses["ops"]) as ops:
            for number in range(10):
                body = {"progression_id": f"p{number}", "collection": [f"m{place}" for place in range(1_500)]}
                assert (await service.post("/v1/ops/create_progression", json=body)).status == 200
            touched.clear()
            paths = [*["/metrics"] * 8, "/status.json", "/"]
            for _ in range(100):
                found = await asyncio.gather(*map(ops.get, paths))
                assert [200] * 10 == [response.status for response in found]
                await asyncio.gather(*(response.read() for response in found))
            text = await (await ops.get("/metrics")).text()
            lines = [line for line in text.splitlines() if line.startswith("lionstate_pool_connections{")]
            assert 2 <= sum(float(line.split()[-1]) for line in lines), "the writer's and a reader's"
            assert touched.count(True) == 0
            assert touched.count(False) > 50, "the migration ran meanwhile"
            # The mark does reach the store when a handler looks at it.
            await ops.get("/touch")
            assert touched.count(True) == 1
        daemon.stop()
