"""``lionstate progression-migrate`` against a daemon and against a store: output, exit codes, Ctrl-C."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import pwd
import re
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from lionstate import StateClient
from lionstate.cli.commands import main
from tests.demo.processes import DaemonProcess
from tests.e2e.conftest import LIONSTATE, Daemons, clean_environment, idle_control, lionstate
from tests.e2e.test_refused_starts import contents
from tests.support.lionagi_store import FIXTURE, copy_to_postgresql

pytestmark = pytest.mark.timeout(180)

VERBS = ("status", "step", "verify p", "compat-read --all --enable", "pause", "resume", "enable", "disable")


class Shell:
    """Runs commands of ``progression-migrate`` in this process, which is a great deal faster than a new one."""

    def __init__(self, where: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
        self.where = where
        self.url = ""
        self._capsys = capsys
        self._monkeypatch = monkeypatch

    def __call__(self, line: str, *, code: int = 0) -> str:
        """Run one verb; its output."""
        self._monkeypatch.setattr(sys, "argv", ["lionstate", "progression-migrate", *line.split(), *self.where])
        self._monkeypatch.setenv("COLUMNS", "120")
        ended = main()
        out, err = self._capsys.readouterr()
        assert code == ended, (line, out, err)
        if code in (2, 3, 4, 9, 10):
            assert out == ""
            assert len(err.strip().splitlines()) == 1, err
        return out + err

    def json(self, line: str, *, code: int = 0) -> Any:
        """The same with ``--json``: one object."""
        found = self(f"{line} --json", code=code).strip()
        assert "\n" not in found
        return json.loads(found)


@pytest.fixture(params=["daemon-sqlite", "store-sqlite", "daemon-postgresql", "store-postgresql"])
def shell(
    request: pytest.FixtureRequest,
    folder: Path,
    daemons: Daemons,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Shell]:
    """Commands on a legacy-shaped store: directly, and through a daemon whose timer is off."""
    way, database = request.param.split("-")
    url = _store(request, folder, database)
    daemon = daemons(url, storage__lionagi_compatible="true", maintenance__scrub_items_per_second="0")
    _fill(daemon, url)
    if way == "store":
        daemon.stop()
    found = Shell(["--daemon", daemon.target] if way == "daemon" else ["--url", url], capsys, monkeypatch)
    found.url = url
    yield found


def _store(request: pytest.FixtureRequest, folder: Path, database: str) -> str:
    if database == "sqlite":
        return str(folder / "state.db")
    from tests.support.backends import database_of

    return database_of(request.getfixturevalue("postgres_18"), f"cli_{os.getpid()}_{time.monotonic_ns()}")


def _fill(daemon: DaemonProcess, url: str) -> None:
    rows = {"p": json.dumps([f"m{n}" for n in range(1_200)]), "q": '["a", "b"]', "bad": '["a", '}
    statement = "INSERT INTO progressions (id, created_at, collection) VALUES (:id, 1.0, :text)"
    _execute(url, *((statement, {"id": pid, "text": value}) for pid, value in rows.items()))


def _execute(url: str, *statements: tuple[str, dict[str, Any]]) -> None:
    """Plain SQL from another process than the store's."""
    program = (
        "import asyncio, json, sqlite3, sys\n"
        "url, work = json.load(sys.stdin)\n"
        "async def pg():\n"
        "    from sqlalchemy import text\n"
        "    from sqlalchemy.ext.asyncio import create_async_engine\n"
        "    engine = create_async_engine(url)\n"
        "    async with engine.begin() as conn:\n"
        "        for sql, params in work:\n"
        "            await conn.execute(text(sql), params)\n"
        "    await engine.dispose()\n"
        "if url.startswith('postgresql'):\n"
        "    asyncio.run(pg())\n"
        "else:\n"
        "    conn = sqlite3.connect(url)\n"
        "    with conn:\n"
        "        for sql, params in work:\n"
        "            conn.execute(sql, params)\n"
        "    conn.close()\n"
    )
    subprocess.run([sys.executable, "-c", program], input=json.dumps([url, statements]), text=True, check=True)


def test_the_verbs_and_their_exit_codes(shell: Shell) -> None:
    """Design §8: 0, 4, 5, 7, 8; the pause is the first line of `status`."""
    assert shell("status").splitlines()[0] == "migration: not paused"
    found = shell.json("status")
    assert {"json": 3, "dual": 0, "items": 0, "blocked": 0} == found["phases"]
    assert found["pause"] is None
    assert "no such progression" in shell("verify nope", code=4)
    assert "no such progression" in shell("step --progression nope", code=4)
    assert "no such progression" in shell("compat-read nope --enable", code=4)
    assert "not_applicable" == shell.json("verify p", code=7)["outcome"]
    assert "nothing to compare: a progression in json" in shell("verify p", code=7)
    assert "after cutover only" in shell("compat-read p --enable", code=7)
    # One small step, then paused, then on.
    step = shell.json("step --progression p --max-items 500")
    assert ("cap_items", 500, 1) == (step["stop_reason"], step["items"], step["chunks"])
    assert "incomplete" == shell.json("verify p")["outcome"]
    shell("pause --reason lunch")
    # On the store or through a daemon: the user who runs the command.
    who = pwd.getpwuid(os.geteuid()).pw_name
    at = r"since 20\d\d-\d\d-\d\d \d\d:\d\d:\d\d"
    assert re.fullmatch(f"migration: PAUSED by {who} {at}, until resumed: lunch", shell("status").splitlines()[0])
    assert "PAUSED" in shell("step", code=5).splitlines()[0]
    assert {"paused": False, "was_paused": True} == shell.json("resume")
    assert "was not paused" in shell("resume")
    # The malformed one is blocked; everything else is done.
    assert "malformed_json" in shell("step --until-done", code=8)
    assert {"json": 0, "dual": 0, "items": 2, "blocked": 1} == shell.json("status")["phases"]
    shell("step --progression bad", code=8)
    shell("step --progression q --until-done")
    assert "match" == shell.json("verify p")["outcome"]
    assert {"progression_id": "p", "compat_read": True, "expires_at": None} == shell.json("compat-read p --enable")
    assert "compat read is on until 2040-01-31 18:00:00\n" == shell("compat-read p --enable --until 2040-01-31T18:00")
    assert re.search(r"compat_read_until +2040-01-31 18:00:00\b", shell("explain p"))
    shell("compat-read p --enable --reason plans")
    assert re.search(rf"compat_read_by +{who} *\ncompat_read_reason +plans\b", shell("explain p"))
    assert shell("compat-read --all --disable") == "compat read is off\n"
    shell("disable --reason release")
    assert re.search(f"disabled by {who} {at}: release; `lionstate progression-migrate enable`", shell("status"))
    assert {"maintenance_enabled": True} == shell.json("enable")


def test_knobs(shell: Shell) -> None:
    """Decision 26: kept in the store with who, why and until when; 2 for what is no value or no knob."""
    (before,) = shell.json("knobs get nice_ratio")["knobs"]
    assert (0.1, 0.1, None) == (before["value"], before["default"], before["actor"])
    assert "nice_ratio is 0.25" in shell("knobs set nice_ratio 0.25 --reason daytime --until 2h")
    assert re.search(r"nice_ratio +0\.25 +0\.1 +0\.01 to 1 .*daytime, until 2", shell("knobs get nice_ratio"))
    assert "0.01 to 1" in shell("knobs set nice_ratio 7", code=2)
    shell("knobs set nice_ratio much", code=2)
    for line in ("knobs set nope 1", "knobs get nope"):
        assert "hold_target_seconds" in shell(line, code=2)
    assert 0.1 == shell.json("knobs set nice_ratio default")["knob"]["value"]
    assert {"throttled": False, "starved": False} == {
        name: shell.json("status")["throttle"][name] for name in ("throttled", "starved")
    }


def test_orders_and_cutovers_by_command(shell: Shell) -> None:
    """Decision 26: persisted, with who and why in the first line of `status`; stage ready; 2, 4, 7, 8."""
    shell("hold", code=2)
    shell("hold p --all", code=2)
    shell("hold p --until yesterday", code=2)
    shell("cutover", code=2)
    shell("cutover nope", code=4)
    assert "not copied yet" in shell("cutover p", code=7)
    shell("hold --all --reason nights --until 2h")
    shell("prioritize q")
    assert "it is passed over until 2040-01-31 18:00:00\n" == shell("exclude p --until 2040-01-31T18:00")
    first = shell("status").splitlines()[0]
    assert re.search(r"BY COMMAND ONLY by \S+ since 20[^;]+ until 20[^;]+: nights; exclude 1; prioritize 1$", first), (
        first
    )
    assert {"operator": 1} == shell.json("step --until-done", code=8)["held"]
    found = shell.json("status")
    assert ({"json": 1, "dual": 1, "items": 0, "blocked": 1}, 1) == (found["phases"], found["ready"]["count"])
    assert found["orders"]["hold_all"]["reason"] == "nights"
    assert "ready for cutover: 1, the oldest proved" in shell("status")
    explained = shell("explain q")
    assert re.search(r"^prioritized by \S+ since 20.*: no reason given$", explained, re.MULTILINE)
    assert "by command, or release --all; it ends by itself at 20" in explained
    assert re.search(r"ready_since +20\d\d-\d\d-\d\d ", explained)
    assert re.search(r"size_bytes +[\d.]+ (Ki|Mi)?B\b", explained)
    assert 1 == shell.json("cutover --all-ready")["cut_over"]
    cleared = shell.json("exclude p --clear")
    assert {"excluded": False, "changed": True, "expires_at": None} == cleared
    assert "was not excluded" in shell("exclude p --clear")
    shell("step --progression p --until-done", code=7)
    assert 1 == shell.json("cutover p")["cut_over"]
    assert "already" in shell("cutover p", code=7)
    shell("cutover bad", code=8)
    assert {"was_held": True} == shell.json("release --all")
    assert "was not held" in shell("release --all")
    assert shell("status").splitlines()[0] == "migration: not paused"


def test_the_fence_and_detach(shell: Shell) -> None:
    """Decisions 21, 32: a reason is demanded; a store is left as it was, or what keeps it is named; 2, 7, 10."""
    shell("fence remove", code=2)
    assert "the fence is not installed" in shell("fence status")
    found = shell.json("fence install --reason early")
    assert (True, 0, None) == (found["installed"], found["guarded"], found["notice"])
    shell("step --progression q --until-done")
    said = shell("fence remove --reason importer")
    assert "turned off by" in said and "only the scrubber finds that" in said
    assert "only the scrubber finds that" in shell("status")
    assert shell.json("fence install")["installed"]
    # `detach` takes a store only; a daemon on the file is in the way.
    is_owned = shell.where[0] == "--daemon" and not shell.url.startswith("postgresql")
    shell.where = ["--url", shell.url]
    said = shell("detach", code=10 if is_owned else 7)
    assert is_owned or "1 progressions have left their JSON: q;" in said


@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
def test_a_look_changes_nothing(
    database: str,
    request: pytest.FixtureRequest,
    folder: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Decision 32: a store that lionstate has never written to is read without its tables; decision 19: no guesses."""
    url = _store(request, folder, database)
    if database == "sqlite":
        shutil.copyfile(FIXTURE, url)
    else:
        asyncio.run(copy_to_postgresql(FIXTURE, url))
    before = (contents(folder), _tables(url))
    shell = Shell(["--url", url], capsys, monkeypatch)
    said = shell("status")
    assert said.splitlines()[0] == "migration: not paused"
    assert "items still to copy: unknown until measured; 0 in progressions that were admitted" in said
    found = shell.json("status")
    assert {"json": 16, "dual": 0, "items": 0, "blocked": 0} == found["phases"]
    assert (None, 0) == (found["remaining_items"], found["sizes_measured"])
    (progression,) = _select(url, "SELECT max(id) FROM progressions")
    assert "not_applicable" == shell.json(f"verify {progression}", code=7)["outcome"]
    assert before == (contents(folder), _tables(url))
    # What changes something does adopt the store.
    assert "unknown until measured" in shell("step --max-items 1")
    assert "progression_items" in _tables(url)
    assert "progression_items" not in before[1]


def _tables(url: str) -> list[str]:
    names = "SELECT name FROM sqlite_master ORDER BY name"
    if url.startswith("postgresql"):
        names = (
            "SELECT tablename FROM pg_tables WHERE schemaname NOT IN ('pg_catalog', 'information_schema') ORDER BY 1"
        )
    return _select(url, names)


def _select(url: str, query: str) -> list[Any]:
    """The first column of a plain query, from outside lionstate; this process has no store open."""

    async def ask() -> list[Any]:
        engine = create_async_engine(url, poolclass=NullPool)
        async with engine.connect() as conn:
            found = list((await conn.execute(text(query))).scalars())
        await engine.dispose()
        return found

    if url.startswith("postgresql"):
        return asyncio.run(ask())
    with contextlib.closing(sqlite3.connect(f"file:{url}?mode=ro&immutable=1", uri=True)) as conn:
        return [row[0] for row in conn.execute(query)]


def test_a_mismatch(shell: Shell) -> None:
    """Design §8: 6. Another program has changed an item row."""
    shell("step --progression q --until-done")
    change = "UPDATE progression_items SET message_id = 'other' WHERE progression_id = 'q' AND ordinal = 1"
    _execute(shell.url, (change, {}))
    found = shell.json("verify q", code=6)
    assert ("mismatch", 1) == (found["outcome"], found["first_difference"])


def test_a_scrub_blocks_what_it_finds(shell: Shell) -> None:
    """Exit codes 0, 5, 6, 7; the pass is told by `status`; a verification goes on from its token."""
    assert "no whole pass yet" not in shell("status")
    shell("step --until-done", code=8)
    assert "no whole pass yet" in shell("status")
    assert ({}, 1202) == (lambda found: (found["findings"], found["items"]))(shell.json("scrub"))
    assert "last whole pass ended" in shell("status")
    assert "1000 rows compared; to go on from here: --after" in shell("verify p --token-every 0.000001")
    assert "blocked (malformed_json)" in shell.json("scrub bad", code=7)["why"]
    assert "no such progression" in shell("scrub nope", code=4)
    assert "nothing to adopt" in shell("blocked unblock bad --reason test --adopt", code=7)
    _execute(shell.url, ("DELETE FROM progression_items WHERE progression_id = 'p' AND ordinal = :at", {"at": 700}))
    assert 700 == shell.json("verify p", code=6)["first_difference"]
    cut = shell("verify p --token-every 0.000001", code=6)
    assert "rows compared, and they differ at ordinal 700 (count_mismatch so far); to go on" in cut
    shell("pause")
    assert "paused" in shell("scrub --restart", code=5)
    shell("resume")
    assert {"count_mismatch": 1} == shell.json("scrub --restart", code=6)["findings"]
    (row,) = [one for one in shell.json("blocked list")["blocked"] if one["progression_id"] == "p"]
    assert ("count_mismatch", "items", True) == (row["code"], row["authority"], row["compat_read"])
    assert {} == shell.json("scrub q")["findings"]


def test_codes_need_no_store(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["lionstate", "progression-migrate", "codes"])
    assert 0 == main()
    assert "unblock with --use json or --use items" in " ".join(capsys.readouterr().out.split())


def test_usage_errors(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Design §8: 2, 4, 9; a bare command never opens somebody's store."""
    for name in ("LIONSTATE_DATABASE__URL", "LIONSTATE_DAEMON"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("LIONAGI_STATE_DB_URL", str(folder / "theirs.db"))
    shell = Shell([], capsys, monkeypatch)
    for verb in VERBS:
        assert "no store given" in shell(verb, code=2)
    for where in (["--url", ""], ["--url", " "], ["--daemon", ""], ["--url", "", "--daemon", ""]):
        shell.where = where
        assert "no store given" in shell("status", code=2)
    shell.where = []
    monkeypatch.setenv("LIONSTATE_DATABASE__URL", "")
    assert "no store given" in shell("status", code=2)
    monkeypatch.delenv("LIONSTATE_DATABASE__URL")
    shell.where = ["--url", str(folder / "x.db")]
    assert "there is no store at" in shell("status", code=4)
    for verb in ("status", "pause"):
        for where in (str(folder), "/"):
            shell.where = ["--url", where]
            assert "the store path is a folder" in shell(verb, code=4)
    shell.where = ["--url", str(folder / "x.db")]
    assert "--enable or --disable" in shell("compat-read p", code=2)
    assert "name one progression" in shell("compat-read --enable", code=2)
    shell.where = ["--daemon", f"unix:{folder}/nobody.sock"]
    for verb in VERBS:
        assert "no daemon answers" in shell(verb, code=9)
    assert os.listdir(folder) == []


@pytest.mark.parametrize("words", ["", "progression-migrate"])
def test_no_command_at_all(words: str) -> None:
    done = lionstate(*words.split())
    assert 2 == done.returncode
    assert "Usage" in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("nope", "No such command 'nope'."),
        ("progresion-migrate", "Did you mean 'progression-migrate'?"),
        ("--bogus", "No such option: --bogus"),
        ("progression-migrate statu", "Did you mean 'status'?"),
        ("progression-migrate step --bogus", "No such option: --bogus"),
        ("progression-migrate verify", "Missing argument 'progression_id'."),
        ("progression-migrate verify a b", "unexpected extra argument"),
        ("progression-migrate pause --reason", "requires an argument"),
        ("progression-migrate step --max-items abc", "--max-items"),
    ],
)
def test_words_that_are_no_command(words: str, said: str) -> None:
    """The parser's own errors: what is wrong in one line, exit code 2."""
    done = lionstate(*words.split())
    assert (2, "", 1) == (done.returncode, done.stdout, len(done.stderr.splitlines())), done.stderr
    assert done.stderr.startswith("error: ")
    assert said in done.stderr
    assert "--help)" in done.stderr


def test_a_locked_store_is_busy(
    folder: Path, daemons: Daemons, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """fault 1: a one-shot step on a store that stays locked exits with the "locked out" code."""
    daemon = daemons(folder / "state.db", storage__lionagi_compatible="true", database__busy_timeout_ms="300")
    _fill(daemon, str(folder / "state.db"))
    foreign = sqlite3.connect(folder / "state.db", isolation_level=None)
    foreign.execute("BEGIN IMMEDIATE")
    shell = Shell(["--daemon", daemon.target], capsys, monkeypatch)
    assert "busy" in shell("step", code=5)
    assert "busy" in shell("step --until-done", code=5)
    foreign.execute("ROLLBACK")
    foreign.close()
    # What was waited for a moment ago still counts for a second or two.
    shell("step --progression q --until-done")


def test_an_owned_store_is_not_opened_from_the_side(
    folder: Path, daemons: Daemons, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Design decision 27: the daemon owns the store, its socket is elsewhere, so the command is told whom to ask."""
    daemon = daemons(folder / "state.db")
    shell = Shell(["--url", str(folder / "state.db")], capsys, monkeypatch)
    for verb in VERBS:
        said = shell(verb, code=10)
        assert f"owned by process {daemon.process.pid}" in said
        assert "--daemon" in said
    daemon.kill()
    assert {"json": 0, "dual": 0, "items": 0, "blocked": 0} == shell.json("status")["phases"]


@pytest.mark.parametrize("verb", ["step --until-done", "pause", "status"])
def test_ctrl_c(folder: Path, daemons: Daemons, verb: str) -> None:
    """fault 40: the process ends within two seconds, whatever it waits for; here for a lock, or a mute daemon."""
    daemon = daemons(folder / "state.db", storage__lionagi_compatible="true")
    if verb == "status":
        os.kill(daemon.process.pid, signal.SIGSTOP)
        where = ["--daemon", daemon.target]
    else:
        # Something to migrate: a step that finds nothing to do does not wait for the lock.
        asyncio.run(_create(daemon))
        daemon.stop()
        where = ["--url", str(folder / "state.db")]
    foreign = sqlite3.connect(folder / "state.db", isolation_level=None)
    if verb != "status":
        foreign.execute("BEGIN IMMEDIATE")
    command = [LIONSTATE, "progression-migrate", *verb.split(), *where]
    env = clean_environment(PYTHONUNBUFFERED="1")
    control = idle_control()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env) as process:
        _wait_until_it_waits(process.pid)
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=20)
        took = time.monotonic() - began
    foreign.close()
    if verb == "status":
        os.kill(daemon.process.pid, signal.SIGCONT)
    assert (130, b"", b"lionstate: interrupted\n") == (process.returncode, out, err)
    assert took < 2.0 + 2 * control


async def _create(daemon: DaemonProcess) -> None:
    async with StateClient(daemon.target) as client:
        await client.create_progression("p", ["m"])


def _open_files(pid: int) -> Iterator[str]:
    for fd in os.listdir(f"/proc/{pid}/fd"):
        with contextlib.suppress(OSError):
            yield os.readlink(f"/proc/{pid}/fd/{fd}")


def _wait_until_it_waits(pid: int) -> None:
    """Until its event loop's handler for SIGINT is there."""
    caught = 1 << (signal.SIGINT - 1)
    wakeup = threading.Event()
    for _ in range(2_000):
        status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
        handled = int(next(line for line in status.splitlines() if line.startswith("SigCgt")).split()[1], 16)
        if handled & caught and sum(name.startswith("socket:") for name in _open_files(pid)) >= 2:
            wakeup.wait(0.3)
            return
        wakeup.wait(0.01)
    pytest.fail("the command did not come to wait")


def test_serve_becomes_the_daemon(folder: Path) -> None:
    """``lionstate serve`` replaces its process and passes every option on."""
    done = lionstate("serve", "--check-config", "--database-url", "x.db", "--queue-max-operations", "7")
    assert (0, "") == (done.returncode, done.stderr)
    assert "max_operations = 7" in done.stdout.splitlines()
    done = lionstate("serve", "--help")
    assert "usage: lionstated" in done.stdout
    done = lionstate("serve", "--no-such-option")
    assert 2 == done.returncode


def test_from_preflight_through_blocked_and_repair_to_items(shell: Shell) -> None:
    """A malformed store: found before, blocked, explained, repaired, retried."""
    found = shell.json("preflight", code=8)
    assert {"migratable": 2, "malformed_json": 1} == found["verdicts"]
    assert ["bad"] == found["named"]["malformed_json"]
    assert "repair it with set_progression" in shell("preflight", code=8)
    assert "no such progression" in shell("explain nope", code=4)
    assert ["json", "json"] == [shell.json("explain p")[name] for name in ("phase", "authority")]
    shell("blocked retry p", code=7)
    shell("step --until-done", code=8)
    (blocked,) = shell.json("blocked list")["blocked"]
    assert ("bad", "malformed_json", "json") == (blocked["progression_id"], blocked["code"], blocked["authority"])
    assert "malformed_json" in shell("blocked list")
    assert "repair it with set_progression" in shell("blocked show bad")
    assert shell("blocked unblock bad --reason x --adopt --discard", code=2)
    _execute(shell.url, ("UPDATE progressions SET collection = :text WHERE id = 'bad'", {"text": '["a"]'}))
    assert {"phase": "json"} == shell.json("blocked retry bad --reason repaired")
    shell("step --until-done")
    assert "items" == shell.json("explain bad")["phase"]
    assert {"items": 3} == shell.json("preflight")["left_out"]
    shell("rollback p", code=7)
    assert {"was_held": False} == shell.json("release p")


def test_a_rollback_holds_until_released(shell: Shell) -> None:
    shell("step --progression p --max-items 500")
    assert {"phase": "json"} == shell.json("rollback p --reason test")
    assert re.search(r"rolled back by \S+ \(since 20.* UTC: test\); an operator holds it", shell("explain p"))
    assert {"was_held": True} == shell.json("release p")
    released, event = shell.json("audit --progression p --limit 2")["events"]
    assert ("release", "rollback", "test") == (released["action"], event["action"], event["reason"])
    assert ("p", 500) == (event["progression_id"], event["details"]["backfill_next"])
    assert re.search(r"^when .*\n20\S+ \S+ +release +.*\n20\S+ \S+ +rollback +\S+ +test +p +\{", shell("audit"))
    assert [] == shell.json("audit --progression nope")["events"]
