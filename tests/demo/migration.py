"""``make demo``: a legacy store of 20 progressions is migrated by the daemon while four processes write to it.

    python -m tests.demo.migration [--backend sqlite|postgresql] [--seconds 10]

Exit is zero only if nothing acknowledged is lost or stands at two positions, 19 progressions are ``items``, one is
``blocked`` with ``malformed_json``, and an append at 100,000 ids costs at most twice one at 1,000 afterwards.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from lionstate import StateClient
from lionstate.migration import MigrationStatus
from tests.demo.layout import conversations
from tests.demo.processes import DaemonProcess, run_module, start_module
from tests.support.postgres import PostgresServer

_WRITERS = 4
_MIGRATED = 19
_START_SECONDS = 30.0
_MIGRATION_SECONDS = 300.0
_BETWEEN_MESSAGES = {"sqlite": 0.01, "postgresql": 0.01}

console = Console(soft_wrap=True)


@dataclass
class Moments:
    """When migration was let go and when it was done, epoch seconds."""

    begun: float = 0.0
    done: float = 0.0


def _done(status: MigrationStatus) -> bool:
    return status.phases.get("items", 0) >= _MIGRATED and status.phases.get("blocked", 0) >= 1


def _line(status: MigrationStatus) -> str:
    phases = "  ".join(f"{name} {status.phases.get(name, 0):2d}" for name in ("json", "dual", "items", "blocked"))
    return f"  {phases}   items admitted and not copied {status.remaining_admitted_items}"


async def _migrate(daemon: DaemonProcess, seconds: float) -> Moments:
    """Ten seconds as it was, migrate, ten seconds as it is."""
    moments = Moments()
    async with StateClient(daemon.target) as client:
        console.print(f"{_WRITERS} processes write; progressions are JSON for {seconds:.0f} s")
        await asyncio.sleep(seconds)
        console.print("migration is let go")
        moments.begun = time.time()
        await client.migration.resume(reason="the demonstration begins")
        last = ""
        while time.time() - moments.begun < _MIGRATION_SECONDS:
            status = await client.migration.status(limit=1)
            if (line := _line(status)) != last:
                console.print(line, highlight=False)
                last = line
            if _done(status):
                break
            await asyncio.sleep(0.25)
        else:
            raise SystemExit("demo: the migration did not finish in time")
        moments.done = time.time()
        console.print(f"migrated in {moments.done - moments.begun:.1f} s; {seconds:.0f} s more of writing")
        await asyncio.sleep(seconds)
    return moments


async def _pause(daemon: DaemonProcess) -> None:
    async with StateClient(daemon.target) as client:
        await client.migration.pause(reason="the demonstration is not ready")


def _latencies(logs: list[Path], moments: Moments) -> dict[int, dict[str, list[float]]]:
    """Milliseconds by history size, before and after the migration."""
    found: dict[int, dict[str, list[float]]] = {}
    known = conversations()
    for log in logs:
        for line in log.read_text(encoding="utf-8").splitlines():
            outcome, place, _, spent, started = json.loads(line)
            if outcome != "written":
                continue
            when = "before" if started < moments.begun else "after" if started > moments.done else "while"
            found.setdefault(known[place].largest, {"before": [], "while": [], "after": []})[when].append(spent)
    return found


def _percentiles(values: list[float]) -> tuple[float, float]:
    if len(values) < 2:
        return (float("nan"), float("nan"))
    cuts = statistics.quantiles(values, n=20)
    return cuts[9], cuts[18]


def _longest_cutover(log: Path) -> float:
    """The longest lock hold of a cutover that the daemon logged, in seconds."""
    holds = [0.0]
    for line in log.read_text(encoding="utf-8").splitlines():
        if line.startswith("{"):
            event = json.loads(line)
            if event.get("event") == "migration_step":
                holds.append(event.get("cutover_lock_seconds", 0.0))
    return max(holds)


def _report(latencies: dict[int, dict[str, list[float]]], verdict: dict[str, Any], hold: float) -> list[str]:
    """Print the tables; return what does not hold."""
    table = Table("ids in the history", "p50 before", "p95 before", "p50 after", "p95 after", "messages")
    medians: dict[int, float] = {}
    for size, found in sorted(latencies.items()):
        before, after = _percentiles(found["before"]), _percentiles(found["after"])
        medians[size] = after[0]
        count = sum(map(len, found.values()))
        cells = [f"{value:.2f} ms" for value in (*before, *after)]
        table.add_row(f"{size:,}", *cells, str(count))
    console.print(table)
    ratio = medians[100_000] / medians[1_000]
    facts = Table(show_header=False)
    facts.add_row("phases", ", ".join(f"{name} {count}" for name, count in sorted(verdict["phases"].items())))
    facts.add_row("blocked", ", ".join(f"{code} {count}" for code, count in verdict["blocked"].items()))
    facts.add_row("items in the table", f"{verdict['items']:,}")
    facts.add_row("longest cutover lock hold", f"{hold * 1000:.1f} ms")
    facts.add_row("positions acknowledged", f"{verdict['acknowledged']:,}")
    facts.add_row("  present", f"{verdict['present']:,}")
    facts.add_row("  at two positions", str(verdict["twice"]))
    facts.add_row("  out of their writer's order", str(verdict["reordered"]))
    facts.add_row("  without their message row", str(verdict["without_message"]))
    facts.add_row("p50 at 100,000 ÷ at 1,000, after", f"{ratio:.2f}")
    console.print(facts)
    checks = {
        "every history was written to before and after": all(
            found["before"] and found["after"] for found in latencies.values()
        ),
        "nothing acknowledged is lost": verdict["acknowledged"] == verdict["present"],
        "nothing acknowledged stands twice": verdict["twice"] == 0,
        "every writer's order is kept": verdict["reordered"] == 0,
        "every message row is there": verdict["without_message"] == 0,
        "19 progressions are items": verdict["phases"].get("items") == _MIGRATED,
        "one is blocked with malformed_json": verdict["blocked"] == {"malformed_json": 1},
        "appends are flat": ratio <= 2.0,
    }
    return [name for name, holds in checks.items() if not holds]


def _wait_for_first_lines(logs: list[Path]) -> None:
    """Every writer has had its first answer."""
    give_up = time.monotonic() + _START_SECONDS
    while not all(log.exists() and log.stat().st_size for log in logs):
        if time.monotonic() > give_up:
            raise SystemExit("demo: the writers did not start")
        time.sleep(0.05)


def _run(url: str, backend: str, folder: Path, seconds: float, stack: ExitStack) -> list[str]:
    run_module("tests.demo.legacy_store", url)
    daemon = DaemonProcess(
        url,
        folder,
        maintenance__enabled="true",
        maintenance__accept_foreign_writers="true",
        maintenance__interval_seconds="0.25",
        # Half of the lock instead of a tenth: who watches a demo has no agents waiting.
        maintenance__nice_ratio="0.5",
    )
    stack.callback(daemon.kill)
    daemon.wait_until_ready()
    asyncio.run(_pause(daemon))
    logs = [folder / f"writer-{number}.log" for number in range(_WRITERS)]
    writers: list[subprocess.Popen[bytes]] = []
    for number, log in enumerate(logs):
        pause = str(_BETWEEN_MESSAGES[backend])
        writers.append(start_module("tests.demo.writer", daemon.target, f"w{number}", str(log), pause))
        stack.callback(writers[-1].kill)
    _wait_for_first_lines(logs)
    moments = asyncio.run(_migrate(daemon, seconds))
    for writer in writers:
        writer.send_signal(signal.SIGTERM)
    failed = [f"writer {number} ended well" for number, writer in enumerate(writers) if writer.wait(60)]
    if daemon.stop():
        failed.append("the daemon ended well")
    verdict = json.loads(run_module("tests.demo.check", url, *map(str, logs)))
    return failed + _report(_latencies(logs, moments), verdict, _longest_cutover(daemon.log))


def main() -> None:
    """Run the demonstration."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--backend", choices=("sqlite", "postgresql"), default="sqlite")
    parser.add_argument("--seconds", type=float, default=10.0, help="writing before and after")
    options = parser.parse_args()
    started = time.monotonic()
    with ExitStack() as stack:
        folder = Path(tempfile.mkdtemp(prefix="lionstate-demo-"))
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        url = str(folder / "state.db")
        if options.backend == "postgresql":
            server = PostgresServer.start(18, durable=True)
            stack.callback(server.stop)
            server.create_database("demo")
            url = server.dsn("demo")
        failed = _run(url, options.backend, folder, options.seconds, stack)
    spent = time.monotonic() - started
    if failed:
        console.print(f"demo on {options.backend}: FAILED after {spent:.0f} s: {'; '.join(failed)}")
        sys.exit(1)
    console.print(f"demo on {options.backend}: passed in {spent:.0f} s: nothing lost, nothing twice, appends are flat")


if __name__ == "__main__":
    main()
