"""What is done to the installed unit under a systemd of its own; run by it as root, writes /out/seen.json.

Every check ends in one line of what was seen; a check that fails says so there and does not stop the others.
"""

from __future__ import annotations

import ctypes
import http.client
import json
import os
import pwd
import shutil
import signal
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from seeing import Checks

SOCKET = Path("/run/lionstate/lionstated.sock")
STORE = Path("/var/lib/lionstate/state.db")
SERVICE = "lionstated.service"
OVERRIDES = Path(f"/etc/systemd/system/{SERVICE}.d")
DROP_INS = Path("/usr/share/lionstate/systemd")
OUT = Path("/out")
LOG = OUT / "lionstated.log"
_PTRACE_SEIZE, _PTRACE_INTERRUPT, _WALL = 0x4206, 0x4207, 0x40000000

check = Checks()


class _Unix(http.client.HTTPConnection):
    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(60)
        self.sock.connect(str(SOCKET))


def post(operation: str, **params: Any) -> int:
    """One call on a connection of its own; the status of its answer."""
    connection = _Unix("lionstate")
    try:
        connection.request("POST", f"/v1/ops/{operation}", json.dumps(params), {"Content-Type": "application/json"})
        return connection.getresponse().status
    finally:
        connection.close()


def systemctl(*arguments: str, code: int = 0) -> str:
    done = subprocess.run(["systemctl", *arguments], capture_output=True, text=True, check=False)
    if code != done.returncode:
        status = subprocess.run(["journalctl", "--no-pager", "--lines=60"], capture_output=True, text=True, check=False)
        raise AssertionError(f"{arguments}: {done.returncode}\n{done.stderr}\n{status.stdout}")
    return done.stdout.strip()


def show(*names: str) -> dict[str, str]:
    lines = systemctl("show", SERVICE, *(f"--property={name}" for name in names)).splitlines()
    return dict(line.split("=", 1) for line in lines)


def wait_for(what: str, condition: Callable[[], bool], seconds: float = 30) -> float:
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < seconds, f"not within {seconds} s: {what}"
        time.sleep(0.02)
    return time.monotonic() - began


def override(name: str, text: str) -> None:
    OVERRIDES.mkdir(parents=True, exist_ok=True)
    (OVERRIDES / f"{name}.conf").write_text(text)
    systemctl("daemon-reload")


@contextmanager
def overridden(name: str, text: str) -> Iterator[None]:
    """With a drop-in, and the service back as it was afterwards."""
    override(name, text)
    try:
        yield
    finally:
        (OVERRIDES / f"{name}.conf").unlink()
        systemctl("daemon-reload")
        systemctl("reset-failed", SERVICE)
        systemctl("restart", SERVICE)


def count() -> int:
    """Ids of the progression `p`, from the store itself, by another process than the daemon's."""
    found = subprocess.run(
        ["curl", "-s", "--unix-socket", str(SOCKET), "http://l/v1/progressions/p"], capture_output=True, check=True
    )
    return len(set(json.loads(found.stdout)))


class Load:
    """Threads that append, each call on a new connection."""

    def __init__(self, threads: int, prefix: str) -> None:
        self.acknowledged: list[str] = []
        self.refused: list[str] = []
        self.cut = 0
        self._end = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(f"{prefix}{n}",)) for n in range(threads)]

    def _run(self, name: str) -> None:
        number = 0
        while not self._end.is_set():
            number += 1
            message = f"{name}-{number}"
            try:
                status = post("append_to_progression", progression_id="p", message_id=message)
            except (ConnectionRefusedError, FileNotFoundError) as exc:
                self.refused.append(type(exc).__name__)
                time.sleep(0.01)
            except (OSError, http.client.HTTPException):
                self.cut += 1
            else:
                if status == 200:
                    self.acknowledged.append(message)

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        for thread in self._threads:
            thread.join()

    def lost(self) -> int:
        text = subprocess.run(
            ["curl", "-s", "--unix-socket", str(SOCKET), "http://l/v1/progressions/p"], capture_output=True, check=True
        ).stdout
        return len(set(self.acknowledged) - set(json.loads(text)))


@check
def ready() -> str:
    systemctl("start", "lionstated.socket")
    assert "inactive" == show("ActiveState")["ActiveState"], "the socket alone does not start it"
    began = time.monotonic()
    systemctl("start", SERVICE)
    took = time.monotonic() - began
    found = show("ActiveState", "SubState", "NRestarts", "User")
    assert {"ActiveState": "active", "SubState": "running", "NRestarts": "0", "User": "lionstate"} == found, found
    assert 200 == post("create_progression", progression_id="p")
    return f"READY after {took:.1f} s"


@check
def status_text() -> str:
    def text() -> str:
        return show("StatusText")["StatusText"]

    wait_for("phases in the status", lambda: "json 1, dual 0, items 0, blocked 0" in text() or "items 1" in text())
    assert "migration waits for: disabled" in text(), text()
    return text()


@check
def folders_and_modes() -> str:
    account = pwd.getpwnam("lionstate")
    seen = []
    for path, mode in ((STORE.parent, 0o750), (STORE, 0o600), (SOCKET.parent, 0o750), (SOCKET, 0o660)):
        found = path.stat()
        assert (mode, account.pw_uid, account.pw_gid) == (found.st_mode & 0o777, found.st_uid, found.st_gid), path
        seen.append(f"{path} {mode:o}")
    return ", ".join(seen)


def _curl_as(user: str, group: str) -> str:
    command = ["setpriv", f"--reuid={user}", f"--regid={group}", "--clear-groups", "curl", "-s", "-o", "/dev/null"]
    command += ["-w", "%{http_code}", "--unix-socket", str(SOCKET), "http://l/v1/progressions/p"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


@check
def who_may_call() -> str:
    found = {f"{u}:{g}": _curl_as(u, g) for u, g in (("nobody", "lionstate"), ("nobody", "nogroup"), ("root", "root"))}
    assert {"nobody:lionstate": "200", "nobody:nogroup": "000", "root:root": "200"} == found, found
    return str(found)


@check
def members_of_the_group() -> str:
    """By supplementary group: 403 as shipped, since the daemon sees nobody's users; 200 with the drop-in."""
    subprocess.run(["useradd", "--no-create-home", "--groups", "lionstate", "member"], check=True)

    def answer() -> str:
        command = ["setpriv", "--reuid=member", "--regid=member", "--init-groups", "curl", "-s", "-o", "/dev/null"]
        command += ["-w", "%{http_code}", "--unix-socket", str(SOCKET), "http://l/v1/progressions/p"]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout

    before = answer()
    with overridden("group-members", (DROP_INS / "group-members.conf").read_text()):
        systemctl("restart", SERVICE)
        after = answer()
    assert ("403", "200") == (before, after), (before, after)
    return f"as shipped {before}, with group-members.conf {after}"


@check
def no_credential() -> str:
    """Empty, it is no error where nothing asks for a token; the listener that does is refused by name, once."""
    with overridden("token", "[Service]\nEnvironment=LIONSTATE_AUTH__TOKEN_FILE=%d/token\n"):
        systemctl("restart", SERVICE)
        assert {"ActiveState": "active", "NRestarts": "0"} == show("ActiveState", "NRestarts")
        assert 200 == post("append_to_progression", progression_id="p", message_id="no credential")
    with overridden("tcp", (DROP_INS / "tcp.conf").read_text()):
        systemctl("restart", SERVICE, code=1)
        found = show("ActiveState", "NRestarts", "ExecMainStatus")
        assert {"ActiveState": "failed", "NRestarts": "0", "ExecMainStatus": "2"} == found, found
    [said] = [line for line in LOG.read_text().splitlines() if "listen.http needs auth.token_file" in line]
    assert said.endswith("holds no token"), said
    return f"serves without; with the drop-in tcp: {said}"


@check
def credential() -> str:
    token = Path("/etc/lionstate/token")
    token.write_text("a-token-of-this-test\n")
    token.chmod(0o600)
    found = []
    with overridden("tcp", (DROP_INS / "tcp.conf").read_text()):
        systemctl("restart", SERVICE)
        for headers in ({}, {"Authorization": "Bearer a-token-of-this-test"}):
            connection = http.client.HTTPConnection("127.0.0.1", 9465, timeout=10)
            connection.request("GET", "/v1/progressions/p", headers=headers)
            found.append(connection.getresponse().status)
            connection.close()
    assert [401, 200] == found, found
    return "a file of root alone; without token 401, with 200"


@check
def reload() -> str:
    pid = show("MainPID")["MainPID"]
    systemctl("reload", SERVICE)
    assert {"MainPID": pid, "ActiveState": "active"} == show("MainPID", "ActiveState")
    return "the same process is active"


@check
def reload_while_it_waits() -> str:
    """PostgreSQL is down: SIGHUP neither ends the process nor makes the manager take it for ready."""
    systemctl("stop", SERVICE)
    with overridden("down", "[Service]\nEnvironment=LIONSTATE_DATABASE__URL=postgresql://nobody@127.0.0.1:1/none\n"):
        systemctl("start", "--no-block", SERVICE)
        wait_for("what it waits for", lambda: "waiting for the database" == show("StatusText")["StatusText"])
        before, told = show("MainPID")["MainPID"], LOG.read_text().count('"reloaded"')
        systemctl("kill", "--kill-who=main", "--signal=HUP", SERVICE)
        wait_for("the reload", lambda: LOG.read_text().count('"reloaded"') == told + 1)
        tries = LOG.read_text().count('"store_unavailable"')
        wait_for("another try", lambda: LOG.read_text().count('"store_unavailable"') > tries)
        found = show("MainPID", "ActiveState", "NRestarts")
        assert {"MainPID": before, "ActiveState": "activating", "NRestarts": "0"} == found, found
        systemctl("stop", SERVICE)
    return "the same process goes on waiting, activating"


@check
def socket_is_kept() -> str:
    before = SOCKET.stat().st_ino
    with Load(4, "restart") as load:
        for _ in range(3):
            time.sleep(0.3)
            systemctl("restart", SERVICE)
        time.sleep(0.3)
    assert before == SOCKET.stat().st_ino
    assert not load.refused, load.refused
    assert 0 == load.lost()
    assert load.acknowledged
    return f"3 restarts, {len(load.acknowledged)} acknowledged, 0 lost, 0 refused, {load.cut} cut off"


@check
def activation() -> str:
    systemctl("stop", SERVICE)
    assert SOCKET.exists()
    began = time.monotonic()
    assert 200 == post("append_to_progression", progression_id="p", message_id="wakes")
    assert "active" == show("ActiveState")["ActiveState"]
    return f"the first request of a stopped service is answered after {time.monotonic() - began:.1f} s"


@check
def stop_under_load() -> str:
    with Load(8, "stop") as load:
        wait_for("load", lambda: len(load.acknowledged) > 200)
        began = time.monotonic()
        systemctl("stop", "lionstated.socket", SERVICE)
        took = time.monotonic() - began
    found = show("Result", "ExecMainStatus", "ActiveState")
    assert {"Result": "success", "ExecMainStatus": "0", "ActiveState": "inactive"} == found, found
    assert took < 20, took
    assert not Path(f"{STORE}-wal").exists(), "the store is closed in order"
    systemctl("start", "lionstated.socket", SERVICE)
    assert 0 == load.lost()
    return f"{took:.1f} s, exit 0, {len(load.acknowledged)} acknowledged, 0 lost"


def _stop_threads(pid: int) -> None:
    """Stop all threads of a process but the first, for as long as it lives; a child holds them and buries them."""
    if os.fork() != 0:
        return
    libc = ctypes.CDLL(None, use_errno=True)
    for tid in (int(name) for name in os.listdir(f"/proc/{pid}/task") if int(name) != pid):
        for request in (_PTRACE_SEIZE, _PTRACE_INTERRUPT):
            if 0 != libc.ptrace(request, tid, None, None):
                sys.stderr.write(f"thread {tid}: {os.strerror(ctypes.get_errno())}\n")
    with suppress(ChildProcessError):
        while True:
            os.waitpid(-1, _WALL)
    os._exit(0)


def _post_quietly() -> None:
    with suppress(OSError, http.client.HTTPException):
        post("append_to_progression", progression_id="p", message_id="never")


@check
def watchdog() -> str:
    """Every thread but the event loop's is stopped: the writer does not answer, while the loop would ping on."""
    with overridden("watchdog", "[Service]\nWatchdogSec=2\nTimeoutAbortSec=5\n"):
        systemctl("restart", SERVICE)
        time.sleep(4)
        assert "0" == show("NRestarts")["NRestarts"], "an idle writer is no wedged writer"
        pid = int(show("MainPID")["MainPID"])
        _stop_threads(pid)
        # A writer that has nothing to do is not asked to answer.
        threading.Thread(target=_post_quietly, daemon=True).start()
        took = wait_for("a restart", lambda: "1" == show("NRestarts")["NRestarts"])
        wait_for("a new process", lambda: show("MainPID")["MainPID"] not in ("0", str(pid)))
        wait_for("ready", lambda: show("ActiveState")["ActiveState"] == "active")
        assert 200 == post("append_to_progression", progression_id="p", message_id="after the watchdog")
    assert 0 < count()
    return f"killed and restarted {took:.1f} s after its writer was stopped (WatchdogSec=2)"


@check
def long_start() -> str:
    """Opening waits for a foreign lock, longer than TimeoutStartSec= allows: the daemon asks for more."""
    systemctl("stop", "lionstated.socket", SERVICE)
    foreign = sqlite3.connect(STORE, isolation_level=None)
    foreign.execute("PRAGMA locking_mode = EXCLUSIVE")
    foreign.execute("BEGIN EXCLUSIVE")
    timer = threading.Timer(6, lambda: subprocess.run(["true"], check=True))
    timer.start()
    text = "[Service]\nTimeoutStartSec=3\nEnvironment=LIONSTATE_DATABASE__BUSY_TIMEOUT_MS=20000\n"
    override("slow", text)
    began = time.monotonic()
    starting = subprocess.Popen(["systemctl", "start", "lionstated.socket", SERVICE])
    wait_for("what it is at", lambda: "opening the store" == show("StatusText")["StatusText"])
    time.sleep(max(0.0, 6 - (time.monotonic() - began)))
    state = show("ActiveState")["ActiveState"]
    foreign.execute("ROLLBACK")
    foreign.close()
    assert 0 == starting.wait(30)
    took = time.monotonic() - began
    (OVERRIDES / "slow.conf").unlink()
    systemctl("daemon-reload")
    shutil.chown(STORE, "lionstate", "lionstate")
    assert "activating" == state, state
    return f"READY after {took:.1f} s under TimeoutStartSec=3"


@check
def uds_only() -> str:
    with overridden("uds-only", (DROP_INS / "uds-only.conf").read_text()):
        systemctl("restart", SERVICE)
        assert 200 == post("append_to_progression", progression_id="p", message_id="no network")
        with socket.socket() as probe:
            assert 0 != probe.connect_ex(("127.0.0.1", 9464))
    return "appends over the socket, nothing listens on 9464"


@check
def wrong_setting_is_not_retried() -> str:
    with overridden("wrong", "[Service]\nEnvironment=LIONSTATE_QUEUE__MAX_OPERATIONS=many\n"):
        systemctl("restart", SERVICE, code=1)
        time.sleep(2)
        found = show("ActiveState", "NRestarts", "ExecMainStatus")
        assert {"ActiveState": "failed", "NRestarts": "0", "ExecMainStatus": "2"} == found, found
    return "exit 2, no restart"


def main() -> None:
    """Run every check and write what was seen."""
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    systemd = subprocess.run(["systemd-sysusers"], capture_output=True, text=True, check=True)
    subprocess.run(["systemd-tmpfiles", "--create", "/usr/lib/tmpfiles.d/lionstate.conf"], check=True)
    sys.stderr.write(systemd.stderr)
    override("log", f"[Service]\nStandardError=append:{LOG}\n")
    check.run(OUT / "seen.json")


if __name__ == "__main__":
    main()
