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

__all__ = ["in_process", "on_postgresql"]

_CALLERS = 64
_TALKS = [Conversation.named(f"c{number}") for number in range(8)]
_HISTORY = History({f"c{number}": 1_000 for number in range(8)})
_ROUNDS = 3

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


class _FloorBatches:
    """Feeds a floor with batches of 64 made the same way, and counts what it did in a time."""

    def __init__(self, floor: SqliteFloor | PostgresqlFloor) -> None:
        self._floor = floor
        self._turn = 0

    async def run(self, seconds: float, *, messages: bool) -> float:
        """Operations a second."""
        stop, began, done = time.monotonic() + seconds, time.monotonic(), 0
        floor: Any = self._floor
        while time.monotonic() < stop:
            self._turn += 1
            talks = [_TALKS[caller % len(_TALKS)] for caller in range(_CALLERS)]
            if messages:
                made = [message(self._turn, prefix=f"f{caller:02d}") for caller in range(_CALLERS)]
                written = floor.record_batch(list(zip(made, talks, strict=True)))
            else:
                ids = [f"f{caller:02d}-{self._turn:026d}" for caller in range(_CALLERS)]
                written = floor.append_batch([(t.branch_progression, i) for t, i in zip(talks, ids, strict=True)])
            if asyncio.iscoroutine(written):
                await written
            done += _CALLERS
        return done / (time.monotonic() - began)


async def against_floor(
    bench: Bench,
    row: Row,
    name: str,
    floor: SqliteFloor | PostgresqlFloor,
    works: dict[str, Callable[[str], Work]],
    limit: float | None,
) -> None:
    """Alternate short runs of lionstate and of the floor, per kind of work; the median of the ratios."""
    batches = _FloorBatches(floor)
    seconds = bench.seconds(1.5, 0.6)
    for kind, make in works.items():
        messages = kind == "record_message"
        with available(row, f"{name}, {kind}"):
            ratios, rates, floors, latencies = [], [], [], []
            await closed_loop(make("w"), _CALLERS, 0.3)
            await batches.run(0.2, messages=messages)
            for number in range(_ROUNDS):
                below = await batches.run(seconds / 2, messages=messages)
                began = time.monotonic()
                done, taken = await closed_loop(make(f"{number}"), _CALLERS, seconds)
                rate = done / (time.monotonic() - began)
                below = (below + await batches.run(seconds / 2, messages=messages)) / 2
                ratios.append(rate / below)
                rates.append(rate)
                floors.append(below)
                latencies += taken
            bound = limit if messages else None
            row.add(f"{name}: 64 callers, {kind}", median_of(ratios), bound, at_least=True)
            row.notes[f"{name}, {kind}"] = (
                f"{median_of(rates):,.0f}/s against {median_of(floors):,.0f}/s; "
                f"p50/p99 {milliseconds(percentile(latencies, 0.5))}/{milliseconds(percentile(latencies, 0.99))} ms"
            )


def _works(state: Any) -> dict[str, Callable[[str], Work]]:
    return {
        "append_to_progression": lambda tag: appender(state, f"a{tag}"),
        "record_message": lambda tag: recorder(state, f"r{tag}"),
    }


async def in_process(bench: Bench) -> Row:
    """Row 4: SQLite, ``FULL``."""
    row = Row(4, "64 callers in process / raw floor in batches of 64, FULL")
    floor = SqliteFloor(await bench.sqlite(_HISTORY), sqlite3, "FULL")
    async with bench.state(await bench.sqlite(_HISTORY), "FULL") as state:
        await against_floor(bench, row, "sqlite", floor, _works(state), 0.45)
    floor.close()
    return row


async def on_postgresql(bench: Bench) -> Row:
    """Row 6: PostgreSQL with default durability, asyncpg as the floor."""
    row = Row(6, "64 callers on PostgreSQL / raw asyncpg set-based, batches of 64")
    with available(row, "postgresql"):
        async with AsyncExitStack() as stack:
            floor = await PostgresqlFloor.open(await bench.postgresql(_HISTORY))
            state = await stack.enter_async_context(bench.state(await bench.postgresql(_HISTORY)))
            await against_floor(bench, row, "postgresql", floor, _works(state), 0.55)
            await floor.close()
    return row
