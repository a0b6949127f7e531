"""A daemon whose store is pressed from outside while it migrates: what is named, what goes on, what recovers.

Used by soak/test_pressure.py; the runs of seconds are faults/test_throttled.py.
"""

from __future__ import annotations

import asyncio
import json
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lionstate import StateClient
from lionstate.errors import StateError
from lionstate.migration import MigrationStatus
from tests.demo.processes import DaemonProcess
from tests.support.children import child
from tests.support.load import Load, orders_in

__all__ = ["disk_filled", "disk_left_alone", "foreign_writer", "pinned_reader", "readiness"]

Start = Callable[..., DaemonProcess]

_RECOVERY_SECONDS = 120.0
_FLAGS = {
    "storage__lionagi_compatible": "true",
    "maintenance__enabled": "true",
    "maintenance__interval_seconds": "0.2",
    "maintenance__chunks_per_tick": "1",
}

_READER = """
import sqlite3, sys
conn = sqlite3.connect(sys.argv[1], isolation_level=None)
conn.execute("BEGIN")
conn.execute("SELECT count(*) FROM progressions").fetchall()
print("pinned", flush=True)
sys.stdin.readline()
conn.execute("ROLLBACK")
"""

# Holds the write lock for most of the time, as an import in small transactions does.
_HOLDER = """
import sqlite3, sys, threading, time
path, hold, rest = sys.argv[1], float(sys.argv[2]), float(sys.argv[3])
conn = sqlite3.connect(path, isolation_level=None, timeout=30)
stop = threading.Event()
threading.Thread(target=lambda: (sys.stdin.readline(), stop.set()), daemon=True).start()
print("holding", flush=True)
began, held = time.monotonic(), 0.0
while not stop.is_set():
    conn.execute("BEGIN IMMEDIATE")
    taken = time.monotonic()
    conn.execute("UPDATE schema_meta SET value = value WHERE key = 'lineage'")
    time.sleep(hold)
    conn.execute("COMMIT")
    held += time.monotonic() - taken
    time.sleep(rest)
print(held / (time.monotonic() - began), flush=True)
"""


async def _until(look: Callable[[], Awaitable[bool]], *, seconds: float) -> None:
    async with asyncio.timeout(seconds):
        while True:
            if await look():
                return
            await asyncio.sleep(0.05)


def readiness(ops: str) -> dict[str, Any]:
    """What ``/readyz`` says."""
    try:
        with urllib.request.urlopen(f"http://{ops}/readyz", timeout=10) as answer:
            found: dict[str, Any] = json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            found = json.load(error)
    return found


@dataclass
class Watch:
    """What the status said while it was looked at.

    Attributes:
        signals: How often each signal was tripped when somebody looked.
        highest: The highest value of each.
        oldest: The highest age of each.
        copied: Elements that were copied between the first look and the last.
        slowest: Seconds that the slowest answer took.
    """

    signals: Counter[str] = field(default_factory=Counter)
    highest: dict[str, float] = field(default_factory=dict)
    oldest: dict[str, float] = field(default_factory=dict)
    looks: int = 0
    slowest: float = 0.0

    def take(self, status: MigrationStatus, seconds: float) -> None:
        """Note one status."""
        self.looks += 1
        self.slowest = max(self.slowest, seconds)
        for one in status.throttle.tripped:
            self.signals[one.signal] += 1
            self.highest[one.signal] = max(self.highest.get(one.signal, 0.0), one.value or 0.0)
            self.oldest[one.signal] = max(self.oldest.get(one.signal, 0.0), one.age_seconds or 0.0)

    def line(self) -> str:
        """All of it in a line."""
        told = [
            f"{name} in {count} of {self.looks} looks (up to {self.highest[name]:g}, for {self.oldest[name]:.0f} s)"
            for name, count in sorted(self.signals.items())
        ]
        return f"{'; '.join(told) or 'no signal'}; slowest status {self.slowest * 1000:.0f} ms"


async def _watch(client: StateClient, seconds: float) -> Watch:
    watch, until = Watch(), time.monotonic() + seconds
    while time.monotonic() < until:
        began = time.monotonic()
        watch.take(await client.migration.status(limit=0), time.monotonic() - began)
        await asyncio.sleep(min(1.0, seconds / 20))
    return watch


@dataclass
class _Scene:
    daemon: DaemonProcess
    client: StateClient
    load: Load
    before: dict[str, list[str]]

    def p99(self) -> str:
        """How long the appends took."""
        took = sorted(self.load.seconds)
        half, most = (took[len(took) * percent // 100] * 1000 for percent in (50, 99))
        return f"p50 {half:.0f} ms, p99 {most:.0f} ms, longest {took[-1]:.2f} s"

    async def acknowledged(self) -> int:
        return sum(len(writer.acknowledged) for writer in self.load.writers)

    async def goes_on(self) -> None:
        """Wait until the daemon migrates by itself, or has."""
        start = (await self.client.migration.status(limit=0)).progress.fraction

        async def moved() -> bool:
            return (await self.client.migration.status(limit=0)).progress.fraction > min(start, 0.999)

        await _until(moved, seconds=_RECOVERY_SECONDS)

    async def finish(self) -> None:
        """Migrate the rest as fast as it goes."""
        give_up = time.monotonic() + _RECOVERY_SECONDS
        while (step := await self.client.migration.step(max_items=100_000, max_seconds=5.0)).stop_reason != "done":
            assert time.monotonic() < give_up, (step, await self.client.migration.status(limit=0))
            await asyncio.sleep(0.01)

    def refusals(self) -> dict[str, int]:
        """Codes of what was refused and not repeated, and how much is unknown."""
        found = Counter(code for writer in self.load.writers for code in writer.refused.values())
        found["unknown"] = sum(len(writer.unknown) for writer in self.load.writers)
        return {code: count for code, count in found.items() if count}


@asynccontextmanager
async def _scene(start: Start, path: Path, *, count: int, size: int, **flags: str) -> AsyncIterator[_Scene]:
    """A daemon that migrates while 50 appends a second arrive; at the end every reply is held against the store."""
    daemon = start(path, **{**_FLAGS, **flags})
    before = {f"p{number:02d}": [f"old-{number}-{place}" for place in range(size)] for number in range(count)}
    async with StateClient(daemon.target, timeout=60) as client:
        await client.migration.pause(reason="until everything is there")
        for progression, ids in before.items():
            await client.create_progression(progression, ids)
        load = Load(daemon.target, sorted(before), rate=50.0)
        scene = _Scene(daemon, client, load, before)
        async with load.running():
            await load.acknowledge(50)
            await client.migration.resume()
            yield scene
            await load.acknowledge(50)
        await scene.goes_on()
        await scene.finish()
        status = await client.migration.status(limit=0)
        assert {"items": count} == {phase: n for phase, n in status.phases.items() if n}
        assert "ready" == readiness(daemon.ops)["state"]
    assert 0 == daemon.stop()
    found, _ = await orders_in(str(path))
    load.check(found, before)


async def pinned_reader(start: Start, folder: Path, *, seconds: float, **knobs: float) -> str:
    """Another process keeps a read transaction open; a line of what was seen."""
    path = folder / "state.db"
    async with _scene(start, path, count=20, size=10_000) as scene:
        client = scene.client
        for name, value in knobs.items():
            await client.migration.set_knob(name, value)

        async def copies() -> bool:
            return (await client.migration.status(limit=0)).phases["dual"] > 0

        await _until(copies, seconds=20.0)
        with child(_READER, path) as reader:
            assert reader.stdout is not None and reader.stdin is not None
            assert "pinned\n" == reader.stdout.readline()
            first = await scene.acknowledged()
            watch = await _watch(client, seconds)
            appended = await scene.acknowledged() - first
            log = path.with_name(path.name + "-wal").stat().st_size
            pinned = {"wal_pinned", "wal_frames"} & watch.signals.keys()
            assert pinned, watch.line()
            step = await client.migration.step()
            assert ("throttled", 0) == (step.stop_reason, step.items)
            assert "ready" == readiness(scene.daemon.ops)["state"]
            reader.stdin.write("\n")
            reader.stdin.flush()
            reader.wait(10)
            released = time.monotonic()

        async def eased() -> bool:
            return not (await client.migration.status(limit=0)).throttle.throttled

        await _until(eased, seconds=_RECOVERY_SECONDS)
        recovered = time.monotonic() - released
    assert not scene.refusals(), scene.refusals()
    return (
        f"reader for {seconds:g} s: {appended} appends acknowledged meanwhile ({appended / seconds:.0f}/s),"
        f" {scene.p99()}; log {log / 2**20:.0f} MiB; {watch.line()}; not throttled"
        f" {recovered:.1f} s after the release, all moved"
    )


async def foreign_writer(start: Start, folder: Path, *, seconds: float, hold: float = 0.4, rest: float = 0.1) -> str:
    """Another process takes the lock for most of the time; half of it migration is paused (faults 5, 7)."""
    path = folder / "state.db"
    async with _scene(start, path, count=20, size=4_000) as scene:
        client = scene.client
        await client.migration.pause(reason="an import runs")
        with child(_HOLDER, path, hold, rest) as holder:
            assert holder.stdout is not None and holder.stdin is not None
            assert "holding\n" == holder.stdout.readline()
            first = await scene.acknowledged()
            watch = await _watch(client, seconds / 2)
            status = await client.migration.status(limit=0)
            assert status.pause is not None and "an import runs" == status.pause.reason
            assert not status.blocked, status.blocked
            await client.migration.resume()
            watch_resumed = await _watch(client, seconds / 2)
            appended = await scene.acknowledged() - first
            status = await client.migration.status(limit=0)
            assert (None, {}) == (status.pause, dict(status.blocked))
            assert "lock_wait" in watch_resumed.signals, watch_resumed.line()
            holder.stdin.write("\n")
            holder.stdin.flush()
            share = float(await asyncio.to_thread(holder.stdout.readline))
    return (
        f"lock held {share:.0%} of {seconds:g} s by another process: {appended} appends acknowledged,"
        f" {scene.p99()}, refused or unknown: {scene.refusals() or 'none'}; paused: {watch.line()};"
        f" resumed: {watch_resumed.line()}; all moved after it ended"
    )


def _fill(folder: Path) -> Path:
    """Leave no byte of a file system; the file that took them."""
    filler = folder / "filler"
    with filler.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(4096))
    return filler


async def disk_left_alone(start: Start, folder: Path) -> str:
    """The disk is full at one write and nobody writes again: what the daemon itself writes shows that there is room."""
    daemon = start(folder / "state.db")
    async with StateClient(daemon.target, timeout=60) as client:
        await client.create_progression("p")
        assert {"state": "ready"} == readiness(daemon.ops)
        filler, number = _fill(folder), 0
        refused: StateError | None = None
        while refused is None:
            try:
                await client.append_to_progression("p", f"m{number}")
                number += 1
            except StateError as error:
                refused = error
        said = readiness(daemon.ops)
        assert "reason" in said, (refused, said)
        await asyncio.sleep(5)  # two tries of the probe
        assert said == readiness(daemon.ops)
        assert number == await client.count_progression_items("p")
        filler.unlink()
        freed = time.monotonic()

        async def ready() -> bool:
            return "reason" not in readiness(daemon.ops)

        await _until(ready, seconds=20.0)
        recovered = time.monotonic() - freed
        await client.append_to_progression("p", "after")
        assert number + 1 == await client.count_progression_items("p")
    assert 0 == daemon.stop()
    return (
        f"a write was answered {refused.code}, /readyz said {said['reason']}; ready again {recovered:.1f} s after space"
        " came back, without any caller"
    )


async def disk_filled(start: Start, folder: Path, *, seconds: float) -> str:
    """The file system of the store is filled by somebody else and freed again (fault 46)."""
    path = folder / "state.db"
    async with _scene(start, path, count=10, size=2_000) as scene:
        client = scene.client
        await client.migration.set_knob("free_disk_floor_bytes", 2 * 2**20)
        filler = _fill(folder)
        said: Counter[str] = Counter()

        async def degraded() -> bool:
            found = readiness(scene.daemon.ops)
            return "reason" in found

        await _until(degraded, seconds=20.0)
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            found = readiness(scene.daemon.ops)
            said[str(found.get("reason"))] += 1
            assert scene.before["p00"] == (await client.get_progression("p00"))[: len(scene.before["p00"])]
            await asyncio.sleep(0.2)
        throttle = (await client.migration.status(limit=0)).throttle
        assert "free_disk" in {one.signal for one in throttle.tripped}
        try:
            await client.create_progression("during", ["x"])
            during = "written"
        except StateError as error:
            during = error.code
        filler.unlink()
        freed = time.monotonic()

        async def ready() -> bool:
            return "reason" not in readiness(scene.daemon.ops)

        await _until(ready, seconds=20.0)
        recovered = time.monotonic() - freed
        assert during != "written"
        assert None is await client.get_progression("during") or [] == await client.get_progression("during")
    return (
        f"full for {seconds:g} s: a write was answered {during}, /readyz said {dict(said)}, reads went on; ready again"
        f" {recovered:.1f} s after space came back, without a restart; {scene.refusals() or 'nothing'} refused,"
        " all moved"
    )
