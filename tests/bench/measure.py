"""Clocks and statistics: interleaved samples, open and closed loops. Ratios come from one run, never from two."""

from __future__ import annotations

import asyncio
import gc
import inspect
import statistics
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeAlias

__all__ = [
    "Arm",
    "Samples",
    "closed_loop",
    "interleave",
    "median_of",
    "milliseconds",
    "open_loop",
    "percentile",
    "ratio",
]

Arm: TypeAlias = Callable[[int], Any]
Samples: TypeAlias = dict[str, list[int]]


def percentile(samples: Sequence[float], fraction: float) -> float:
    """The sample below which ``fraction`` of them lie (nearest rank)."""
    ordered = sorted(samples)
    return ordered[min(len(ordered) - 1, int(fraction * len(ordered)))]


def median_of(values: Sequence[float]) -> float:
    """The median as a float."""
    return float(statistics.median(values))


def milliseconds(nanoseconds: float) -> float:
    """For people; three digits after the point."""
    return round(nanoseconds / 1e6, 3)


async def interleave(arms: Mapping[str, Arm], samples: int, *, warm: int = 30, first: int = 0) -> Samples:
    """Time every arm once per turn, in an order that is reversed every other turn.

    Whatever the machine does meanwhile falls on all arms alike. An arm gets a number that it has not had before.
    """
    taken: Samples = {name: [] for name in arms}
    plain = {name: not inspect.iscoroutinefunction(arm) for name, arm in arms.items()}
    order = list(arms)
    gc.collect()
    for turn in range(samples + warm):
        for name in order:
            arm = arms[name]
            began = time.perf_counter_ns()
            if plain[name]:
                arm(first + turn)
            else:
                await arm(first + turn)
            spent = time.perf_counter_ns() - began
            if turn >= warm:
                taken[name].append(spent)
        order.reverse()
    return taken


def ratio(rounds: Sequence[Samples], above: str, below: str, fraction: float) -> float:
    """The median over the rounds of one percentile of ``above`` by that of ``below``."""
    return median_of([percentile(r[above], fraction) / percentile(r[below], fraction) for r in rounds])


async def closed_loop(
    work: Callable[[int, int], Awaitable[Any]], callers: int, seconds: float
) -> tuple[int, list[int]]:
    """So many callers, each starts again as soon as it is answered; how many were answered, and each latency."""
    latencies: list[int] = []
    stop = time.monotonic() + seconds

    async def call(caller: int) -> None:
        turn = 0
        while time.monotonic() < stop:
            began = time.perf_counter_ns()
            await work(caller, turn)
            latencies.append(time.perf_counter_ns() - began)
            turn += 1

    await asyncio.gather(*(call(caller) for caller in range(callers)))
    return len(latencies), latencies


async def open_loop(
    work: Callable[[int], Awaitable[Any]], per_second: float, until: Callable[[], bool], *, first: int = 0
) -> list[int]:
    """Start a call every so often whether or not earlier ones were answered; latency counts from the planned start."""
    latencies: list[int] = []
    running: set[asyncio.Task[None]] = set()
    origin = time.perf_counter_ns()
    step = 1e9 / per_second

    async def call(number: int, planned: int) -> None:
        await work(number)
        latencies.append(time.perf_counter_ns() - planned)

    turn = 0
    while not until():
        planned = origin + int(turn * step)
        wait = (planned - time.perf_counter_ns()) / 1e9
        if wait > 0:
            await asyncio.sleep(wait)
        task = asyncio.create_task(call(first + turn, planned))
        running.add(task)
        task.add_done_callback(running.discard)
        turn += 1
    while running:
        await asyncio.gather(*list(running))
    return latencies
