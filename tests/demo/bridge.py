"""LionAGI's live message at 1,000 and at 100,000 ids: as LionAGI has it, and over the bridge after a cutover.

    python -m tests.demo.bridge [--backend sqlite|postgresql]

All figures are of one run, the two sizes taking turns. Exit status 0 only if, after the cutover, the median at 100,000
is at most 1.2 times the one at 1,000.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.demo.lionagi import database
from tests.support.lionagi_environment import bridge_python, environment

MAX_RATIO = 1.2
_HERE = Path(__file__).parent
Costs = Mapping[str, list[float]]


def _measure(url: str, folder: Path) -> dict[str, Any]:
    home = folder / "home"
    home.mkdir()
    process = subprocess.Popen(
        [str(bridge_python()), "-I", str(_HERE / "bridge_cost.py"), url],
        env=environment(home, url),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin is not None and process.stdout is not None
    with process:
        if not process.stdout.readline():
            raise SystemExit(f"LionAGI ended with {process.wait()}")
        print("migrating ...")
        # LionAGI wrote here a moment ago, without the bridge.
        verb = ("step", "--until-done", "--accept-foreign-writers", "--json", "--url", url)
        step = [str(Path(sys.executable).with_name("lionstate")), "progression-migrate", *verb]
        subprocess.run(step, check=True, stdout=subprocess.DEVNULL)
        process.stdin.write("\n")
        process.stdin.flush()
        found: dict[str, Any] = json.loads(process.stdout.readline())
    return found


def _row(name: str, costs: Costs) -> tuple[str, float]:
    small, large = (statistics.median(costs[size]) * 1000 for size in ("1000", "100000"))
    count = len(costs["1000"])
    return f"| {name} | {count} | {small:.2f} | {large:.2f} | {large / small:.2f} |", large / small


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.demo.bridge", description=__doc__)
    parser.add_argument("--backend", choices=("sqlite", "postgresql"), default="sqlite")
    backend = parser.parse_args().backend
    print(f"LionAGI 0.36.0 writes two histories on {backend} ...")
    with tempfile.TemporaryDirectory(prefix="lsb") as name, database(backend, Path(name)) as url:
        found = _measure(url, Path(name))
    before, _ = _row("LionAGI alone, JSON", found["before"])
    after, ratio = _row("LionAGI over the bridge, items", found["after"])
    print(f"\nA live message (message, branch, session, activity) on {backend}, median ms\n")
    print("| writer | samples | 1,000 ids | 100,000 ids | ratio |\n|---|---|---|---|---|")
    print(f"{before}\n{after}\n")
    print(f"ids at the end: {found['lengths']}")
    holds = ratio <= MAX_RATIO
    print(f"ratio after the cutover {ratio:.2f} {'<=' if holds else '>'} {MAX_RATIO}: {'ok' if holds else 'FAILED'}")
    sys.exit(0 if holds else 1)


if __name__ == "__main__":
    main()
