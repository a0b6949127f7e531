"""A store that is moved under a daemon: nobody opens it for writing by its other name."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
from pathlib import Path

import pytest

from lionstate import StateClient
from tests.e2e.conftest import Daemons, lionstate, lionstated

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(180)]

MIGRATE = "progression-migrate"


async def test_its_other_name_is_refused_and_back_in_place_it_goes_on(daemons: Daemons, folder: Path) -> None:
    """Two write-ahead logs of one file destroyed it; with a link in the old place and without."""
    path, moved = folder / "s.db", folder / "e.db"
    daemon = daemons(path)
    ids = [f"m{number}" for number in range(200)]
    async with StateClient(daemon.target) as client:
        await client.create_progression("p", ids)
        path.rename(moved)
        path.symlink_to(moved)
        commands = [
            lambda: lionstate(MIGRATE, "step", "--until-done", "--url", moved),
            lambda: lionstate(MIGRATE, "pause", "--url", path),
            lambda: lionstate("vacuum", "--url", moved),
            lambda: lionstated("--database-url", moved, "--listen-ops", "127.0.0.1:0"),
        ]
        for command in commands:
            done = await asyncio.to_thread(command)
            assert (4, "") == (done.returncode, done.stdout), done.stderr
            assert f"process {daemon.process.pid} has this very file open under another name" in done.stderr
        assert ["e.db"] == [name for name in os.listdir(folder) if name.startswith("e.db")]
        done = await asyncio.to_thread(lionstate, "doctor", "--url", moved, COLUMNS="200")
        assert f"process {daemon.process.pid} has the file open under another name" in done.stdout
        assert 0 != done.returncode
        path.unlink()
        moved.rename(path)
        ids.append("after")
        await client.append_to_progression("p", "after")
        assert ids == await client.get_progression("p")
    assert 0 == daemon.stop()
    with contextlib.closing(sqlite3.connect(path)) as conn:
        assert [("ok",)] == conn.execute("PRAGMA integrity_check").fetchall()
