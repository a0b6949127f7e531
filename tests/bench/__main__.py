"""``python -m tests.bench``: take the figures of the table, print them, keep them as JSON."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path

from tests.bench.context import ROOT, Bench, NotAvailableError
from tests.bench.report import Row, environment, table, write_json
from tests.bench.rows import ROWS

# What a quick run leaves out takes processes and histories that cost more than its 90 seconds.
_QUICK_ROWS = (1, 2, 3, 4, 5, 6, 12, 14, 15)
_OUT = ROOT / "var" / "bench"


def _arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--rows", help="comma-separated numbers; all that are written by default")
    parser.add_argument("--quick", action="store_true", help="fewer samples, under 90 seconds")
    parser.add_argument("--peers", action="store_true", help="also LionAGI 0.36.0 and other stores")
    parser.add_argument("--out", type=Path, default=_OUT, help="folder of the JSON results and of the stores")
    parser.add_argument("--no-fail", action="store_true", help="exit 0 even when a limit is missed")
    return parser.parse_args(argv)


async def _run(bench: Bench, numbers: Sequence[int]) -> list[Row]:
    rows = []
    for number in numbers:
        began = time.monotonic()
        try:
            row = await ROWS[number](bench)
        except NotAvailableError as error:
            row = Row(number, ROWS[number].__doc__ or "", missing=[str(error)])
        except Exception as error:
            traceback.print_exc()
            row = Row(number, (ROWS[number].__doc__ or "").strip(), missing=[f"{type(error).__name__}: {error}"])
        row.seconds = time.monotonic() - began
        rows.append(row)
        print(table([row], environment()).split("\n\n", 1)[-1], flush=True)
    return rows


def main(argv: Sequence[str] | None = None) -> int:
    """Run; 1 when a limit was missed."""
    given = _arguments(argv)
    usual = _QUICK_ROWS if given.quick else sorted(ROWS)
    numbers = [int(number) for number in given.rows.split(",")] if given.rows else usual
    began = time.monotonic()
    about = environment()
    print(table([], about))
    if about["load"][0] > 1.0:
        print(
            f"the machine is busy (load {about['load'][0]}): tails and rates will swing, figures are not to be kept\n"
        )
    with Bench(quick=given.quick, peers=given.peers, out=given.out) as bench:
        rows = asyncio.run(_run(bench, numbers))
    name = f"{'quick' if given.quick else 'bench'}-{time.strftime('%Y%m%dT%H%M%S')}.json"
    write_json(given.out / name, rows, about)
    verdicts = ", ".join(f"{row.number} {row.verdict}" for row in rows)
    print(f"\n{verdicts}\n{time.monotonic() - began:.0f} s, load {os.getloadavg()[0]:.1f}; kept as {given.out / name}")
    return int(any(row.verdict == "fail" for row in rows) and not given.no_fail)


if __name__ == "__main__":
    sys.exit(main())
