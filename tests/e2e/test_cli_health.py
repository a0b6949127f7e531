"""`lionstate health`, `config show` and `doctor` against a real daemon, and without one."""

from __future__ import annotations

import json
import os
import re
import sqlite3
import time
import tomllib
from pathlib import Path
from typing import Any

from tests.e2e.conftest import Daemons, lionstate
from tests.e2e.test_refused_starts import contents, newer_own_schema


def verdicts(done: Any) -> dict[str, str]:
    return {one["check"]: one["verdict"] for one in json.loads(done.stdout)["findings"]}


def test_health_of_a_daemon(folder: Path, daemons: Daemons) -> None:
    path = folder / "state.db"
    daemon = daemons(path)
    # It serves before it has said so.
    deadline = time.monotonic() + 30
    while (ops := re.search(r'"ops": "(http://[^"]+)"', daemon.log.read_text(encoding="utf-8"))) is None:
        assert time.monotonic() < deadline
        time.sleep(0.05)
    socket = str(daemon.socket)
    ways = (
        ["--daemon", socket],
        ["--daemon", f"unix:{socket}", "--live"],
        ["--ops", ops[1]],
        ["--ops", ops[1], "--live"],
    )
    for way in ways:
        done = lionstate("health", *way)
        assert (0, "alive" if "--live" in way else "ready") == (done.returncode, done.stdout.strip()), done.stderr
    assert 0 == lionstate("health", LIONSTATE_LISTEN__SOCKET=socket).returncode
    assert 0 == daemon.stop()
    for way in ways:
        done = lionstate("health", *way)
        assert (1, "", 1) == (done.returncode, done.stdout, len(done.stderr.splitlines()))
        assert "no answer from" in done.stderr
    assert 2 == lionstate("health").returncode


def test_doctor_looks_and_changes_nothing(folder: Path, daemons: Daemons) -> None:
    """On a store that a daemon has, on the same one without it, on what is wrong with it, and on none."""
    path = folder / "state.db"
    daemon = daemons(path)
    path.chmod(0o600)
    flags = ["--url", str(path), "--socket", str(daemon.socket), "--json"]
    done = lionstate("doctor", *flags, "--daemon", str(daemon.socket))
    assert 0 == done.returncode, done.stderr
    found = verdicts(done)
    assert {"versions", "daemon", "SQLite", "file", "rights", "file system", "owner", "socket", "store", "fence"} < set(
        found
    )
    assert "fail" not in found.values()
    aside = folder / "aside.db"
    path.rename(aside)
    try:
        deadline = time.monotonic() + 30
        while lionstate("health", "--daemon", str(daemon.socket)).returncode == 0:
            assert time.monotonic() < deadline
        asked = lionstate("doctor", *flags, "--daemon", str(daemon.socket))
        assert (1, "fail") == (asked.returncode, verdicts(asked)["store"])
        told = lionstate("progression-migrate", "status", "--daemon", str(daemon.socket)).stdout
        assert told.startswith("STORE: not ready: store_moved: put the store's file"), told
    finally:
        aside.rename(path)
    assert 0 == daemon.stop()
    before = contents(folder)
    os.link(path, aside)
    done = lionstate("doctor", *flags)
    assert (1, "fail") == (done.returncode, verdicts(done)["links"])
    aside.unlink()
    assert ("ok", "ok") == tuple(verdicts(lionstate("doctor", *flags))[name] for name in ("file", "store"))
    path.chmod(0o644)
    done = lionstate("doctor", "--url", path)
    assert (0, True) == (done.returncode, f"chmod o-rwx {path}" in done.stdout.replace("\n", " ")), done.stdout
    assert before == contents(folder)
    done = lionstate("doctor", "--url", path, "--socket", "/" + "x" * 120, "--json")
    assert (1, "fail") == (done.returncode, verdicts(done)["socket"])
    conn = sqlite3.connect(path)
    with conn:
        conn.execute("DELETE FROM schema_meta WHERE key = 'lionstate.schema_version'")
        newer_own_schema(conn)
    conn.close()
    done = lionstate("doctor", "--url", path, "--json")
    assert (3, "fail") == (done.returncode, verdicts(done)["store"])
    assert 4 == lionstate("doctor", "--url", folder / "none.db").returncode
    assert 0 == lionstate("doctor").returncode
    assert not (folder / "none.db").exists()


def test_doctor_reads_every_page(folder: Path, daemons: Daemons) -> None:
    """Pages that something wrote over, which nobody had read yet: the store opens and serves all the same."""
    path = folder / "state.db"
    daemon = daemons(path)
    asked = lionstate("doctor", "--url", path, "--daemon", str(daemon.socket), "--pages", "--json")
    assert (0, "ok") == (asked.returncode, verdicts(asked)["pages"]), asked.stdout
    assert 0 == daemon.stop()
    conn = sqlite3.connect(path)
    # Of a table that neither an open nor a look at the migration reads.
    (root,) = conn.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'messages'").fetchone()
    (size,) = conn.execute("PRAGMA page_size").fetchone()
    conn.close()
    with path.open("r+b") as file:
        file.seek((root - 1) * size)
        file.write(b"\xff" * size)
    assert "ok" == verdicts(lionstate("doctor", "--url", path, "--json"))["store"]
    before = contents(folder)
    done = lionstate("doctor", "--url", path, "--pages")
    assert (1, True) == (done.returncode, "pages: stop what writes it" in done.stdout), done.stdout
    assert before == contents(folder)


def test_config_show(folder: Path) -> None:
    config = folder / "c.toml"
    config.write_text("[queue]\nmax_operations = 7\n")
    secret = {"LIONSTATE_DATABASE__URL": "postgresql://u:hidden@h/d"}
    flags = ["--config", config, "--listen-socket", "s"]
    done = lionstate("config", "show", *flags, **secret)
    changed = {"database": {"url": "postgresql://u:***@h/d"}, "listen": {"socket": "s"}, "queue": {"max_operations": 7}}
    assert (0, changed) == (done.returncode, tomllib.loads(done.stdout))
    done = lionstate("config", "show", "--json", *flags, **secret)
    assert (0, changed) == (done.returncode, json.loads(done.stdout))
    done = lionstate("config", "show", "--effective", "--json", "--config", config, **secret)
    whole = json.loads(done.stdout)
    assert (7, 30000, None) == (
        whole["queue"]["max_operations"],
        whole["queue"]["deadline_ms"],
        whole["listen"]["http"],
    )
    assert "hidden" not in done.stdout
    assert 2 == lionstate("config", "show", "--config", folder / "none.toml").returncode
    assert sorted(os.listdir(folder)) == ["c.toml"]
