"""``make bench-plots``: measure what the README shows and draw it into ``tests/pictures``."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections.abc import Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

from tests.bench.context import ROOT, Bench, NotAvailableError
from tests.bench.measure import closed_loop, median_of, percentile
from tests.bench.peers import PEERS, Process, start_peer
from tests.bench.report import environment
from tests.bench.rows.concurrency import HISTORY, works_of
from tests.bench.rows.migration import one_round
from tests.bench.rows.peers import start_worker
from tests.bench.stores import History
from tests.bench.svg import line_chart

_SIZES = (0, 1_000, 10_000, 100_000)
_CALLERS = (1, 2, 4, 8, 16, 32, 64)
_OTHERS = ("lionagi 0.36.0", "openai-agents SQLiteSession", "langgraph-checkpoint-sqlite")

Series = dict[str, list[tuple[float, float]]]


async def _p50(process: Process, what: str) -> float:
    found = [await process.call("measure", what=what, samples=25, first=number * 1_000) for number in range(3)]
    return median_of([percentile(answer["latencies"], 0.5) / 1e6 for answer in found])


async def latency_over_history(bench: Bench) -> Series:
    """p50 of one message, ``NORMAL``, by the number of ids or messages that the conversation has."""
    series: Series = {"lionstate": []}
    for size in _SIZES:
        async with await start_worker() as worker:
            store = await bench.sqlite(History({"a": size}))
            await worker.call("open", target=str(store), synchronous="NORMAL")
            what = "record" if await worker.call("supports", method="record_message") else "append"
            series["lionstate"].append((size, await _p50(worker, what)))
        if not bench.peers:
            continue
        for name in _OTHERS:
            async with await start_peer(name) as peer:
                await peer.call("open", target=str(bench.new_path("peer")), synchronous="NORMAL")
                await peer.call("fill", count=size)
                own = "record" if PEERS[name][0] == "lionagi" else "append"
                series.setdefault(name, []).append((size, await _p50(peer, own)))
    return series


async def rate_over_callers(bench: Bench) -> Series:
    """Writes a second by callers at once, ``FULL``: in process, through the daemon, PostgreSQL."""
    from lionstate import StateClient

    series: Series = {}
    async with AsyncExitStack() as stack:
        states: dict[str, Any] = {
            "SQLite, in process": await stack.enter_async_context(bench.state(await bench.sqlite(HISTORY), "FULL")),
            "PostgreSQL, in process": await stack.enter_async_context(bench.state(await bench.postgresql(HISTORY))),
        }
        daemon = await stack.enter_async_context(bench.daemon(await bench.sqlite(HISTORY), "FULL"))
        states["SQLite, daemon"] = await stack.enter_async_context(StateClient(daemon.target))
        for callers in _CALLERS:
            for name, state in states.items():
                kind = "record_message" if hasattr(state, "record_message") else "append_to_progression"
                rates = []
                for number in range(3):
                    began = time.monotonic()
                    work = works_of(state)[kind](f"{callers:02d}{number}")
                    done, _ = await closed_loop(work, callers, bench.seconds(0.8, 0.3))
                    rates.append(done / (time.monotonic() - began))
                series.setdefault(name, []).append((callers, median_of(rates)))
    return series


async def tail_while_migrating(bench: Bench) -> Series:
    """p50, p90, p99 and p99.9 of appends on other progressions, idle and while 100,000 ids migrate.

    Each the median of three rounds: the disk stands still now and then.
    """
    rounds = [await one_round(bench, "FULL") for _ in range(3)]
    ranks = (0.5, 0.9, 0.99, 0.999)
    return {
        name: [
            (1 / (1 - rank), median_of([percentile(found[place], rank) / 1e6 for found in rounds])) for rank in ranks
        ]
        for place, name in ((1, "migrating"), (0, "idle"))
    }


_PLOTS = {
    "append-latency": (latency_over_history, "One message, p50", "messages in the conversation", "milliseconds"),
    "appends-per-second": (rate_over_callers, "Writes a second", "callers at once", "writes a second"),
    "while-migrating": (
        tail_while_migrating,
        "Appends on other progressions while 100,000 ids migrate",
        "one in so many is slower (100 is p99)",
        "milliseconds",
    ),
}


def _keep(folder: Path, name: str, chart: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.svg").write_text(chart)


def _chart(name: str, kept: dict[str, Any]) -> str:
    _, title, x_title, y_title = _PLOTS[name]
    about = kept["environment"]
    note = f"{about['machine']}; Python {about['python']}; SQLite {about['sqlite']}; {about['at'][:10]}"
    return line_chart(title, x_title, y_title, kept["series"], note=note)


def _kept_in(out: Path, name: str) -> Path:
    return out / f"plot-{name}.json"


async def _draw(bench: Bench, folder: Path, names: Sequence[str]) -> int:
    missing = 0
    for name in names:
        try:
            kept = {"environment": environment(), "series": await _PLOTS[name][0](bench)}
        except NotAvailableError as error:
            print(f"{name}: not available: {error}")
            missing = 1
            continue
        _kept_in(bench.out, name).write_text(json.dumps(kept, indent=1))
        await asyncio.to_thread(_keep, folder, name, _chart(name, kept))
        print(f"{folder / name}.svg")
    return missing


def _redraw(out: Path, folder: Path, names: Sequence[str]) -> int:
    for name in names:
        _keep(folder, name, _chart(name, json.loads(_kept_in(out, name).read_text())))
        print(f"{folder / name}.svg")
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Measure and draw; 1 when a plot could not be made."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.plots", description=__doc__)
    parser.add_argument("--only", choices=sorted(_PLOTS), action="append", help="one plot; may be repeated")
    parser.add_argument("--no-peers", action="store_true", help="lionstate alone")
    parser.add_argument("--quick", action="store_true", help="shorter runs")
    parser.add_argument("--folder", type=Path, default=ROOT / "tests" / "pictures", help="where the plots go")
    parser.add_argument("--redraw", action="store_true", help="draw what the last run kept in var/bench")
    given = parser.parse_args(argv)
    out, names = ROOT / "var" / "bench", given.only or list(_PLOTS)
    if given.redraw:
        return _redraw(out, given.folder, names)
    with Bench(quick=given.quick, peers=not given.no_peers, out=out) as bench:
        return asyncio.run(_draw(bench, given.folder, names))


if __name__ == "__main__":
    sys.exit(main())
