"""``lionstate copy``, ``backup``, ``restore`` and ``prune`` as commands: output, exit codes, store and daemon."""

from __future__ import annotations

import asyncio
import contextlib
import json
import sqlite3
from pathlib import Path

import pytest

from lionstate import StateClient
from tests.demo.processes import DaemonProcess
from tests.e2e.conftest import Daemons, daemons, folder, lionstate

__all__ = ["daemons", "folder"]

pytestmark = pytest.mark.timeout(180)


def _filled(daemons: Daemons, folder: Path) -> tuple[Path, DaemonProcess]:
    """A store with one old session, and the daemon that serves it."""
    store = folder / "state.db"
    daemon = daemons(store)

    async def fill() -> None:
        async with StateClient(daemon.target) as state:
            for name, status in (("old", "completed"), ("run", "running")):
                await state.create_progression(f"p-{name}", [])
                row = {"id": name, "progression_id": f"p-{name}", "status": status, "created_at": 1.0}
                await state.create_session({**row, "updated_at": 2.0})
                await state.insert_message({"id": f"m-{name}", "created_at": 1.0, "role": "user", "content": {}})
                await state.append_to_progression(f"p-{name}", f"m-{name}")

    asyncio.run(fill())
    return store, daemon


def test_prune_through_a_daemon_and_on_a_store(daemons: Daemons, folder: Path) -> None:
    """A dry run changes nothing and prints what the run then deletes."""
    store, daemon = _filled(daemons, folder)
    expected = {"sessions": 1, "branches": 0, "progressions": 1, "messages": 1, "unreadable": []}

    def dry(*where: str | Path) -> None:
        found = lionstate("prune", *where, "--keep-days", "0", "--dry-run", "--json")
        assert {**expected, "dry_run": True} == json.loads(found.stdout or "{}"), found.stderr

    dry("--daemon", daemon.target)
    daemon.stop()
    dry("--url", store)
    text = lionstate("prune", "--url", store, "--keep-days", "0")
    assert "deleted 1 sessions, 0 branches, 1 progressions, 1 messages\n" == text.stdout
    with contextlib.closing(sqlite3.connect(store)) as conn:
        assert [("prune_sessions", "lionstate prune")] == conn.execute(
            "SELECT action, actor FROM admin_events"
        ).fetchall()
    assert 2 == lionstate("prune", "--url", store, "--keep-days", "-1").returncode
    assert 4 == lionstate("prune", "--url", folder / "none.db").returncode


def test_backup_beside_a_daemon_and_copy_without(daemons: Daemons, folder: Path) -> None:
    """What a daemon owns can be backed up, and neither copied nor overwritten."""
    store, _ = _filled(daemons, folder)
    taken = folder / "taken"
    done = lionstate("backup", "--url", store, "--to", taken, "--json")
    assert 0 == done.returncode, done.stderr
    assert 2 == json.loads(done.stdout)["tables"]["messages"][0]
    assert 10 == lionstate("restore", "--from", taken, "--url", store, "--force").returncode
    refused = lionstate("copy", "--from", store, "--to", folder / "copy.db")
    assert (10, 1) == (refused.returncode, len(refused.stderr.strip().splitlines()))
    restored = folder / "restored.db"
    assert 0 == lionstate("restore", "--from", taken, "--url", restored).returncode
    copied = lionstate("copy", "--from", restored, "--to", folder / "copy.db", "--json")
    assert 0 == copied.returncode, copied.stderr
    report = json.loads(copied.stdout)
    assert report["rows"] == report["copied_rows"] == sum(table["rows"] for table in report["tables"])
    again = lionstate("copy", "--from", restored, "--to", folder / "copy.db")
    assert (0, True) == (again.returncode, "nothing was written" in again.stdout)
    assert 3 == lionstate("copy", "--from", folder / "copy.db", "--to", restored).returncode
    assert 2 == lionstate("copy", "--from", restored, "--to", restored).returncode
    with sqlite3.connect(folder / "copy.db") as connection:
        assert [("m-old",), ("m-run",)] == connection.execute("SELECT id FROM messages ORDER BY id").fetchall()
    connection.close()
