"""Rows 4, 5 and 6: 64 callers at once against the floor in batches of 64."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

from tests.bench.context import Bench, available
from tests.bench.floor import PostgresqlFloor, SqliteFloor
from tests.bench.measure import closed_loop, median_of, milliseconds, percentile
from tests.bench.report import Row
from tests.bench.stores import Conversation, History, message

__all__ = ["CALLERS", "HISTORY", "FloorBatches", "against_rates", "in_process", "on_postgresql", "works_of"]

CALLERS = 64
_TALKS = [Conversation.named(f"c{number}") for number in range(8)]
HISTORY = History({f"c{number}": 1_000 for number in range(8)})
_ROUNDS = 3
# The kind of work that has a limit; the others are told beside it, and left out when it must go quickly.
_LIMITED = "record_message"

Work = Callable[[int, int], Awaitable[Any]]


def recorder(state: Any, tag: str) -> Work:
    """A caller of ``record_message``; 64 callers share eight conversations."""

    async def record(caller: int, turn: int) -> None:
        talk = _TALKS[caller % len(_TALKS)]
        made = message(turn, prefix=f"{tag}{caller:02d}")
        await state.record_message(
            made,
            session_id=talk.session,
            branch_progression_id=talk.branch_progression,
            session_progression_id=talk.session_progression,
        )

    return record


def appender(state: Any, tag: str) -> Work:
    """A caller of ``append_to_progression``."""

    async def append(caller: int, turn: int) -> None:
        talk = _TALKS[caller % len(_TALKS)]
        await state.append_to_progression(talk.branch_progression, f"{tag}{caller:02d}-{turn:025d}")

    return append


class FloorBatches:
    """Feeds a floor with batches made as the callers make their calls, and counts what it did in a time."""

    def __init__(self, floor: SqliteFloor | PostgresqlFloor, batch: int = CALLERS) -> None:
        """Take a floor whose store has ``HISTORY``."""
        self._floor: Any = floor
        self._batch = batch
        self._turn = time.time_ns()

    async def run(self, kind: str, seconds: float) -> float:
        """Operations a second."""
        began, done = time.monotonic(), 0
        talks = [_TALKS[caller % len(_TALKS)] for caller in range(self._batch)]
        while time.monotonic() < began + seconds:
            self._turn += 1
            if kind == "record_message":
                made = [message(self._turn, prefix=f"f{caller:02d}") for caller in range(self._batch)]
                written = self._floor.record_batch(list(zip(made, talks, strict=True)))
            else:
                pairs = [(talk.branch_progression, f"f{n:02d}-{self._turn:026d}") for n, talk in enumerate(talks)]
                written = self._floor.append_batch(pairs)
            if asyncio.iscoroutine(written):
                await written
            done += self._batch
        return done / (time.monotonic() - began)


async def against_rates(
    bench: Bench,
    row: Row,
    name: str,
    below: Callable[[str, float], Awaitable[float]],
    works: dict[str, Callable[[str], Work]],
    limit: float,
) -> None:
    """Alternate short runs of the floor and of lionstate, per kind of work; the median of the ratios."""
    seconds = bench.seconds(1.5, 0.6)
    for kind, make in works.items():
        if bench.quick and kind != _LIMITED:
            continue
        with available(row, f"{name}, {kind}"):
            ratios, rates, floors, latencies = [], [], [], []
            await closed_loop(make("w"), CALLERS, 0.3)
            await below(kind, 0.2)
            for number in range(_ROUNDS):
                before = await below(kind, seconds / 2)
                began = time.monotonic()
                done, taken = await closed_loop(make(f"{number}"), CALLERS, seconds)
                rate = done / (time.monotonic() - began)
                floor = (before + await below(kind, seconds / 2)) / 2
                ratios.append(rate / floor)
                rates.append(rate)
                floors.append(floor)
                latencies += taken
            bound = limit if kind == _LIMITED else None
            row.add(f"{name}: 64 callers, {kind}", median_of(ratios), bound, at_least=True)
            row.notes[f"{name}, {kind}"] = (
                f"{median_of(rates):,.0f}/s against {median_of(floors):,.0f}/s; "
                f"p50/p99 {milliseconds(percentile(latencies, 0.5))}/{milliseconds(percentile(latencies, 0.99))} ms"
            )


def works_of(state: Any) -> dict[str, Callable[[str], Work]]:
    """Both writes, each with a mark that makes its ids its own."""
    return {
        "append_to_progression": lambda mark: appender(state, f"a{mark}"),
        "record_message": lambda mark: recorder(state, f"r{mark}"),
    }


async def in_process(bench: Bench) -> Row:
    """Row 4: SQLite, ``FULL``."""
    row = Row(4, "64 callers in process / raw floor in batches of 64, FULL")
    floor = SqliteFloor(await bench.sqlite(HISTORY), sqlite3, "FULL")
    async with bench.state(await bench.sqlite(HISTORY), "FULL") as state:
        await against_rates(bench, row, "sqlite", FloorBatches(floor).run, works_of(state), 0.45)
    floor.close()
    return row


async def on_postgresql(bench: Bench) -> Row:
    """Row 6: PostgreSQL with default durability, asyncpg as the floor."""
    row = Row(6, "64 callers on PostgreSQL / raw asyncpg set-based, batches of 64")
    with available(row, "postgresql"):
        async with AsyncExitStack() as stack:
            floor = await PostgresqlFloor.open(await bench.postgresql(HISTORY))
            state = await stack.enter_async_context(bench.state(await bench.postgresql(HISTORY)))
            await against_rates(bench, row, "postgresql", FloorBatches(floor).run, works_of(state), 0.55)
            await floor.close()
    return row
