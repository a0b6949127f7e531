"""Rows 1, 2 and 12: one append after another, and bounded reads."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from contextlib import AsyncExitStack, nullcontext
from pathlib import Path
from typing import Any

from lionstate import StateClient
from tests.bench.context import Bench, available, grown_log, one_core
from tests.bench.floor import PostgresqlFloor, SqliteFloor
from tests.bench.measure import Samples, interleave, milliseconds, percentile, ratio
from tests.bench.report import Row
from tests.bench.stores import Conversation, History

__all__ = [
    "CASES",
    "all_of",
    "flat",
    "flat_ratio",
    "flat_rounds",
    "reads_at_a_million",
    "rounds_of",
    "single_against_floor",
    "tell",
]

_TALK = Conversation.named("a")
_SHORT = 1_000


def _appender(state: Any, tag: str, pid: str = _TALK.branch_progression) -> Callable[[int], Any]:
    async def append(turn: int) -> None:
        await state.append_to_progression(pid, f"{tag}{turn:029d}")

    return append


async def rounds_of(arms: dict[str, Any], samples: int, rounds: int = 3, warm: int = 50) -> list[Samples]:
    """Several rounds of interleaved samples; every round gets numbers of its own."""
    return [await interleave(arms, samples, warm=warm, first=number * (samples + warm)) for number in range(rounds)]


CASES = tuple((database, where) for database in ("sqlite", "postgresql") for where in ("in process", "daemon"))


async def flat_rounds(
    bench: Bench, database: str, where: str, samples: int, rounds: int, phase: str = "items"
) -> list[Samples]:
    """Appends at 1,000 and at 100,000 items: a store each, warmed, samples interleaved (ADR-0117 D6)."""
    async with AsyncExitStack() as stack:
        arms = {}
        for size in (_SHORT, bench.long_history):
            history = History({"a": size}, phase=phase)
            target: Any = await bench.store(database, history)
            if where == "daemon":
                daemon = await stack.enter_async_context(bench.daemon(target))
                state: Any = await stack.enter_async_context(StateClient(daemon.target))
            else:
                state = await stack.enter_async_context(bench.state(target, "FULL"))
            arms[f"{size}"] = _appender(state, f"x{size}")
            if isinstance(target, Path):
                # Or what is measured is which of the two was checkpointed first, and writes over old frames.
                grown_log(target)
        return await rounds_of(arms, samples, rounds)


def flat_ratio(rounds: list[Samples]) -> float:
    """p95 at 100,000 by p95 at 1,000: the median of the rounds."""
    return ratio(rounds, "100000", f"{_SHORT}", 0.95)


def all_of(rounds: list[Samples], arm: str) -> list[int]:
    """The samples of one arm over all rounds."""
    return [sample for taken in rounds for sample in taken[arm]]


async def flat(bench: Bench) -> Row:
    """Row 1."""
    row = Row(1, "append does not grow with history")
    for database, where in CASES:
        with available(row, f"{database}, {where}"):
            taken = await flat_rounds(bench, database, where, bench.samples(500, 120), 3 if bench.quick else 5)
            row.add(f"{database}, {where}: append p95 at 100,000 / at 1,000", flat_ratio(taken), 1.2)
            tell(row, f"{database}, {where}", taken)
    return row


async def single_against_floor(bench: Bench) -> Row:
    """Row 2: one append awaited in process against the bare driver, ``NORMAL``; without ``one_core`` told beside it."""
    row = Row(2, "single append in process / raw floor, p50, NORMAL")
    history = History({"a": bench.long_history})
    for name, cores, limit in (("sqlite, one core", one_core(), 3.5), ("sqlite, any core", nullcontext(), None)):
        store, other_store = await bench.sqlite(history), await bench.sqlite(history)
        with cores:
            async with bench.state(store) as state:
                floor = SqliteFloor(other_store, sqlite3, "NORMAL")

                def raw(turn: int, floor: SqliteFloor = floor) -> None:
                    floor.append(_TALK.branch_progression, f"f{turn:031d}")

                arms = {"lionstate": _appender(state, "x"), "floor": raw}
                taken = await rounds_of(arms, bench.samples(2_000, 400), rounds=3 if bench.quick else 5)
                row.notes[f"{name}, CPU of one operation, us"] = await _cpu(state, raw)
                floor.close()
        row.add(name, ratio(taken, "lionstate", "floor", 0.5), limit)
        tell(row, name, taken)
    with available(row, "postgresql"):
        async with bench.state(await bench.postgresql(history)) as state:
            other = await PostgresqlFloor.open(await bench.postgresql(history))

            async def raw_pg(turn: int) -> None:
                await other.append(_TALK.branch_progression, f"f{turn:031d}")

            taken = await rounds_of({"lionstate": _appender(state, "x"), "floor": raw_pg}, bench.samples(400, 100))
            await other.close()
        row.add("postgresql, default durability (told, no limit)", ratio(taken, "lionstate", "floor", 0.5))
        tell(row, "postgresql", taken)
    return row


def tell(row: Row, name: str, taken: list[Samples]) -> None:
    """Note the absolute times of every arm."""
    row.notes[f"{name}, p50/p95 ms"] = {
        arm: f"{milliseconds(percentile(all_of(taken, arm), 0.5))}/{milliseconds(percentile(all_of(taken, arm), 0.95))}"
        for arm in taken[0]
    }


async def _cpu(state: Any, raw: Callable[[int], None], count: int = 500) -> dict[str, int]:
    """CPU time per append of the caller's and the writer's thread: steadier than clocks on a busy machine."""
    append = _appender(state, "cpu")
    writer = state.store.writer._thread
    before, loop = await writer.submit(time.thread_time), time.thread_time()
    for turn in range(count):
        await append(turn)
    loop = time.thread_time() - loop
    spent = await writer.submit(time.thread_time) - before
    floor = time.thread_time()
    for turn in range(count):
        raw(10_000_000 + turn)
    floor = time.thread_time() - floor
    return {name: round(found / count * 1e6) for name, found in (("loop", loop), ("writer", spent), ("floor", floor))}


async def reads_at_a_million(bench: Bench) -> Row:
    """Row 12: tail of 200 and count, at the largest history against 10,000."""
    row = Row(12, f"tail of 200 and count at {bench.million:,} / at 10,000 items")
    sizes = (10_000, bench.million)
    for database in ("sqlite", "postgresql"):
        with available(row, database):
            async with AsyncExitStack() as stack:
                states: dict[int, Any] = {}
                for size in sizes:
                    target = await bench.store(database, History({"a": size}))
                    states[size] = await stack.enter_async_context(bench.state(target))
                await _reads(bench, row, database, states)
    return row


async def _reads(bench: Bench, row: Row, database: str, states: dict[int, Any]) -> None:
    pid = _TALK.branch_progression

    def tail(state: Any) -> Any:
        async def read(_turn: int) -> None:
            found = await state.list_progression_items(pid, newest_first=True, limit=200)
            assert len(found) == 200

        return read

    def count(state: Any) -> Any:
        async def read(_turn: int) -> None:
            await state.count_progression_items(pid)

        return read

    small, large = sorted(states)
    with available(row, f"{database}, tail"):
        taken = await rounds_of({str(n): tail(states[n]) for n in states}, bench.samples(300, 80), warm=10)
        row.add(f"{database}: tail of 200, p50", ratio(taken, str(large), str(small), 0.5), 1.3)
        tell(row, f"{database}, tail", taken)
    with available(row, f"{database}, count"):
        taken = await rounds_of({str(n): count(states[n]) for n in states}, bench.samples(15, 5), warm=2)
        row.add(f"{database}: count, p50 (documented, no limit)", ratio(taken, str(large), str(small), 0.5))
        tell(row, f"{database}, count", taken)
