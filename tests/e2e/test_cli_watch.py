"""``status --watch``: lines for a pipe, a picture for a terminal, and a quiet end."""

from __future__ import annotations

import asyncio
import json
import os
import pty
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from lionstate import StateDB
from tests.e2e.conftest import LIONSTATE, Daemons, clean_environment, lionstate

pytestmark = pytest.mark.timeout(120)


async def make(path: Path, *, moved: bool) -> None:
    async with StateDB(path, normalized=False) as state:
        await state.create_progression("p", [f"m{number}" for number in range(1_200)])
        await state.migration.step(max_items=10_000 if moved else 500, max_seconds=60)


def test_it_ends_by_itself_when_everything_is_moved(folder: Path, daemons: Daemons) -> None:
    """A line, or an object, for each look; through a daemon and on the file."""
    path = folder / "state.db"
    asyncio.run(make(path, moved=True))
    watch = ["progression-migrate", "status", "--watch", "--interval", "0.1"]
    plain = lionstate(*watch, "--url", path)
    assert (0, "") == (plain.returncode, plain.stderr)
    (line,) = plain.stdout.splitlines()
    assert "json 0 dual 0 items 1 blocked 0 done: 100.0 %" in line
    daemon = daemons(str(path))
    found = lionstate(*watch, "--json", "--daemon", daemon.target)
    (line,) = found.stdout.splitlines()
    assert (1.0, "done") == (lambda one: (one["fraction"], one["activity"]))(json.loads(line)["progress"])
    assert 2 == lionstate(*watch[:-1], "0", "--url", path).returncode


def test_a_terminal_gets_a_picture_until_ctrl_c(folder: Path) -> None:
    path = folder / "state.db"
    asyncio.run(make(path, moved=False))
    ours, theirs = pty.openpty()
    command = [LIONSTATE, "progression-migrate", "status", "--watch", "--interval", "0.1", "--url", str(path)]
    options: dict[str, Any] = {"stdout": theirs, "stderr": subprocess.PIPE, "env": clean_environment(TERM="xterm")}
    with subprocess.Popen(command, **options) as process:
        os.close(theirs)
        seen = b""
        while seen.count(b"500 of 1,200") < 3:
            seen += os.read(ours, 65_536)
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=60)
    os.close(ours)
    assert (130, b"lionstate: interrupted\n") == (process.returncode, told)
    assert b"items still" not in seen and b"time left: unknown" in seen


def test_a_look_before_the_migration(folder: Path, daemons: Daemons) -> None:
    """``plan`` and ``rehearse`` on a file and beside the daemon that owns it; PostgreSQL wants a target."""
    path = folder / "state.db"
    asyncio.run(make(path, moved=False))
    verb = ["progression-migrate"]
    fresh = lionstate(*verb, "rehearse", "--url", path, "--json")
    assert (0, "") == (fresh.returncode, fresh.stderr)
    assert {"json": 0, "dual": 0, "items": 1, "blocked": 0} == json.loads(fresh.stdout)["phases"]
    daemon = daemons(str(path))
    for where in (["--url", str(path)], ["--daemon", daemon.target]):
        told = lionstate(*verb, "rehearse", *where)
        assert (0, "") == (told.returncode, told.stderr)
        assert "digests of both representations: 1 match" in told.stdout and "the copy was removed" in told.stdout
    assert "p            copy" in lionstate(*verb, "plan", "--daemon", daemon.target).stdout
    found = json.loads(lionstate(*verb, "plan", "--json", "--daemon", daemon.target).stdout)
    assert (1, 700, None) == (found["left"], found["items"], found["chunks"])
    for refused in (
        lionstate(*verb, "rehearse", "--url", "postgresql://nobody@127.0.0.1:1/none"),
        lionstate(*verb, "rehearse", "--daemon", daemon.target, "--keep", folder / "kept.db"),
        lionstate(*verb, "rehearse"),
    ):
        assert (2, "", 1) == (refused.returncode, refused.stdout, len(refused.stderr.splitlines()))
