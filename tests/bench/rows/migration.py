"""Rows 10, 11 and 13: what others feel of a migration, how long it holds the lock, what memory it takes."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.bench.context import Bench, NotAvailableError, available
from tests.bench.measure import median_of, milliseconds, open_loop, percentile
from tests.bench.report import Row
from tests.bench.rows.peers import start_worker
from tests.bench.stores import Conversation, History

__all__ = ["appends_meanwhile", "lock_holds", "memory", "one_round"]

_BIG = Conversation.named("big")
_RATE = 200.0
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_OTHERS = 50
_ROUNDS = 3
# One round in which the disk stalls, while it is idle or not, must not decide.
_FELT_ROUNDS = 5
# What an old writer runs for one append: membership by expanding the value, then a new value.
_LEGACY = (
    "UPDATE progressions SET collection = json_insert(collection, '$[#]', :mid) WHERE id = :pid"
    " AND NOT EXISTS (SELECT 1 FROM json_each(progressions.collection) WHERE value = :mid)"
)


def _noted_holds(writer: Any) -> list[float]:
    """From now on, how long the writer held its lock each time; its own observer is told as before."""
    holds: list[float] = []
    observer = writer._observer
    tell = observer.lock_hold

    def lock_hold(lane: str, seconds: float) -> None:
        holds.append(seconds)
        tell(lane, seconds)

    observer.lock_hold = lock_hold
    return holds


async def _mixed_store(bench: Bench, size: int) -> Path:
    """One big JSON progression as LionAGI left it, and fifty small ones in ``items``."""
    path = await bench.sqlite(History({f"o{number}": 200 for number in range(_OTHERS)}))
    ids = await bench.sqlite(History({"big": size}, phase="json"))
    driver = sqlite3.connect(path, isolation_level=None)
    driver.execute("ATTACH ? AS other", (str(ids),))
    for table in ("progressions", "sessions", "branches"):
        driver.execute(f"INSERT INTO main.{table} SELECT * FROM other.{table}")
    driver.execute("DETACH other")
    driver.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    driver.close()
    return path


def service_of(state: Any) -> Any:
    """The migration service of a StateDB or StateClient; NotAvailableError while there is none."""
    try:
        return state.migration
    except AttributeError as error:
        raise NotAvailableError("no migration service yet") from error


async def migrate(service: Any, progression_id: str) -> tuple[float, str]:
    """Steps with default caps until it is in items; seconds, and why the last step ended (with what holds it)."""
    began = time.monotonic()
    while True:
        step = await service.step(progression_id=progression_id)
        reason = str(step.stop_reason)
        if reason not in ("cap_items", "cap_bytes", "cap_seconds", "busy", "throttled"):
            held = f" {dict(step.held)}" if reason == "held" else ""
            return time.monotonic() - began, reason + held


async def appends_meanwhile(bench: Bench) -> Row:
    """Row 10: an open loop of 200 appends a second on fifty other progressions, with and without a migration."""
    row = Row(10, "append p99 on 50 other progressions while 100,000 ids migrate / idle p99")
    for synchronous in ("FULL",):
        with available(row, f"in process, {synchronous}"):
            ratios, durations, told = [], [], []
            for _ in range(bench.samples(_FELT_ROUNDS, _ROUNDS)):
                idle, busy, seconds, reason = await one_round(bench, synchronous)
                ratios.append(percentile(busy, 0.99) / percentile(idle, 0.99))
                durations.append(seconds)
                told.append(
                    f"p50/p99 idle {milliseconds(percentile(idle, 0.5))}/{milliseconds(percentile(idle, 0.99))} ms, "
                    f"migrating {milliseconds(percentile(busy, 0.5))}/{milliseconds(percentile(busy, 0.99))} ms, "
                    f"{len(busy)} appends in {seconds:.1f} s, ended {reason}"
                )
            row.add(f"sqlite, in process, {synchronous}", median_of(ratios), 2.0)
            finished = sum(line.endswith("in items") for line in told) / len(told)
            row.add("migrations that ended in items", finished, 1.0, at_least=True, unit="")
            row.add("seconds the migration took", median_of(durations), unit="s")
            row.notes["rounds"] = told
    return row


async def one_round(bench: Bench, synchronous: str) -> tuple[list[int], list[int], float, str]:
    path = await _mixed_store(bench, bench.long_history)
    async with bench.state(path, synchronous) as state:
        service = service_of(state)

        async def append(number: int) -> None:
            talk = Conversation.named(f"o{number % _OTHERS}")
            await state.append_to_progression(talk.branch_progression, f"x{number:031d}")

        stop = time.monotonic() + bench.seconds(6, 3)
        idle = await open_loop(append, _RATE, lambda: time.monotonic() > stop)
        moving = asyncio.create_task(migrate(service, _BIG.branch_progression))
        busy = await open_loop(append, _RATE, moving.done, first=1_000_000)
        seconds, reason = await moving
        phase = "SELECT phase FROM progression_storage_state WHERE progression_id = ?"
        row = await state.fetch_one(phase, [_BIG.branch_progression])
    return idle, busy, seconds, f"{reason}, in {row['phase'] if row else 'json'}"


async def lock_holds(bench: Bench) -> Row:
    """Row 11: alone on the store, so that every hold of the lock is the migration's."""
    row = Row(11, "longest writer-lock hold of that migration / one legacy JSON append at 100,000, p50")
    legacy = _legacy_append(await bench.sqlite(History({"big": bench.long_history}, phase="json")))
    row.notes["legacy append, raw sqlite3, p50 ms"] = milliseconds(legacy)
    with available(row, "migration"):
        longest = []
        for _ in range(_ROUNDS):
            path = await _mixed_store(bench, bench.long_history)
            async with bench.state(path, "FULL") as state:
                service = service_of(state)
                holds = _noted_holds(state.store.writer)
                await migrate(service, _BIG.branch_progression)
                longest.append(max(holds) * 1e9)
        row.add("sqlite, FULL", median_of(longest) / legacy, 1.0)
        row.notes["longest hold ms, per round"] = [milliseconds(value) for value in longest]
    return row


def _legacy_append(path: Path) -> float:
    driver = sqlite3.connect(path, isolation_level=None)
    driver.execute("PRAGMA journal_mode = WAL")
    driver.execute("PRAGMA synchronous = FULL")
    taken = []
    for turn in range(15):
        began = time.perf_counter_ns()
        driver.execute("BEGIN IMMEDIATE")
        driver.execute(_LEGACY, {"pid": _BIG.branch_progression, "mid": f"legacy-{turn}"})
        driver.execute("COMMIT")
        taken.append(time.perf_counter_ns() - began)
    driver.close()
    return percentile(taken[3:], 0.5)


class _Memory:
    """The resident memory of a process and all that it has started, looked at every few milliseconds."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self.idle = self.peak = self._now()

    def _now(self) -> int:
        return sum(_resident(pid) for pid in (self._pid, *_descendants(self._pid)))

    async def watch(self) -> None:
        """Until it is cancelled."""
        while True:
            self.peak = max(self.peak, self._now())
            await asyncio.sleep(0.01)


def _descendants(pid: int) -> list[int]:
    found: list[int] = []
    # A process, and a thread of it, may be gone by now.
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in map(int, (task / "children").read_text().split()):
                found += [child, *_descendants(child)]
    return found


def _resident(pid: int) -> int:
    with suppress(OSError):
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_BYTES
    return 0


async def memory(bench: Bench) -> Row:
    """Row 13: in a process of its own; children that parse large values count as long as they live.

    The peak is that of the sum, looked at a hundred times a second, and no less than that of the process alone.
    """
    row = Row(13, f"a {bench.million:,}-id progression migrated: peak memory above idle")
    with available(row, "migration"):
        path = await bench.sqlite(History({"a": bench.million}, phase="json"))
        async with await start_worker() as worker:
            await worker.call("open", target=str(path), synchronous="FULL")
            if not await worker.call("supports", method="migration"):
                raise NotAvailableError("no migration service yet")
            resident = _Memory(worker.pid)
            watching = asyncio.create_task(resident.watch())
            found = await worker.call("migrate")
            watching.cancel()
            await worker.call("close")
        peak = max(resident.peak - resident.idle, found["above_idle"]) / 2**20
        row.add("sqlite: MiB, process and its children", peak, 400.0, unit="MiB")
        done = float(found["phase"] == "items")
        row.add("completed under default caps", done, 1.0, at_least=True, unit="")
        row.notes["run"] = found
    return row
