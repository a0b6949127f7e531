"""``lionstate sessions``, ``show-session``, ``stats``, ``checkpoint``, ``vacuum``: directly and through a daemon."""

from __future__ import annotations

import asyncio
import json
import os
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lionstate import StateClient, StateDB
from lionstate.cli import tables
from lionstate.cli.commands import main
from tests.e2e.conftest import Daemons
from tests.support.conversations import message

pytestmark = pytest.mark.timeout(120)

Command = Callable[..., str]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    """Runs one command in this process; its output."""

    def command(*words: str, code: int = 0) -> str:
        monkeypatch.setattr(sys, "argv", ["lionstate", *words])
        ended = main()
        out, err = capsys.readouterr()
        assert code == ended, (words, out, err)
        return out + err

    return command


@pytest.fixture(params=["daemon-sqlite", "store-sqlite", "daemon-postgresql", "store-postgresql"])
def where(request: pytest.FixtureRequest, folder: Path, daemons: Daemons) -> Iterator[list[str]]:
    """The options that name a store with two running sessions, one of them idle since long ago."""
    way, database = request.param.split("-")
    url = str(folder / "state.db")
    if database == "postgresql":
        from tests.support.backends import database_of

        url = database_of(request.getfixturevalue("postgres_18"), f"clistore_{os.getpid()}_{time.monotonic_ns()}")
    daemon = daemons(url, storage__normalized="true")
    asyncio.run(_fill(daemon.target))
    if way == "store":
        daemon.stop()
    yield ["--daemon", daemon.target] if way == "daemon" else ["--url", url]


async def _fill(target: str) -> None:
    async with StateClient(target) as client:
        for name in ("old", "new"):
            await client.create_progression(f"p-{name}", [])
            await client.create_progression(f"b-{name}", [])
            await client.create_session(
                {
                    "id": name,
                    "name": f"[bold]{name}",
                    "progression_id": f"p-{name}",
                    "status": "running",
                    "created_at": 1.0,
                    "started_at": 1.0,
                    "updated_at": 1.0,
                }
            )
            await client.create_branch({"id": f"br-{name}", "session_id": name, "progression_id": f"b-{name}"})
        await client.create_schedule(
            {"id": "x", "name": "nightly", "trigger_type": "interval", "interval_sec": 60, "action_kind": "agent"}
        )
        for number, status in enumerate(("failed", "failed", "running")):
            await client.create_schedule_run(
                {
                    "id": f"run-{number}",
                    "schedule_id": "x",
                    "trigger_context": {},
                    "action_kind": "agent",
                    "action_args": {},
                    "fired_at": float(number),
                    "status": status,
                }
            )
        await client.enqueue_dispatch(kind="note", deliver_to="someone", body={"text": "secret payload"})
        for number in range(3):
            await client.record_message(
                message(f"m{number}", content={"text": f"[red]hello {number}"}, role="user"),
                session_id="new",
                branch_progression_id="b-new",
                session_progression_id="p-new",
            )


def test_text_with_half_a_character_is_shown(run: Command, folder: Path, daemons: Daemons) -> None:
    """Directly and through a daemon: a replacement in a table, an escape in JSON."""
    url, odd = str(folder / "state.db"), "half \ud83d"

    async def fill() -> None:
        async with StateDB(url) as state:
            await state.create_progression("p")
            await state.create_session(
                {"id": "s", "progression_id": "p", "status": "running", "node_metadata": {odd: 1}}
            )
            await state.insert_messages([message("m", content={"text": odd, odd: 1e300})], progression_ids=["p"])

    asyncio.run(fill())
    for name in ("--url", "--daemon"):
        where = [name, url if name == "--url" else daemons(url).target]
        assert "1 of 1 sessions" in run("sessions", *where)
        out = run("show-session", "s", *where)
        assert 2 <= out.count("half \\ud83d") + out.count("half \ufffd") and "\ud83d" not in out
        found = json.loads(run("show-session", "s", "--json", *where))
        assert ({odd: 1}, odd) == (found["session"]["node_metadata"], found["last_messages"][0]["content"]["text"])


def test_sessions_are_listed(run: Command, where: list[str]) -> None:
    out = run("sessions", *where)
    # Text of the store is text: nothing of it is taken for markup.
    assert "[bold]old" in out and "2 of 2 sessions" in out
    found = json.loads(run("sessions", "--json", *where))
    assert 2 == found["total"]
    assert [("new", 1, 3), ("old", 1, 0)] == [
        (row["id"], row["branches"], row["messages"]) for row in found["sessions"]
    ]
    assert {"sessions": [], "total": 0} == json.loads(run("sessions", "--status", "failed", "--json", *where))
    assert "1 to 1000" in run("sessions", "--limit", "0", *where, code=2)
    for listed, known in (("sessions", "timed_out"), ("dispatches", "dead_letter")):
        assert known in run(listed, "--status", "typo", *where, code=2)


def test_one_session_is_shown(run: Command, where: list[str]) -> None:
    out = run("show-session", "new", "--messages", "2", *where)
    assert "[red]hello 2" in out and "[red]hello 1" in out and "hello 0" not in out
    found = json.loads(run("show-session", "new", "--json", *where))
    assert (3, ["m0", "m1", "m2"]) == (found["messages"], [one["id"] for one in found["last_messages"]])
    assert [{"id": "br-new", "name": None, "messages": 3}] == found["branches"]
    assert [(None, "running")] == [(row["previous_status"], row["status"]) for row in found["status_history"]]
    assert [] == json.loads(run("show-session", "new", "--messages", "0", "--json", *where))["last_messages"]
    assert "no such session" in run("show-session", "nope", *where, code=4)


def test_idle_sessions_are_swept(run: Command, where: list[str]) -> None:
    sweep = ("sessions", "sweep", "--json", *where)
    found = json.loads(run(*sweep, "--dry-run"))
    assert {"running": 2, "swept": ["old"], "new_status": "aborted", "dry_run": True} == found
    assert 2 == json.loads(run("sessions", "--status", "running", "--json", *where))["total"]
    assert ["old"] == json.loads(run(*sweep, "--new-status", "failed"))["swept"]
    assert {"running": 1, "swept": []}.items() <= json.loads(run(*sweep)).items()
    (change, _) = json.loads(run("show-session", "old", "--json", *where))["status_history"]
    assert ("running", "failed", "session.stale.no_heartbeat") == (
        change["previous_status"],
        change["status"],
        change["reason_code"],
    )
    assert "hours above 0" in run("sessions", "sweep", "--stale-hours", "0", *where, code=2)
    assert "aborted or failed" in run("sessions", "sweep", "--new-status", "completed", *where, code=2)


def test_the_store_is_counted(run: Command, where: list[str]) -> None:
    found = json.loads(run("stats", "--json", *where))
    rows = found["rows"]
    assert (2, 2, 3, 6) == (rows["sessions"], rows["branches"], rows["messages"], rows["progression_items"])
    assert ({"running": 2}, {"user": 3}) == (found["sessions_by_status"], found["messages_by_role"])
    assert 4 == found["phases"]["items"]
    assert 0 < found["bytes"]
    assert "progression_items" in run("stats", *where)


def test_schedules_are_listed(run: Command, where: list[str]) -> None:
    (schedule,) = json.loads(run("schedules", "--json", *where))["schedules"]
    assert ("nightly", 1) == (schedule["name"], schedule["enabled"])
    runs = {name: schedule[name] for name in ("finished", "running", "last_status", "failed_in_a_row")}
    assert {"finished": 2, "running": 1, "last_status": "running", "failed_in_a_row": 2} == runs
    headings, row, _ = run("schedules", "--enabled", *where).splitlines()
    assert ["finished", "running", "last", "status", "failed", "in", "a", "row"] == headings.split()[-8:]
    assert ["2", "1", "running", "2"] == row.split()[-4:]
    assert {"schedules": []} == json.loads(run("schedules", "--disabled", "--json", *where))


def test_dispatches_are_listed_retried_and_purged(run: Command, where: list[str]) -> None:
    found = json.loads(run("dispatches", "--json", *where))
    (dispatch,) = found["dispatches"]
    assert (1, "note", "pending") == (found["total"], dispatch["kind"], dispatch["status"])
    assert "secret payload" not in run("dispatches", *where)
    assert "1 of 1 dispatches" in run("dispatches", "--status", "pending", *where)
    run("dispatches", "retry", dispatch["id"], *where, code=2)
    run("dispatches", "retry", "nope", *where, code=4)
    run("dispatches", "purge", *where, code=2)
    purge = ("dispatches", "purge", "--status", "pending", "--json", *where)
    assert {"purged": 1, "dry_run": True} == json.loads(run(*purge, "--dry-run"))
    assert {"purged": 1, "dry_run": False} == json.loads(run(*purge))
    assert {"purged": 0, "dry_run": False} == json.loads(run(*purge))


def test_checkpoint_and_vacuum_are_for_a_store_alone(run: Command, where: list[str]) -> None:
    if where[0] == "--daemon":
        return
    if where[1].startswith("postgresql"):
        assert "nothing to do" in run("checkpoint", *where, code=7)
        assert "nothing to do" in run("vacuum", *where, code=7)
        return
    assert {"mode": "TRUNCATE", "busy": 0} == {
        name: value
        for name, value in json.loads(run("checkpoint", "--json", *where)).items()
        if name in ("mode", "busy")
    }
    with sqlite3.connect(where[1]) as other:
        other.execute("CREATE TABLE filler (x)")
        other.execute("INSERT INTO filler VALUES (zeroblob(2000000))")
        other.execute("DROP TABLE filler")
    other.close()
    found = json.loads(run("vacuum", "--json", *where))
    assert found["bytes_after"] < found["bytes_before"] - 1_500_000
    assert "PASSIVE, FULL" in run("checkpoint", "--mode", "BEST", *where, code=2)


def test_they_are_refused_while_a_daemon_owns_the_store(run: Command, folder: Path, daemons: Daemons) -> None:
    daemons(str(folder / "state.db"))
    for verb in ("checkpoint", "vacuum"):
        assert "store is owned by process" in run(verb, "--url", str(folder / "state.db"), code=10)


@pytest.mark.parametrize(
    ("value", "expected"), [(None, "-"), ({"a": 1}, '{"a":1}'), ("a\nb", "a b"), ("x" * 81, "x" * 79 + "…")]
)
def test_a_cell(value: Any, expected: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert expected == tables.cell("content", value)


def test_a_pipe_gets_every_row_whole(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the terminal's width was; one line a row."""
    monkeypatch.setenv("COLUMNS", "80")
    long = "x" * 300
    tables.print_rows([[long, long]], ("a", "b"))
    tables.print_facts({"name": long})
    tables.note(long)
    heading, row, fact, note = capsys.readouterr().out.splitlines()
    assert ["a", "b"] == heading.split()
    assert [long, long] == row.split()
    assert ["name", long] == fact.split()
    assert long == note


@pytest.mark.parametrize(
    ("count", "expected"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (5 * 2**40, "5.0 TiB")]
)
def test_a_size(count: int, expected: str) -> None:
    assert expected == tables.size(count)
