"""Order of life: modes, ownership, drain, second signal, degraded maintenance, the command."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import aiohttp
import anyio
import pytest
from structlog.testing import capture_logs

from lionstate.errors import BackendUnavailableError, OwnershipConflictError, SchemaTooNewError
from lionstated.api.access import peer_policy
from lionstated.api.problems import HttpProblem
from lionstated.api.server import Connection, Peer
from lionstated.command import main
from lionstated.metrics import Metrics
from lionstated.notify import Notifier
from lionstated.parts import Parts
from lionstated.process import Daemon
from lionstated.settings import Settings
from tests.daemon.conftest import Serving
from tests.daemon.fakes import OPERATIONS, FakeStore, factory, settings_for

pytestmark = pytest.mark.anyio
APPEND = "/v1/ops/append_to_progression"
BODY = {"progression_id": "p", "message_id": "m"}


async def test_the_socket_is_private_whatever_the_umask(serving: Serving, folder: Path) -> None:
    previous = os.umask(0)
    try:
        async with serving():
            assert stat.S_IMODE(os.stat(folder / "d.sock").st_mode) == 0o600
            assert os.umask(0) == 0
        assert not (folder / "d.sock").exists()
    finally:
        os.umask(previous)


async def test_a_second_daemon_respects_the_first(serving: Serving, folder: Path) -> None:
    async with (
        serving(),
        aiohttp.ClientSession(connector=aiohttp.UnixConnector(str(folder / "d.sock"))) as http,
    ):
        second = Daemon(settings_for(folder), operations=OPERATIONS, store_factory=factory(FakeStore()))
        with pytest.raises(OwnershipConflictError):
            await second.run()
        assert (await http.post("http://d" + APPEND, json=BODY)).status == 200


async def test_drain_answers_what_is_under_way_then_closes(
    serving: Serving, http: aiohttp.ClientSession, store: FakeStore, folder: Path
) -> None:
    async with serving() as daemon:
        store.gate = anyio.Event()
        request = asyncio.ensure_future(http.post(APPEND, json=BODY))
        await store.entered.wait()
        daemon.stop()
        for _ in range(20):  # turns of the loop, not time: uvicorn itself sleeps meanwhile
            await asyncio.sleep(0)
        assert daemon.health.state == "draining"
        # Its listener goes before the request under way is answered.
        with pytest.raises(OSError):
            await asyncio.open_unix_connection(str(folder / "d.sock"))
        assert store.closed == 0
        store.gate.set()
        response = await request
        assert response.status == 200
    assert (store.closed, store.rows) == (1, {"p": ["m"]})


async def test_the_store_closes_when_the_queue_has_ended(
    serving: Serving, http: aiohttp.ClientSession, store: FakeStore
) -> None:
    """Seen: a lease that was still being given back met a closed store, and an orderly end was exit code 1."""
    closed: list[int] = []

    async def drain(_seconds: float) -> None:
        # Longer than servers without a request and services that are done take.
        await asyncio.sleep(0.3)
        closed.append(store.closed)

    async with serving({"drain": drain}):
        assert (await http.post(APPEND, json=BODY)).status == 200
    assert ([0], 1) == (closed, store.closed)


async def test_a_client_that_hangs_is_not_said_of_what_had_ended(serving: Serving, folder: Path) -> None:
    """It takes the whole budget; queue and services ended long before."""
    with capture_logs() as said:
        async with serving(shutdown__drain_seconds="0.5") as daemon:
            reader, writer = await asyncio.open_unix_connection(str(folder / "d.sock"))
            writer.write(f"POST {APPEND} HTTP/1.1\r\nHost: d\r\nContent-Length: 9\r\n".encode())
            writer.write(b"Content-Type: application/json\r\nExpect: 100-continue\r\n\r\n")
            assert (await reader.readline()).startswith(b"HTTP/1.1 100 ")
            daemon.stop()
            await anyio.sleep(0.6)
    writer.close()
    assert ("stopped", []) == (daemon.health.state, [one for one in said if "over_budget" in one["event"]])


async def test_a_second_stop_forces(
    serving: Serving, http: aiohttp.ClientSession, store: FakeStore, folder: Path
) -> None:
    store.gate = anyio.Event()
    with anyio.fail_after(2):
        daemon = Daemon(settings_for(folder), operations=OPERATIONS, store_factory=factory(store))
        async with anyio.create_task_group() as group:
            await group.start(daemon.run)
            request = asyncio.ensure_future(http.post(APPEND, json=BODY))
            await store.entered.wait()
            daemon.stop()
            daemon.stop()
    assert daemon.forced
    with pytest.raises(aiohttp.ClientError):
        await request
    assert not (folder / "d.sock").exists()


async def test_a_stop_at_any_moment_of_the_start_leaves_nothing(folder: Path) -> None:
    for index in range(40):
        store = FakeStore()
        daemon = Daemon(settings_for(folder), operations=OPERATIONS, store_factory=factory(store))
        with anyio.fail_after(5):
            async with anyio.create_task_group() as group:
                group.start_soon(daemon.run)
                for _ in range(index):
                    await asyncio.sleep(0)
                daemon.stop()
        assert store.closed <= 1
    assert not (folder / "d.sock").exists()
    assert len(asyncio.all_tasks()) <= 2


async def test_a_store_that_does_not_open_ends_the_start(folder: Path) -> None:
    async def refuse(settings: Settings, metrics: Metrics) -> Parts:
        raise SchemaTooNewError

    daemon = Daemon(settings_for(folder), operations=OPERATIONS, store_factory=refuse)
    with pytest.raises(SchemaTooNewError):
        await daemon.run()
    assert not (folder / "d.sock").exists()


async def test_failing_maintenance_is_degraded_retried_and_recovers(
    serving: Serving, http: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """fault 18: a service that fails is named and tried again, while requests are served."""
    monkeypatch.setattr("lionstated.supervision._RETRY_SECONDS", (0.0, 0.0))
    failed, works = anyio.Event(), anyio.Event()
    attempts = 0

    async def maintenance(stop: anyio.Event, healthy: Callable[[], None]) -> None:
        nonlocal attempts
        attempts += 1
        if attempts == 1:
            raise ValueError("secret")
        failed.set()
        healthy()
        works.set()
        await stop.wait()

    async with serving({"maintenance": maintenance}) as daemon:
        await works.wait()
        assert (await http.post(APPEND, json=BODY)).status == 200
        text = daemon.metrics.exposition()[0].decode()
        assert 'lionstate_service_degraded{service="maintenance"} 0.0' in text
    assert attempts == 2


async def test_ready_and_stopping_are_told_to_the_service_manager(folder: Path, store: FakeStore) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(folder / "n.sock"))
        manager.setblocking(False)
        daemon = Daemon(
            settings_for(folder),
            operations=OPERATIONS,
            store_factory=factory(store),
            notifier=Notifier(str(folder / "n.sock")),
        )
        async with anyio.create_task_group() as group:
            await group.start(daemon.run)
            daemon.stop()
        lines = [manager.recv(1000).decode().splitlines() for _ in range(3)]
    assert [
        ["STATUS=opening the store", "EXTEND_TIMEOUT_USEC=30000000"],
        ["READY=1", "STATUS=serving"],
        ["STOPPING=1", "STATUS=draining", "EXTEND_TIMEOUT_USEC=10500000"],
    ] == lines


async def test_signals_drain_and_reload(folder: Path, store: FakeStore) -> None:
    reads = 0

    def read() -> Settings:
        nonlocal reads
        reads += 1
        daemon.stop()
        return settings_for(folder, log__level="debug")

    daemon = Daemon(settings_for(folder), operations=OPERATIONS, store_factory=factory(store), read_settings=read)

    async def run(*, task_status: anyio.abc.TaskStatus[Daemon]) -> None:
        await daemon.run(handle_signals=True, task_status=task_status)

    async with anyio.create_task_group() as group:
        await group.start(run)
        os.kill(os.getpid(), signal.SIGHUP)
    assert (reads, daemon.forced, store.closed) == (1, False, 1)


def test_peer_policy_lets_in_its_own_user_root_and_the_group() -> None:
    def scope(uid: int, gid: int) -> dict[str, object]:
        return {"extensions": {"lionstate.connection": Connection(Peer(1, uid, gid))}}

    peer_policy()(scope(os.geteuid(), 99))
    peer_policy()(scope(0, 0))
    peer_policy(4242)(scope(54321, 4242))
    for refused in (scope(54321, 4242), {"extensions": {}}):
        with pytest.raises(HttpProblem):
            peer_policy()(refused)


def test_port_in_use_and_bad_paths(folder: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        daemon = Daemon(
            settings_for(folder, listen__ops=f"127.0.0.1:{port}"),
            operations=OPERATIONS,
            store_factory=factory(FakeStore()),
        )
        with pytest.raises(OwnershipConflictError):
            anyio.run(daemon.run)
    assert not (folder / "d.sock").exists()
    daemon = Daemon(
        settings_for(folder, listen__socket=str(folder / "no" / "d.sock")),
        operations=OPERATIONS,
        store_factory=factory(FakeStore()),
    )
    with pytest.raises(BackendUnavailableError):
        anyio.run(daemon.run)


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (
            ["--check-config", "--database-url", "postgresql://u:hidden@h/d"],
            0,
            'url = "postgresql://u:***@h/d"',
        ),
        (["--check-config", "--listen-http", "127.0.0.1:1"], 2, "listen.http needs auth.token_file"),
        (["--check-config", "--listen-ops", "0.0.0.0:1"], 2, "off loopback"),
        (
            ["--check-config", "--delivery-command", '["p", "--to={deliver_to}"]'],
            2,
            "{deliver_to} as an argument of its own",
        ),
        (["--check-config", "--delivery-command", '["p", "{payload} "]'], 2, "{payload} as an argument of its own"),
        (["--check-config", "--delivery-command", '["p", "{deliver_to}"]'], 0, 'command = ["p", "*** (1 arguments)"]'),
        (["--check-config", "--queue-max-operations", "x"], 2, "queue.max_operations in flag --queue-max"),
        (["--config", "/nonexistent.toml"], 2, "cannot read /nonexistent.toml"),
        ([], 2, "no store given"),
        (["--database-url", ""], 2, "no store given"),
        (["--database-url", " "], 2, "no store given"),
        (["--check-config", "--database-url", " "], 2, "no store given"),
    ],
)
def test_the_command(arguments: list[str], code: int, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == code
    captured = capsys.readouterr()
    assert said in captured.out + captured.err
    assert "hidden" not in captured.out + captured.err
    if code:
        assert len(captured.err.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--database-url"], "--database-url: expected one argument"),
        (["--listen-ops", "--database-url", "x.db"], "--listen-ops: expected one argument"),
        (["bogus"], "unrecognized arguments: bogus"),
        (["--databse-url", "x.db"], "unrecognized arguments: --databse-url"),
    ],
)
def test_flags_that_are_none(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A forgotten value must not become a store named "true"."""
    with pytest.raises(SystemExit) as ended:
        main(["--check-config", *arguments])
    out, err = capsys.readouterr()
    assert (2, "", 1) == (ended.value.code, out, len(err.splitlines()))
    assert said in err
    assert main(["--check-config", "--maintenance-enabled", "--database-exclusive"]) == 0
    assert "enabled = true" in capsys.readouterr().out


def test_a_real_process_ends_on_signals(folder: Path) -> None:
    program = (
        "import sys, anyio\n"
        "from lionstated.command import Assembly, leave, main\n"
        "from tests.daemon.fakes import FakeStore, OPERATIONS, factory\n"
        "store = FakeStore()\n"
        "if sys.argv.pop(1) == 'hang':\n"
        "    store.close = anyio.sleep_forever\n"
        "leave(main(assemble=lambda: Assembly(OPERATIONS, factory(store))))\n"
    )
    flags = ["--database-url", str(folder / "s.db"), "--listen-socket", str(folder / "p.sock")]
    flags += ["--listen-ops", "127.0.0.1:0"]
    for mode, signals, code in (("plain", 1, 0), ("hang", 2, 130)):
        with subprocess.Popen(
            [sys.executable, "-W", "error", "-c", program, mode, *flags],
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        ) as process:
            assert process.stderr is not None
            expected = ["ready", *(["draining"] * (signals - 1))]
            for word in expected:
                line = next(line for line in process.stderr if f'"{word}"' in line)
                assert '"level": "info"' in line
                process.send_signal(signal.SIGTERM)
            rest = process.stderr.read()
            assert process.wait(10) == code, rest
