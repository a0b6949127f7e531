"""`/readyz`: a database that is down at the start, and a store that takes no writes."""

from __future__ import annotations

import asyncio
import math
import os
import signal
import socket
from pathlib import Path
from typing import Any

import aiohttp
import anyio
import anyio.lowlevel
import pytest

from lionstate.engine import sqlite_file
from lionstate.errors import BackendUnavailableError
from lionstated import starting
from lionstated.api import Verb, app, failures, listeners
from lionstated.assembly import assemble
from lionstated.metrics import Metrics
from lionstated.notify import Notifier
from lionstated.parts import Parts
from lionstated.process import Daemon
from lionstated.settings import Settings
from tests.daemon.conftest import Serving
from tests.daemon.fakes import OPERATIONS, FakeStore, settings_for
from tests.support.backends import database_of
from tests.support.eventually import eventually
from tests.support.postgres import PostgresServer
from tests.support.proxy import cutting_proxy

pytestmark = pytest.mark.anyio
APPEND = "/v1/ops/append_to_progression"


async def probe(ops: str, path: str = "/readyz") -> tuple[int, dict[str, Any]]:
    async with aiohttp.ClientSession(ops) as http:
        answer = await http.get(path)
        return answer.status, await answer.json()


@pytest.mark.parametrize("given", [False, True], ids=["bound", "handed over"])
async def test_a_start_waits_for_the_database(
    folder: Path, store: FakeStore, monkeypatch: pytest.MonkeyPatch, given: bool
) -> None:
    """fault 18: alive and not ready, with the reason, on each listener; then it is there, and the daemon serves.

    What came before the reason was known waits, and is refused with it.
    """
    monkeypatch.setattr(starting, "_RETRY_SECONDS", (0.0, 0.0))
    monkeypatch.setattr(app, "_OPENING_SECONDS", math.inf)
    attempts, begun, fails, third, there = 0, *(anyio.Event() for _ in range(4))
    if given:
        handed = socket.socket(socket.AF_UNIX)
        handed.bind(str(folder / "d.sock"))
        handed.listen()
        monkeypatch.setattr(listeners, "inherited_sockets", lambda: [("", handed)])

    async def opens(settings: Settings, metrics: Metrics) -> Parts:
        nonlocal attempts
        attempts += 1
        begun.set()
        await fails.wait()
        if attempts < 3:
            raise BackendUnavailableError("the database cannot be reached: refused")
        third.set()
        await there.wait()
        return Parts(store=store, close=store.close)

    settings = settings_for(folder, database__url="postgresql://u:hidden@h/d")
    daemon = Daemon(settings, operations=OPERATIONS, store_factory=opens)
    api = aiohttp.ClientSession("http://d", connector=aiohttp.UnixConnector(str(folder / "d.sock")))
    body = {"progression_id": "p", "message_id": "m"}
    waiting = {"state": "starting", "reason": "the database cannot be reached: refused"}
    async with anyio.create_task_group() as group, api:
        group.start_soon(daemon.run)
        await begun.wait()
        assert 200 == (await api.get("/livez")).status
        early = asyncio.ensure_future(api.post(APPEND, json=body))
        fails.set()
        await third.wait()
        ops = daemon.addresses["ops"]
        assert (503, waiting) == await probe(ops)
        assert (200, {"alive": True}) == await probe(ops, "/livez")
        answers = {path: await api.get(path) for path in ("/livez", "/readyz", "/openapi.json")}
        assert [(200, {"alive": True}), (503, waiting)] == [
            (answers[path].status, await answers[path].json()) for path in ("/livez", "/readyz")
        ]
        for refused in (await early, await api.post(APPEND, json=body), answers["/openapi.json"]):
            said = await refused.json()
            assert (503, "backend_unavailable") == (refused.status, said["code"])
            assert waiting["reason"] in said["detail"]
            assert {"Retry-After", "Lionstate-Request-Id"} <= refused.headers.keys()
        there.set()
        await eventually(lambda: daemon.health.ready)
        assert (200, {"state": "ready"}) == await probe(ops)
        assert 200 == (await api.post(APPEND, json=body)).status
        daemon.stop()


async def test_what_comes_while_the_store_is_opened_is_let_in(
    folder: Path, store: FakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A manager's socket takes requests before the daemon runs: the first one of a stopped service is answered."""
    begun, there = anyio.Event(), anyio.Event()

    async def opens(settings: Settings, metrics: Metrics) -> Parts:
        begun.set()
        await there.wait()
        return Parts(store=store, close=store.close)

    daemon = Daemon(settings_for(folder), operations=OPERATIONS, store_factory=opens)
    api = aiohttp.ClientSession("http://d", connector=aiohttp.UnixConnector(str(folder / "d.sock")))
    async with anyio.create_task_group() as group, api:
        group.start_soon(daemon.run)
        await begun.wait()
        monkeypatch.setattr(app, "_OPENING_SECONDS", 0.0)
        late = await api.post(APPEND, json={"progression_id": "p", "message_id": "m"})
        assert (503, True) == (late.status, "it is being opened" in (await late.json())["detail"])
        monkeypatch.setattr(app, "_OPENING_SECONDS", math.inf)
        early = asyncio.ensure_future(api.post(APPEND, json={"progression_id": "p", "message_id": "m"}))
        assert (503, {"state": "starting"}) == ((ready := await api.get("/readyz")).status, await ready.json())
        there.set()
        assert 200 == (await early).status
        daemon.stop()


async def test_a_reload_while_the_start_waits(folder: Path, store: FakeStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """fault 18: it ends neither the waiting nor, for the service manager, the start; what was read holds afterwards."""
    monkeypatch.setattr(starting, "_RETRY_SECONDS", (0.0, 0.0))
    sent: list[str] = []
    reloaded: list[float] = []
    waits, there = anyio.Event(), anyio.Event()

    class Noting(Notifier):
        def send(self, *lines: str) -> bool:
            sent.extend(lines)
            return True

    async def opens(settings: Settings, metrics: Metrics) -> Parts:
        if not waits.is_set():
            waits.set()
            raise BackendUnavailableError("refused")
        await there.wait()
        return Parts(
            store=store, close=store.close, reload=lambda fresh: reloaded.append(fresh.maintenance.interval_seconds)
        )

    settings = settings_for(folder, database__url="postgresql://h/d")
    daemon = Daemon(
        settings,
        operations=OPERATIONS,
        store_factory=opens,
        read_settings=lambda: settings_for(folder, database__url="postgresql://h/d", maintenance__interval_seconds="7"),
        notifier=Noting(""),
    )

    async def run(*, task_status: anyio.abc.TaskStatus[Daemon]) -> None:
        await daemon.run(handle_signals=True, task_status=task_status)

    async with anyio.create_task_group() as group:
        starts = asyncio.ensure_future(group.start(run))
        await waits.wait()
        os.kill(os.getpid(), signal.SIGHUP)
        await eventually(lambda: daemon.settings.maintenance.interval_seconds == 7.0)
        assert (503, "starting") == ((found := await probe(daemon.addresses["ops"]))[0], found[1]["state"])
        assert not [line for line in sent if line.startswith(("READY", "RELOADING"))]
        there.set()
        await starts
        assert ([7.0], 1) == (reloaded, sent.count("READY=1"))
        os.kill(os.getpid(), signal.SIGHUP)
        await eventually(lambda: sent.count("READY=1") == 2)
        assert 1 == sent.count("RELOADING=1")
        daemon.stop()


async def test_a_start_that_is_told_not_to_wait(folder: Path) -> None:
    async def opens(settings: Settings, metrics: Metrics) -> Parts:
        raise BackendUnavailableError("refused")

    for flags in (
        {"database__url": "postgresql://h/d", "database__when_unavailable": "exit"},
        {},  # a file is there or it is not
    ):
        daemon = Daemon(settings_for(folder, **flags), operations=OPERATIONS, store_factory=opens)
        with pytest.raises(BackendUnavailableError):
            await daemon.run()


async def test_a_server_that_is_not_there_and_a_stop(folder: Path) -> None:
    """fault 18: the real store factory against a port where nobody listens; a stop ends the waiting."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"postgresql://user:hidden@127.0.0.1:{unused.getsockname()[1]}/db"
        real = assemble()
        settings = settings_for(folder, database__url=url)
        daemon = Daemon(settings, operations=real.operations, store_factory=real.store_factory)
        async with anyio.create_task_group() as group:
            group.start_soon(daemon.run)
            await eventually(lambda: daemon.health.waits_for)
            status, said = await probe(daemon.addresses["ops"])
            daemon.stop()
    assert (503, "starting") == (status, said["state"])
    assert "cannot be reached" in said["reason"]
    assert "hidden" not in str(said)
    assert not (folder / "d.sock").exists()


async def test_ready_again_when_a_write_succeeds(
    serving: Serving, http: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """fault 46: a write that the store cannot take; a caller's write or, as callers stay away, our own ends it."""
    monkeypatch.setattr(failures, "_PROBE_SECONDS", 0.0)
    tried, room = anyio.Event(), anyio.Event()

    async def write() -> None:
        tried.set()
        if not room.is_set():
            await anyio.lowlevel.checkpoint()
            raise BackendUnavailableError

    async with serving({"probe": write}) as daemon:
        ops = daemon.addresses["ops"]
        assert (200, {"state": "ready"}) == await probe(ops)
        assert 500 == (await http.post(APPEND, json={"progression_id": "unknown", "message_id": "m"})).status
        assert (503, {"state": "unavailable", "reason": "outcome_unknown"}) == await probe(ops)
        await tried.wait()
        assert 503 == (await probe(ops))[0]
        assert 200 == (await http.get("/v1/progressions/p")).status
        assert 503 == (await probe(ops))[0], "a read proves nothing"
        assert 200 == (await http.post(APPEND, json={"progression_id": "p", "message_id": "m"})).status
        assert (200, {"state": "ready"}) == await probe(ops)
        batch = {"operations": [{"operation": "append_to_progression", "params": {"progression_id": "unknown"}}]}
        batch["operations"][0]["params"]["message_id"] = "m"  # type: ignore[index]
        assert 200 == (await http.post("/v1/batch", json=batch)).status
        assert 503 == (await probe(ops))[0]
        room.set()
        await eventually(lambda: daemon.health.ready)


async def test_not_ready_while_the_store_is_away_and_nobody_calls(
    serving: Serving, monkeypatch: pytest.MonkeyPatch
) -> None:
    """fault 18: refused, or without an answer; nobody reads or writes meanwhile, and it recovers alone."""
    monkeypatch.setattr(failures, "_LOOK_SECONDS", 0.0)
    monkeypatch.setattr(failures, "_ANSWER_SECONDS", 0.01)
    away, mute, back = anyio.Event(), anyio.Event(), anyio.Event()

    async def look() -> bool:
        await anyio.lowlevel.checkpoint()
        if back.is_set():
            return False
        if mute.is_set():
            await back.wait()
        elif away.is_set():
            raise BackendUnavailableError
        return False

    async with serving({"look": look}) as daemon:
        ops = daemon.addresses["ops"]
        assert (200, {"state": "ready"}) == await probe(ops)
        for trouble, reason in ((away, "backend_unavailable"), (mute, "no_answer")):
            trouble.set()
            await eventually(lambda wanted=reason: daemon.health.reason == wanted)  # type: ignore[misc]
            assert (503, {"state": "unavailable", "reason": reason}) == await probe(ops)
            assert 0.0 == daemon.metrics.registry.get_sample_value("lionstate_up")
        back.set()
        await eventually(lambda: daemon.health.ready)
        assert 1.0 == daemon.metrics.registry.get_sample_value("lionstate_up")


async def test_verbs_name_a_database_that_does_not_answer(
    serving: Serving, http: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """fault 18: one asked before it is known is given up, those asked later are not begun; nobody waits for 30 s."""
    monkeypatch.setattr(failures, "_LOOK_SECONDS", 0.0)
    monkeypatch.setattr(failures, "_ANSWER_SECONDS", 0.01)
    mute, back, begun = anyio.Event(), anyio.Event(), []

    async def look() -> bool:
        await anyio.lowlevel.checkpoint()
        if mute.is_set():
            await back.wait()
        return False

    async def status() -> int:
        begun.append("status")
        mute.set()
        await back.wait()
        return 7

    async def pause() -> None:
        begun.append("pause")

    verbs = {"status": Verb("GET", status), "pause": Verb("POST", pause)}
    async with serving({"look": look, "verbs": verbs}) as daemon:
        for response in (
            await http.get("/v1/migration/status"),
            await http.get("/v1/migration/status"),
            await http.post("/v1/migration/pause", json={}),
        ):
            said = await response.json()
            assert (503, "backend_unavailable") == (response.status, said["code"])
            assert said["detail"].startswith("no_answer since ")
        assert ["status"] == begun
        back.set()
        await eventually(lambda: daemon.health.ready)
        assert 7 == await (await http.get("/v1/migration/status")).json()


async def test_a_full_disk_is_noticed_though_nobody_writes(serving: Serving, monkeypatch: pytest.MonkeyPatch) -> None:
    """fault 46: in doubt a write is tried, whose failure is as a caller's; without a doubt nothing is written."""
    monkeypatch.setattr(failures, "_LOOK_SECONDS", 0.0)
    monkeypatch.setattr(failures, "_PROBE_SECONDS", 0.0)
    doubtful, room, looked, writes = anyio.Event(), anyio.Event(), anyio.Event(), 0

    async def look() -> bool:
        await anyio.lowlevel.checkpoint()
        looked.set()
        return doubtful.is_set()

    async def write() -> None:
        nonlocal writes
        writes += 1
        await anyio.lowlevel.checkpoint()
        if not room.is_set():
            raise BackendUnavailableError("no room", reason="disk_full")

    async with serving({"look": look, "probe": write}) as daemon:
        await looked.wait()
        assert (True, 0) == (daemon.health.ready, writes)
        doubtful.set()
        await eventually(lambda: daemon.health.reason == "disk_full")
        room.set()
        await eventually(lambda: daemon.health.ready)


async def test_a_server_that_goes_away_and_comes_back(
    folder: Path, postgres_18: PostgresServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """fault 18: the real store behind a line that is cut; one small read every two seconds, and no write."""
    monkeypatch.setattr(failures, "_LOOK_SECONDS", 0.05)
    async with cutting_proxy(database_of(postgres_18, f"ready_{folder.name}".lower())) as line:
        real = assemble()
        settings = settings_for(folder, database__url=line.dsn, maintenance__enabled="false")
        daemon = Daemon(settings, operations=real.operations, store_factory=real.store_factory)
        async with anyio.create_task_group() as group:
            await group.start(daemon.run)
            assert (200, {"state": "ready"}) == await probe(daemon.addresses["ops"])
            line.refusing = True
            await line.close()
            await eventually(lambda: daemon.health.reason == "backend_unavailable")
            assert 503 == (await probe(daemon.addresses["ops"]))[0]
            line.refusing = False
            await eventually(lambda: daemon.health.ready)
            daemon.stop()


async def test_a_store_file_that_is_moved_away_and_put_back(
    folder: Path, http: aiohttp.ClientSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Removed or replaced under a daemon: not ready, no write goes into what was moved, reads go on; then as before."""
    monkeypatch.setattr(failures, "_LOOK_SECONDS", 0.02)
    monkeypatch.setattr(failures, "_PROBE_SECONDS", 0.02)
    # A look holds for 5 ms, and what is written within that is in the file that was moved.
    monkeypatch.setattr(sqlite_file, "_LOOK_SECONDS", 0.0)
    path, aside = folder / "state.db", folder / "aside.db"
    real = assemble()
    settings = settings_for(folder, maintenance__enabled="false", database__sqlite_module="stdlib")
    daemon = Daemon(settings, operations=real.operations, store_factory=real.store_factory)

    async def append(message: str) -> tuple[int, dict[str, Any]]:
        answer = await http.post(APPEND, json={"progression_id": "p", "message_id": message})
        return answer.status, await answer.json()

    async with anyio.create_task_group() as group:
        await group.start(daemon.run)
        assert 200 == (await http.post("/v1/ops/create_progression", json={"progression_id": "p"})).status
        for replaced in (None, "copy", "link"):
            await eventually(lambda: daemon.health.ready)
            assert 200 == (await append(f"before {replaced}"))[0]
            # Whoever reads has the file open from now on.
            assert 200 == (await http.get("/v1/progressions/p")).status
            path.rename(aside)
            if replaced == "copy":
                path.write_bytes(aside.read_bytes())
            elif replaced == "link":
                # Whoever opens it by this name has its log beside the other one.
                path.symlink_to(aside)
            # The first write after it, whether somebody looked meanwhile or not.
            status, said = await append("lost")
            assert (503, "backend_unavailable") == (status, said["code"])
            assert "moved, replaced or removed" in said["detail"]
            await eventually(lambda: daemon.health.failures.read_failure == "store_moved")
            assert (503, {"state": "unavailable", "reason": "store_moved"}) == await probe(daemon.addresses["ops"])
            assert 0.0 == daemon.metrics.registry.get_sample_value("lionstate_up")
            assert 200 == (await http.get("/v1/progressions/p")).status
            assert "store_moved" == (await (await http.get("/v1/migration/status")).json())["not_ready"]
            aside.rename(path)
        await eventually(lambda: daemon.health.ready)
        assert (await (await http.get("/v1/migration/status")).json())["not_ready"] is None
        assert 200 == (await append("after"))[0]
        assert ["before None", "before copy", "before link", "after"] == await (
            await http.get("/v1/progressions/p")
        ).json()
        daemon.stop()
