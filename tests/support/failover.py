"""Two daemons and four client processes on a primary with a synchronous standby; the primary dies, again and again."""

from __future__ import annotations

import asyncio
import json
import sys
import time
import urllib.request
from bisect import bisect_right
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncpg

from lionstate import StateClient
from lionstate.errors import StateError
from tests.demo.processes import DaemonProcess
from tests.support.eventually import eventually
from tests.support.failover_client import SESSION
from tests.support.kills import finish_migration, verify_all
from tests.support.load import Load, Writer, orders_in
from tests.support.postgres import PostgresServer
from tests.support.pressure import readiness

__all__ = ["Pair", "failover"]

_DATABASE = "failover"
_OPTIONS = ("max_wal_senders=4", "synchronous_commit=on", "dynamic_shared_memory_type=mmap")
_CLIENTS = 4
_SECONDS = 60.0
_FLAGS = {
    "storage__lionagi_compatible": "true",
    "maintenance__enabled": "true",
    "maintenance__interval_seconds": "0.1",
    "maintenance__chunks_per_tick": "1",
}
_LEASE = "SELECT owner || ' ' || epoch FROM migration_lease"
_MOVED = "SELECT count(*) FROM progression_storage_state WHERE phase = 'items'"
_SYNCHRONOUS = "SELECT count(*) = 1 FROM pg_stat_replication WHERE sync_state = 'sync'"


class Pair:
    """A primary and its synchronous standby, on two ports that stay."""

    def __init__(self, version: int) -> None:
        """Start both, with an empty database."""
        self.primary = PostgresServer.start(version, options=_OPTIONS)
        self.standby: PostgresServer | None = None
        self._dead_port = 0
        try:
            self.primary.create_database(_DATABASE)
            self.standby = self.primary.standby()
        except BaseException:
            self.stop()
            raise
        ports = ",".join(f"127.0.0.1:{server.port}" for server in (self.primary, self.standby))
        self.url = f"postgresql://postgres@{ports}/{_DATABASE}"

    async def ask(self, query: str) -> Any:
        """The one value of a query on the primary, by a plain driver."""
        conn = await asyncpg.connect(self.dsn)
        try:
            return await conn.fetchval(query)
        finally:
            await conn.close()

    @property
    def dsn(self) -> str:
        """Of the database on the present primary, for a plain driver."""
        return self.primary.dsn(_DATABASE).replace("+asyncpg", "")

    async def synchronous(self) -> None:
        """Commits wait for the standby from now on. Set late: a copy of the primary would wait for one of its own."""
        self.primary.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
        self.primary.execute("SELECT pg_reload_conf()")
        await eventually(lambda: self.ask(_SYNCHRONOUS))

    def promote(self) -> None:
        """The standby is the primary, and the dead one is no more."""
        assert self.standby is not None
        self.standby.execute("SELECT pg_promote(true, 30)")
        dead, self.primary, self.standby = self.primary, self.standby, None
        self._dead_port = dead.port
        dead.stop()

    def renew(self) -> None:
        """A new standby in the place of the dead server."""
        self.standby = self.primary.standby(port=self._dead_port)

    def stop(self) -> None:
        """End what runs."""
        if self.standby is not None:
            self.standby.stop()
        self.primary.stop()


@dataclass
class _Client:
    process: asyncio.subprocess.Process
    times: list[float] = field(default_factory=list)
    writers: list[Writer] = field(default_factory=list)

    async def listen(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            if line.startswith(b"["):
                books = json.loads(line)
                for book in books:
                    acknowledged = [tuple(one) for one in book["acknowledged"]]
                    self.writers.append(
                        Writer(**{**book, "acknowledged": acknowledged, "unknown": set(book["unknown"])})
                    )
            else:
                self.times.append(float(line))

    async def acknowledged_after(self, moment: float) -> float:
        """When the first acknowledgement after a moment came."""

        def look() -> float:
            place = bisect_right(self.times, moment)
            return self.times[place] if place < len(self.times) else 0.0

        return await eventually(look, seconds=_SECONDS)


@asynccontextmanager
async def _client(target: str, name: str, progressions: list[str]) -> AsyncIterator[_Client]:
    """A client process that writes while the block runs; its books are there afterwards."""
    command = [sys.executable, "-m", "tests.support.failover_client", target, name, *progressions]
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, limit=2**26)
    client = _Client(process)
    listening = asyncio.create_task(client.listen())
    try:
        yield client
        assert process.stdin is not None
        process.stdin.close()
        await asyncio.wait_for(listening, _SECONDS)
        assert 0 == await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        await asyncio.wait({listening})


def _unknown(daemon: DaemonProcess) -> int:
    """How many operations the daemon has answered as unknown."""
    with urllib.request.urlopen(f"http://{daemon.ops}/metrics", timeout=10) as answer:
        lines = answer.read().decode().splitlines()
    counts = [line for line in lines if line.startswith("lionstate_operations_total") and 'outcome="unknown"' in line]
    return int(sum(float(line.rpartition(" ")[2]) for line in counts))


async def _not_ready(daemon: DaemonProcess) -> str:
    """What the daemon says that it is not ready for, as soon as it does."""
    return str(await eventually(lambda: readiness(daemon.ops).get("reason"), seconds=30))


async def _ready(daemon: DaemonProcess) -> None:
    await eventually(lambda: "reason" not in readiness(daemon.ops), seconds=_SECONDS)


@dataclass
class _Scene:
    pair: Pair
    daemons: list[DaemonProcess]
    clients: list[_Client]
    told: list[str] = field(default_factory=list)

    async def lose_the_primary(self) -> None:
        """One failover: what is said meanwhile, how long it takes, and that migration goes on."""
        pair = self.pair
        await pair.synchronous()
        now = time.monotonic()
        await asyncio.gather(*(client.acknowledged_after(now) for client in self.clients))
        moved, lease = await pair.ask(_MOVED), await pair.ask(_LEASE)
        pair.primary.kill()
        killed = time.monotonic()
        reasons = [await _not_ready(daemon) for daemon in self.daemons]
        refusal = await self._status_error()
        promoted = time.monotonic()
        pair.promote()
        first = await asyncio.gather(*(client.acknowledged_after(promoted) for client in self.clients))
        for daemon in self.daemons:
            await _ready(daemon)
        ready = time.monotonic()

        async def migrates() -> bool:
            return bool(await pair.ask(_MOVED) > moved)

        went_on: bool = await eventually(migrates, seconds=_SECONDS)
        assert went_on
        owner, epoch = lease.split()
        new_owner, new_epoch = (await pair.ask(_LEASE)).split()
        # The row came along: the owner renews it, or the other one took over, which counts it up.
        assert (new_owner == owner) == (new_epoch == epoch), (lease, new_owner, new_epoch)
        assert int(new_epoch) >= int(epoch)
        self.told.append(
            f"/readyz {sorted(set(reasons))}, status {refusal}; told to promote {promoted - killed:.2f} s after the"
            f" kill, first acknowledgements {min(first) - promoted:.2f} to {max(first) - promoted:.2f} s and all ready"
            f" {ready - promoted:.2f} s after that; lease epoch {epoch} -> {new_epoch}, {moved} moved before"
        )

    async def _status_error(self) -> str:
        async with StateClient(self.daemons[0].target) as client:
            try:
                await client.migration.status(limit=0)
            except StateError as error:
                return f"{error.code}: {error}"
        return "answered"


async def _messages(dsn: str) -> set[str]:
    conn = await asyncpg.connect(dsn)
    try:
        return {row[0] for row in await conn.fetch("SELECT id FROM messages")}
    finally:
        await conn.close()


async def _owner(daemons: list[DaemonProcess]) -> str:
    """Target of the daemon that migrates."""

    async def look() -> str:
        for daemon in daemons:
            async with StateClient(daemon.target) as client:
                if (await client.migration.status(limit=0)).owner.is_self:
                    return daemon.target
        return ""

    return await eventually(look, seconds=_SECONDS)


async def failover(
    start: Callable[..., DaemonProcess], folder: Path, pair: Pair, *, rounds: int, progressions: int, size: int
) -> str:
    """Kill the primary and promote the standby so often, under load and a migration; lines of what was seen."""
    daemons = [start(pair.url, listen__socket=str(folder / f"{name}.sock"), **_FLAGS) for name in ("one", "two")]
    before = {f"p{number:02d}": [f"old-{number}-{place}" for place in range(size)] for number in range(progressions)}
    async with StateClient(daemons[0].target) as client:
        await client.migration.pause(reason="until everything is there")
        for progression, ids in before.items():
            await client.create_progression(progression, ids)
        await client.create_progression(SESSION)
        await client.create_session({"id": SESSION, "progression_id": SESSION, "status": "running"})
        await client.migration.resume()
    async with AsyncExitStack() as stack:
        targets = [daemon.target for daemon in daemons] * (_CLIENTS // 2)
        clients = [
            await stack.enter_async_context(_client(target, f"c{number}-", sorted(before)))
            for number, target in enumerate(targets)
        ]
        scene = _Scene(pair, daemons, clients)
        for number in range(rounds):
            if number:
                pair.renew()
            await scene.lose_the_primary()
    status = await finish_migration(await _owner(daemons))
    answered_unknown = sum(map(_unknown, daemons))
    assert [0, 0] == [daemon.stop() for daemon in daemons]
    load = Load("", [*sorted(before), SESSION])
    load.writers = [writer for client in clients for writer in client.writers]
    found, phases = await orders_in(pair.dsn)
    load.check(found, before)
    assert {"items": progressions + 1} == {phase: count for phase, count in status.phases.items() if count}, status
    assert {"items"} == set(phases.values())
    await verify_all(pair.url, sorted(before))
    messages = await _messages(pair.dsn)
    acknowledged = {mid for writer in load.writers for _, mid in writer.acknowledged}
    refused = Counter(code for writer in load.writers for code in writer.refused.values())
    assert acknowledged <= messages
    assert not messages & {mid for writer in load.writers for mid in writer.refused}
    unknown = {mid for writer in load.writers for mid in writer.unknown}
    doubts = sum(writer.doubts for writer in load.writers)
    lines = [f"{number + 1}: {told}" for number, told in enumerate(scene.told)]
    lines.append(
        f"{len(acknowledged)} messages acknowledged, each there once and in order; {dict(refused)} refused and not"
        f" there; {answered_unknown} answered as unknown by the daemons, {doubts} to"
        f" clients, {len(unknown)} left so, {len(unknown & messages)} of them there"
    )
    return "\n".join(lines)
