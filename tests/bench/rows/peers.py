"""Rows 7 and 8: against LionAGI's live path and against other stores; rounds alternate, each in its own process."""

from __future__ import annotations

import sys
from typing import Any

from tests.bench.context import Bench, NotAvailableError, available
from tests.bench.measure import median_of, milliseconds, percentile
from tests.bench.peers import PEERS, Process, start_peer
from tests.bench.report import Row
from tests.bench.stores import History

__all__ = ["lionagi_live", "other_stores", "start_worker"]

_ROUNDS = 3


async def start_worker() -> Process:
    """lionstate in a process of its own."""
    return await Process.start(sys.executable, "-m", "tests.bench.worker")


async def need(worker: Process, method: str) -> None:
    """NotAvailableError if this build has no such method."""
    if not await worker.call("supports", method=method):
        raise NotAvailableError(f"lionstate has no {method} yet")


async def rounds_p50(arms: dict[str, tuple[Process, str]], samples: int) -> dict[str, list[float]]:
    """p50 of each arm per round; the arms take turns, in an order that is reversed every other round."""
    taken: dict[str, list[float]] = {name: [] for name in arms}
    order = list(arms)
    for number in range(_ROUNDS):
        for name in order:
            process, what = arms[name]
            found = await process.call("measure", what=what, samples=samples, first=number * 10_000)
            taken[name].append(percentile(found["latencies"], 0.5))
        order.reverse()
    return taken


async def lionagi_live(bench: Bench) -> Row:
    """Row 7."""
    row = Row(7, "record_message against LionAGI 0.36.0's live path, SQLite in process, NORMAL")
    if not bench.peers:
        row.missing.append("needs --peers")
        return row
    for size, limit in ((1_000, 15.0), (100_000, 300.0)):
        with available(row, f"{size:,} ids"):
            store = await bench.sqlite(History({"a": size}))
            async with await start_peer("lionagi 0.36.0") as peer, await start_worker() as worker:
                await peer.call("open", target=str(bench.new_path("lionagi")), synchronous="NORMAL")
                await peer.call("fill", count=size)
                await worker.call("open", target=str(store), synchronous="NORMAL")
                await need(worker, "record_message")
                arms = {"lionagi": (peer, "record"), "lionstate": (worker, "record")}
                taken = await rounds_p50(arms, bench.samples(40, 15))
                await worker.call("close")
            faster = [above / below for above, below in zip(taken["lionagi"], taken["lionstate"], strict=True)]
            row.add(f"{size:,} ids: times faster, p50", median_of(faster), limit, at_least=True)
            row.notes[f"{size:,} ids, p50 ms"] = {name: milliseconds(median_of(found)) for name, found in taken.items()}
    return row


async def other_stores(bench: Bench) -> Row:
    """Row 8: an append (a whole message, as the peers have it) and the tail of 200, at every size."""
    row = Row(8, "single append and tail of 200 against the best peer, p50, same durability")
    if not bench.peers:
        row.missing.append("needs --peers")
        return row
    sizes = (1_000, 10_000) if bench.quick else (0, 1_000, 10_000, 100_000)
    for database, synchronous in (("sqlite", "FULL"), ("sqlite", "NORMAL"), ("postgresql", "default")):
        for size in sizes:
            with available(row, f"{database} {synchronous}, {size:,}"):
                await _one_size(bench, row, database, synchronous, size)
    return row


async def _one_size(bench: Bench, row: Row, database: str, synchronous: str, size: int) -> None:
    history = History({"a": size}, messages=True)
    target: Any = await bench.store(database, history)
    best: dict[str, tuple[float, str]] = {}
    ratios: dict[str, list[tuple[float, str]]] = {"append": [], "tail": []}
    async with await start_worker() as worker:
        setting = "FULL" if database == "postgresql" else synchronous
        await worker.call("open", target=str(target), synchronous=setting)
        record = "record" if await worker.call("supports", method="record_message") else "append"
        tail = await worker.call("supports", method="list_progression_items")
        for name, (_, _, databases) in PEERS.items():
            if database not in databases or (name.startswith("lionagi") and synchronous == "FULL"):
                continue
            try:
                await _against(bench, name, database, setting, size, worker, record, tail, ratios, best)
            except NotAvailableError as error:
                row.missing.append(f"{database} {synchronous}, {size:,}, {name}: {error}")
        await worker.call("close")
    label = f"{database} {synchronous}, {size:,}"
    if record == "append":
        row.missing.append(f"{label}: record_message; the figure is for an id alone")
    for kind, found in ratios.items():
        if found:
            value, name = min(found)
            row.add(f"{label}: {kind}, times faster than {name}", value, 1.0, at_least=True)
    row.notes[f"{label}, ms"] = {key: f"{value:.3f}" for key, (value, _) in best.items()}


async def _against(
    bench: Bench,
    name: str,
    database: str,
    synchronous: str,
    size: int,
    worker: Process,
    record: str,
    tail: bool,
    ratios: dict[str, list[tuple[float, str]]],
    best: dict[str, tuple[float, str]],
) -> None:
    target = str(bench.new_path("peer")) if database == "sqlite" else bench.empty_database()
    async with await start_peer(name) as peer:
        await peer.call("open", target=target, synchronous=synchronous)
        await peer.call("fill", count=size)
        for kind, ours in (("append", record), ("tail", "tail")):
            if kind == "tail" and (not tail or size == 0):
                continue
            samples = bench.samples(25, 10)
            taken = await rounds_p50({"peer": (peer, kind), "lionstate": (worker, ours)}, samples)
            pairs = zip(taken["peer"], taken["lionstate"], strict=True)
            ratios[kind].append((median_of([above / below for above, below in pairs]), name))
            best[f"{name} {kind}"] = (milliseconds(median_of(taken["peer"])), name)
            best[f"lionstate {kind}"] = (milliseconds(median_of(taken["lionstate"])), name)
        await peer.call("close")
