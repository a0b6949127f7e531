"""The status page as a browser shows it at three moments, on a phone and a desk, light and dark.

The pictures are kept in `var/screenshots`. The hour before is made up, since no test has one; all else is a daemon's
own.
"""

from __future__ import annotations

import json
import math
import random
import sqlite3
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest

from lionstated.assembly import assemble
from lionstated.history import SLOT_SECONDS, SLOTS, History
from lionstated.process import Daemon
from tests.daemon.fakes import settings_for
from tests.support.browser import Page, chromium_page

pytestmark = [pytest.mark.anyio, pytest.mark.browser]

PICTURES = Path(__file__).parents[2] / "var" / "screenshots"
SECRET = "secret-id"
LOOKS = [(width, dark) for width in (390, 1180) for dark in (False, True)]


def past_hour(frames: int) -> History:
    """An hour of a store under load, which ends now."""
    ago = [float((SLOTS - 1) * SLOT_SECONDS)]
    history, dice = History(lambda: time.monotonic() - ago[0]), random.Random(7)
    while ago[0] > 0:
        place = 1 - ago[0] / SLOTS / SLOT_SECONDS
        load = 0.004 + 0.003 * math.sin(place * 19) + (0.02 if 0.55 < place < 0.62 else 0)
        for _ in range(40):
            history.lock_wait(dice.lognormvariate(math.log(load), 0.5))
        history.wal(
            int(frames * (0.25 + 0.2 * math.sin(place * 60) + 0.5 * max(0.0, place - 0.7) + dice.random() * 0.1))
        )
        ago[0] -= SLOT_SECONDS
    ago[0] = 0.0
    return history


@asynccontextmanager
async def serving(folder: Path, frames: int, **flags: str) -> AsyncIterator[Daemon]:
    """A daemon with a real store and an hour behind it."""
    settings = settings_for(folder, database__sqlite_module="stdlib", maintenance__interval_seconds="0.02", **flags)
    parts = assemble()
    daemon = Daemon(settings, operations=parts.operations, store_factory=parts.store_factory)
    daemon.metrics.history = daemon.board.history = past_hour(frames)
    async with anyio.create_task_group() as group:
        await group.start(daemon.run)
        try:
            yield daemon
        finally:
            if not daemon._stop.is_set():
                daemon.stop()


async def put(daemon: Daemon, values: list[str]) -> None:
    """Progressions of these JSON texts, as a program from before lionstate left them."""
    rows = [(f"{SECRET}-{place:02}", text) for place, text in enumerate(values)]

    def script(conn: Any) -> None:
        for row in rows:
            conn.exec_driver_sql("INSERT INTO progressions (id, created_at, collection) VALUES (?, 0, ?)", row)

    await daemon._parts.store.write("put", script)  # type: ignore[union-attr]


def ids(count: int) -> str:
    return json.dumps([f"{SECRET}-m{place:06}" for place in range(count)])


async def migrate(daemon: Daemon) -> None:
    await daemon._parts.verbs["maintenance-enabled"].call(True)  # type: ignore[union-attr]


async def keep(page: Page, moment: str) -> None:
    """Take the pictures, and look at what every moment has to keep to."""
    for width, dark in LOOKS:
        await page.look(width=width, dark=dark)
        await page.picture(
            PICTURES / f"{moment}-{'phone' if width < 600 else 'desk'}-{'dark' if dark else 'light'}.png"
        )
        assert await page.evaluate("document.documentElement.scrollWidth <= innerWidth"), f"{moment} overflows {width}"
    assert SECRET not in await page.evaluate("document.documentElement.outerHTML")
    assert [] == page.complaints


async def test_idle_by_keyboard_and_then_gone(folder: Path) -> None:
    """A store at rest; every control is reached by keyboard; the page says when nobody answers any more."""
    async with serving(folder, 900) as daemon, chromium_page() as page:
        await put(daemon, [])
        for number in range(20):
            params = {
                "progression_id": f"{SECRET}-{number}",
                "collection": [f"{SECRET}-m{place}" for place in range(50)],
            }
            await daemon._parts.store.run(assemble().operations["create_progression"], params)  # type: ignore[union-attr]
        await page.open(daemon.addresses["ops"])
        await page.until("document.querySelector('h1').textContent === 'All 20 progressions are in rows'")
        await keep(page, "idle")

        await page.evaluate("document.body.focus()")
        seen = []
        for _ in range(4):
            await page.press("Tab")
            seen.append(await page.evaluate("document.activeElement.id || document.activeElement.className"))
        assert ["skip", "hold", "lock", "wal"] == seen
        await page.press("ArrowLeft")
        assert "10 s ago: " in await page.evaluate("document.querySelector('#wal .read').textContent")
        await page.evaluate("document.getElementById('hold').focus()")
        await page.press("Enter")
        assert "true" == await page.evaluate("document.getElementById('hold').getAttribute('aria-pressed')")
        assert (await page.evaluate("document.getElementById('fresh').textContent")).startswith("held, as of")
        await page.press("Enter")
        await page.until("document.getElementById('fresh').textContent.startsWith('live')")

        # PostgreSQL has no such log: its plot goes, and the other one takes the room.
        own = daemon.board.sources
        daemon.board.sources = replace(own, database="PostgreSQL")
        daemon.board.history = History()
        await page.until("document.getElementById('wal-card').hidden")
        assert await page.evaluate("document.getElementById('lock').clientWidth > innerWidth * 0.8")

        daemon.board.sources = own
        await page.until("document.getElementById('facts').textContent.includes('SQLite 3.')")

        daemon.stop()
        await page.until("!document.getElementById('gone').hidden")
        # What was known last stays, marked as old, the database's name with its signals.
        assert "SQLite 3." in await page.evaluate("document.getElementById('facts').textContent")
        assert "The daemon does not answer." in await page.evaluate("document.getElementById('gone').textContent")
        await page.picture(PICTURES / "gone-desk-dark.png")


async def test_migrating_and_throttled(folder: Path) -> None:
    """A reader keeps the log from being moved: migration waits in the middle of the third progression of twenty."""
    flags = {"storage__lionagi_compatible": "true", "maintenance__wal_frames_limit": "1200"}
    async with serving(folder, 1500, **flags) as daemon, chromium_page() as page:
        await put(daemon, [ids(1_000), ids(2_000), *[ids(100_000)] * 18])
        await page.open(daemon.addresses["ops"])
        await page.until("document.querySelector('h1').textContent === 'Migration is off'")
        with sqlite3.connect(folder / "state.db", isolation_level=None) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM schema_meta").fetchall()
            await migrate(daemon)
            await page.until("document.querySelector('h1').textContent === 'Migration waits for the store'")
            await page.until("document.querySelector('#under strong') !== null")
            told = await page.evaluate("document.getElementById('under').innerText")
            assert "progression 3 of 20, 100,000 ids" in told
            first = await page.evaluate("document.querySelector('#rows tr.tripped').innerText")
            assert "WAL frames" in first
            assert "1,200" in first
            await keep(page, "throttled")
        reader.close()


async def test_blocked(folder: Path) -> None:
    """Progressions that may not be migrated are counted by code; the others are moved."""
    async with serving(folder, 900, storage__lionagi_compatible="true") as daemon, chromium_page() as page:
        bad = ['["a", 1]', '["a", 2]', '{"a": 1}', "[1, 2"]
        await put(daemon, [*bad, *[ids(3_000)] * 16])
        await migrate(daemon)
        await page.open(daemon.addresses["ops"])
        await page.until("document.querySelector('h1').textContent === '4 progressions are blocked'")
        await page.until("document.querySelector('#legend li:nth-child(1) b').textContent === '16'")
        assert "non_string" in await page.evaluate("document.getElementById('blocked').innerText")
        await keep(page, "blocked")
