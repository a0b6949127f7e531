"""``python -m tests.bench.floor_rate STORE MODULE SYNCHRONOUS SECONDS KIND BATCH``: the floor's rate, as JSON."""

from __future__ import annotations

import asyncio
import importlib
import json
import sys
from pathlib import Path

from tests.bench.floor import SqliteFloor
from tests.bench.rows.concurrency import FloorBatches


def main(store: str, module: str, synchronous: str, seconds: str, kind: str, batch: str) -> None:
    """Run batches for so long."""
    floor = SqliteFloor(Path(store), importlib.import_module(module), synchronous)
    rate = asyncio.run(FloorBatches(floor, int(batch)).run(kind, float(seconds)))
    floor.close()
    print(json.dumps({"rate": rate}))


if __name__ == "__main__":
    main(*sys.argv[1:])
