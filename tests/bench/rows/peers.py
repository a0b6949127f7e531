"""Rows 7 and 8: against LionAGI's live path and against other stores; rounds alternate, each in its own process."""

from __future__ import annotations

import itertools
import sqlite3
import sys
import time
from pathlib import Path
from typing import Any

from tests.bench.context import Bench, NotAvailableError, available, grown_log, one_core
from tests.bench.floor import SqliteFloor
from tests.bench.measure import median_of, milliseconds, percentile
from tests.bench.peers import PEERS, Process, start_peer
from tests.bench.report import Row
from tests.bench.stores import Conversation, History, message

__all__ = ["lionagi_live", "other_stores", "start_worker"]

_ROUNDS = 3
# Where every arm is fast a p50 takes many more samples, and rounds, until it stands still: short ones, because a shared
# machine is fast and slow for tenths of a second at a time, and the arms of a round should meet the same of it.
_FAST_NS = 10_000_000
_FAST_ROUNDS = 15
_SLICE_NS = 30_000_000
# No two measures of a run share a number: an id that is there already is not appended again.
_NUMBERS = itertools.count()


async def start_worker() -> Process:
    """lionstate in a process of its own."""
    return await Process.start(sys.executable, "-m", "tests.bench.worker")


async def need(worker: Process, method: str) -> None:
    """NotAvailableError if this build has no such method."""
    if not await worker.call("supports", method=method):
        raise NotAvailableError(f"lionstate has no {method} yet")


async def rounds_p50(arms: dict[str, tuple[Process, str]], samples: int) -> dict[str, list[float]]:
    """p50 of each arm per round; the arms take turns, in an order that is reversed every other round."""

    async def p50(name: str, count: int) -> float:
        process, what = arms[name]
        found = await process.call("measure", what=what, samples=count, first=next(_NUMBERS) * 10_000)
        return percentile(found["latencies"], 0.5)

    order = list(arms)
    first = {name: await p50(name, samples) for name in order}
    fast = max(first.values()) < _FAST_NS
    taken: dict[str, list[float]] = {name: [] for name in arms}
    for _ in range(_FAST_ROUNDS if fast else _ROUNDS):
        order.reverse()
        for name in order:
            count = max(samples, min(10 * samples, int(_SLICE_NS / first[name])))
            taken[name].append(await p50(name, count))
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


# Our work and the peer's that it is held against. LionAGI keeps ids apart from messages, as we do; the others have
# messages only, so that an append of theirs stores one and their tail is its role and content.
_AGAINST_LIONAGI = {
    "append of an id": ("append", "append"),
    "live message (branch and session)": ("record", "record"),
    "tail of 200 ids": ("tail_ids", "tail"),
}
_AGAINST_OTHERS = {
    "append of an id": ("append", "append"),
    "message into one conversation": ("record_once", "append"),
    "live message (branch and session)": ("record", "append"),
    "tail of 200, role and content": ("tail_lean", "tail"),
    "tail of 200, all columns": ("tail", "tail"),
}
_TO_REACH = ("append of an id", "tail of 200 ids", "tail of 200, role and content")


async def other_stores(bench: Bench) -> Row:
    """Row 8: against the peer that is best at it, at every size; the single append is that of row 2, an id.

    The tail is what each peer gives: of LionAGI ids, of the others role and content, which they store as one JSON;
    all eleven columns are printed beside it. So are the forms with a message, and what a raw ``sqlite3`` needs for the
    same message: LionAGI's table of messages has six indexes, those of the peers one or two. Every process runs on one
    core (`one_core`), every SQLite log is as long as in long use (`grown_log`).
    """
    row = Row(8, "append of an id (theirs: a message) and tail of 200 / the best peer, p50, same durability, one core")
    if not bench.peers:
        row.missing.append("needs --peers")
        return row
    sizes = (1_000, 10_000) if bench.quick else (0, 1_000, 10_000, 100_000)
    for database, synchronous in (("sqlite", "FULL"), ("sqlite", "NORMAL"), ("postgresql", "default")):
        for size in sizes:
            with available(row, f"{database} {synchronous}, {size:,}"):
                target: Any = await bench.store(database, History({"a": size}, messages=True))
                # The servers of PostgreSQL have the other core.
                with one_core():
                    await _one_size(bench, row, database, synchronous, size, target)
    return row


async def _one_size(bench: Bench, row: Row, database: str, synchronous: str, size: int, target: Any) -> None:
    ratios: dict[str, list[tuple[float, str]]] = {form: [] for form in (_AGAINST_LIONAGI | _AGAINST_OTHERS)}
    taken: dict[str, float] = {}
    label = f"{database} {synchronous}, {size:,}"
    async with await start_worker() as worker:
        setting = "FULL" if database == "postgresql" else synchronous
        await worker.call("open", target=str(target), synchronous=setting)
        if database == "sqlite":
            grown_log(target)
        for name, (_, _, databases) in PEERS.items():
            if database not in databases or (name.startswith("lionagi") and synchronous == "FULL"):
                continue
            try:
                await _against(bench, name, database, setting, size, worker, ratios, taken)
            except NotAvailableError as error:
                row.missing.append(f"{label}, {name}: {error}")
        await worker.call("close")
    for form, found in ratios.items():
        if found:
            value, name = min(found)
            limit = 1.0 if form in _TO_REACH else None
            row.add(f"{label}: {form} / {name}", value, limit, at_least=True)
    if database == "sqlite":
        taken |= _raw_messages(
            await bench.sqlite(History({"a": size}, messages=True)), synchronous, bench.samples(75, 30)
        )
    row.notes[f"{label}, ms"] = {name: f"{value:.3f}" for name, value in sorted(taken.items())}


def _raw_messages(path: Path, synchronous: str, samples: int) -> dict[str, float]:
    """p50 of what no form of a message can be below: the bare driver, on the caller's own thread."""
    floor, talk = SqliteFloor(path, sqlite3, synchronous), Conversation.named("a")
    taken = {}
    for places, form in ((1, "message into one conversation"), (2, "live message")):
        latencies = []
        for turn in range(samples + 10):
            made = message(turn, prefix=f"raw{places}")
            began = time.perf_counter_ns()
            floor.record(made, talk, places)
            latencies.append(time.perf_counter_ns() - began)
        taken[f"raw sqlite3: {form}"] = milliseconds(percentile(latencies[10:], 0.5))
    floor.close()
    return taken


async def _against(
    bench: Bench,
    name: str,
    database: str,
    synchronous: str,
    size: int,
    worker: Process,
    ratios: dict[str, list[tuple[float, str]]],
    taken: dict[str, float],
) -> None:
    target = str(bench.new_path("peer")) if database == "sqlite" else bench.empty_database()
    async with await start_peer(name) as peer:
        await peer.call("open", target=target, synchronous=synchronous)
        await peer.call("fill", count=size)
        if database == "sqlite":
            # Without a history nothing may have been written yet.
            await peer.call("measure", what="append", samples=1, warm=0, first=next(_NUMBERS) * 10_000)
            grown_log(Path(target))
        forms = _AGAINST_LIONAGI if name.startswith("lionagi") else _AGAINST_OTHERS
        for kind in dict.fromkeys(theirs for _, theirs in forms.values()):
            if kind == "tail" and size == 0:
                continue
            ours = {form: what for form, (what, theirs) in forms.items() if theirs == kind}
            arms = {name: (peer, kind), **{form: (worker, what) for form, what in ours.items()}}
            rounds = await rounds_p50(arms, bench.samples(25, 10))
            for form in ours:
                pairs = zip(rounds[name], rounds[form], strict=True)
                ratios[form].append((median_of([above / below for above, below in pairs]), name))
                taken[f"lionstate: {form}"] = milliseconds(median_of(rounds[form]))
            taken[f"{name}: {kind}"] = milliseconds(median_of(rounds[name]))
        await peer.call("close")
