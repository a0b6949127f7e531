"""Rows 9, 16 and 17: several processes on one store."""

from __future__ import annotations

import asyncio
import time
from contextlib import AsyncExitStack
from itertools import pairwise
from typing import Any

from tests.bench.context import Bench, available
from tests.bench.measure import median_of, milliseconds, percentile
from tests.bench.peers import Process, start_peer
from tests.bench.report import Row
from tests.bench.rows.peers import start_worker
from tests.bench.stores import History

__all__ = ["against_lionagi", "fair", "one_conversation"]

_PROCESSES = 4
_ROUNDS = 3
_HISTORY = {f"p{number}": 1_000 for number in range(_PROCESSES)}


async def workers_on(stack: AsyncExitStack, target: str, synchronous: str, names: list[str]) -> list[Process]:
    """One process per name, each on the conversation of its name, all open."""
    workers = []
    for number, name in enumerate(names):
        worker = await stack.enter_async_context(await start_worker())
        await worker.call("open", target=target, synchronous=synchronous, name=name, mark=f"w{number}-")
        workers.append(worker)
    return workers


async def what_to_write(row: Row, worker: Process) -> str:
    """``record`` where the build has messages, else ``append``, with a note."""
    if await worker.call("supports", method="record_message"):
        return "record"
    row.missing.append("record_message: the figures are for ids alone")
    return "append"


async def at_once(processes: list[Process], what: str, seconds: float, first: int) -> list[dict[str, Any]]:
    """All processes call in a closed loop for the same time."""
    start_at = time.time() + 0.1
    calls = (process.call("loop", what=what, seconds=seconds, start_at=start_at, first=first) for process in processes)
    return list(await asyncio.gather(*calls))


async def against_lionagi(bench: Bench) -> Row:
    """Row 9: four processes through the daemon (FULL) against four on LionAGI (NORMAL), a conversation each."""
    row = Row(9, "4 processes through the daemon against 4 on LionAGI: live messages")
    if not bench.peers:
        row.missing.append("needs --peers")
        return row
    for size in (1_000, 100_000):
        with available(row, f"{size:,} ids"):
            await _against_lionagi(bench, row, size)
    return row


async def _against_lionagi(bench: Bench, row: Row, size: int) -> None:
    names = list(_HISTORY)
    async with AsyncExitStack() as stack:
        theirs = []
        path = str(bench.new_path("lionagi"))
        for name in names:
            peer = await stack.enter_async_context(await start_peer("lionagi 0.36.0"))
            await peer.call("open", target=path, synchronous="NORMAL", name=name)
            await peer.call("fill", count=size)
            theirs.append(peer)
        store = await bench.sqlite(History(dict.fromkeys(names, size)))
        daemon = await stack.enter_async_context(bench.daemon(store, "FULL"))
        ours = await workers_on(stack, daemon.target, "FULL", names)
        what = await what_to_write(row, ours[0])
        rates, tails, told = [], [], {}
        seconds = bench.seconds(4, 1.5)
        for number in range(_ROUNDS):
            found = {}
            for who, processes, kind in (("lionagi", theirs, "record"), ("lionstate", ours, what)):
                answers = await at_once(processes, kind, seconds, number * 1_000_000)
                latencies = [sample for answer in answers for sample in answer["latencies"]]
                errors = sum(answer["errors"] for answer in answers)
                found[who] = (len(latencies) / seconds, percentile(latencies, 0.99))
                told[who] = f"{len(latencies) / seconds:,.0f}/s, p99 {milliseconds(found[who][1])} ms, {errors} errors"
            rates.append(found["lionstate"][0] / found["lionagi"][0])
            tails.append(found["lionstate"][1] / found["lionagi"][1])
    row.add(f"{size:,} ids: messages/s", median_of(rates), 10.0, at_least=True)
    row.add(f"{size:,} ids: p99", median_of(tails), 0.05)
    row.notes[f"{size:,} ids, last round"] = told


async def fair(bench: Bench) -> Row:
    """Row 16: how evenly four processes are served."""
    row = Row(16, "4 processes through the daemon: least / most served, FULL")
    with available(row, "daemon"):
        async with AsyncExitStack() as stack:
            store = await bench.sqlite(History(_HISTORY))
            daemon = await stack.enter_async_context(bench.daemon(store, "FULL"))
            workers = await workers_on(stack, daemon.target, "FULL", list(_HISTORY))
            what = await what_to_write(row, workers[0])
            shares, counts = [], []
            for number in range(_ROUNDS):
                answers = await at_once(workers, what, bench.seconds(4, 1.5), number * 1_000_000)
                counts = sorted(len(answer["latencies"]) for answer in answers)
                shares.append(counts[0] / counts[-1])
        row.add("sqlite, one caller each", median_of(shares), 0.9, at_least=True)
        row.notes["served in the last round"] = counts
    return row


async def one_conversation(bench: Bench) -> Row:
    """Row 17: four writers and a reader on one conversation; every count has to be zero."""
    row = Row(17, "4 processes and a reader on ONE conversation: lost, doubled, reordered, not a prefix")
    for database in ("sqlite", "postgresql"):
        for where in ("in process", "daemon"):
            with available(row, f"{database}, {where}"):
                async with AsyncExitStack() as stack:
                    history = History({"a": 1_000})
                    target: Any = await bench.store(database, history)
                    if where == "daemon":
                        target = (await stack.enter_async_context(bench.daemon(target))).target
                    await _one_conversation(bench, row, f"{database}, {where}", str(target), stack)
    return row


async def _one_conversation(bench: Bench, row: Row, label: str, target: str, stack: AsyncExitStack) -> None:
    workers = await workers_on(stack, target, "FULL", ["a"] * (_PROCESSES + 1))
    *writers, reader = workers
    record = await reader.call("supports", method="record_message")
    what = "record_repeating" if record else "append"
    seconds = bench.seconds(4, 2)
    reading = asyncio.create_task(reader.call("snapshots", seconds=seconds + 0.5))
    answers = await at_once(writers, what, seconds, 0)
    seen = await reading
    stored = await reader.call("stored")
    writers_of = [(f"w{n}-", len(a["latencies"]), a["errors"]) for n, a in enumerate(answers)]
    counts = judge(stored["branch"], writers_of, seen)
    if record:
        of_session = judge(stored["session"], writers_of, {"broken": 0, "last": []})
        counts = {name: value + of_session[name] for name, value in counts.items()}
    for name, value in counts.items():
        row.add(f"{label}: {name}", value, 0.0, unit="")
    total = sum(len(answer["latencies"]) for answer in answers)
    errors = sum(answer["errors"] for answer in answers)
    row.notes[label] = f"{total} acknowledged {what}s, {errors} errors, {seen['taken']} snapshots"
    if not record:
        row.missing.append(f"{label}: record_message; ids alone were written")


def judge(stored: list[str], writers: list[tuple[str, int, int]], seen: dict[str, Any]) -> dict[str, int]:
    """Compare what is stored with what was acknowledged; a call that raised may be there or not."""
    lost = reordered = 0
    for mark, acknowledged, errors in writers:
        own = [mid for mid in stored if mid.startswith(mark)]
        lost += max(0, acknowledged - len(own)) if errors else abs(acknowledged - len(own))
        reordered += sum(after < before for before, after in pairwise(own))
    broken = seen["broken"] + (stored[: len(seen["last"])] != seen["last"])
    return {"lost": lost, "doubled": len(stored) - len(set(stored)), "reordered": reordered, "not a prefix": broken}
