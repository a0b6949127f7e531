"""A store of an older release keeps no history of statuses: that is said, and reading it creates no table."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from lionstate import StateDB
from tests.support.scheduling import schedule


async def test_a_store_without_a_history_says_so(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    async with StateDB(path) as state:
        await state.create_schedule(schedule("a"))
    with sqlite3.connect(path) as conn:
        conn.executescript("DROP TABLE status_transitions")
    conn.close()
    async with StateDB(path, readonly=True) as state:
        assert {"available": False, "events": []} == await state.get_schedule_history("a")
        assert "a" == (await state.list_schedules())[0]["id"]
