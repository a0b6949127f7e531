"""``lionstate copy`` of 1,000,000 messages and a half-migrated set of progressions, killed twice on the way."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from lionstate import StateDB
from lionstate.copying import CopyReport, StoreCopy
from lionstate.copying.tables import COPIED
from tests.support.backends import Backend
from tests.support.children import child
from tests.support.whole_store import fill

pytestmark = pytest.mark.anyio

MESSAGES = int(os.environ.get("LIONSTATE_SOAK_MESSAGES", "1000000"))

COPY = """
import asyncio, sys
from lionstate.copying import StoreCopy

def say(stage, done, total):
    print(stage, done, total, flush=True)

asyncio.run(StoreCopy(sys.argv[1], sys.argv[2], on_progress=say).run())
"""
_TOTALS = {
    "messages": "SELECT count(*) AS n, min(id) AS a, max(id) AS b, sum(length(id)) AS c FROM messages",
    "items": "SELECT count(*) AS n, sum(ordinal) AS a, sum(length(message_id)) AS b FROM progression_items",
    "json": "SELECT count(*) AS n, sum(length(collection)) AS a FROM progressions",
    "states": "SELECT phase, authority, count(*) AS n, sum(next_ordinal) AS a FROM progression_storage_state"
    " GROUP BY 1, 2 ORDER BY 1, 2",
}


async def _totals(url: str) -> dict[str, list[list[str]]]:
    """What SQL says of both stores, counted by neither side of the copy."""
    counts = {c.name: f'SELECT count(*) AS n FROM "{c.name}"' for c in COPIED if c.name != "migration_control"}
    async with StateDB(url=url) as state:
        found = {name: await state.fetch_all(sql) for name, sql in {**_TOTALS, **counts}.items()}
    return {name: [list(map(_text, row.values())) for row in rows] for name, rows in found.items()}


def _text(value: Any) -> str:
    # PostgreSQL adds whole numbers up to decimals.
    return str(int(value)) if isinstance(value, Decimal) else str(value)


def _killed(source: str, target: str, share: float) -> tuple[str, int]:
    with child(COPY, source, target) as process:
        assert process.stdout is not None
        for line in process.stdout:
            stage, done, total = line.split()
            if stage == "copy" and int(done) >= share * int(total):
                process.kill()
                return stage, int(done)
    raise AssertionError("the copy ended before it was killed")


async def _copied(source: str, target: str) -> CopyReport:
    expected = await _totals(source)
    for share in (0.3, 0.6):
        print("killed at", await asyncio.to_thread(_killed, source, target, share))
    report = await StoreCopy(source, target).run()
    assert report.resumed
    assert expected == await _totals(target)
    rate = report.copied_rows / report.copy_seconds
    print(f"{report.rows} rows; last run {report.copied_rows} at {rate:.0f}/s, {report.seconds:.0f} s in all")
    return report


async def test_there_and_back(tmp_path: Path, postgres_18: Any) -> None:
    """SQLite to PostgreSQL and back to SQLite: equal both times; memory does not grow with the store."""
    source, back = str(tmp_path / "source.db"), str(tmp_path / "back.db")
    postgres_18.drop_database("soak_copy")
    middle = postgres_18.create_database("soak_copy")
    async with StateDB(source) as state:
        await fill(Backend("sqlite", state, state), messages=MESSAGES, longest=100_000)
    first = await _copied(source, middle)
    second = await _copied(middle, back)
    assert {t.name: (t.rows, t.digest) for t in first.tables} == {t.name: (t.rows, t.digest) for t in second.tables}
    started = time.monotonic()
    out = await asyncio.to_thread(_measured, source, str(tmp_path / "whole.db"))
    print(f"in one run, to SQLite: {time.monotonic() - started:.0f} s, {out}")
    assert int(out.split()[0]) < 400_000


def _measured(source: str, target: str) -> str:
    """Copy in a process of its own; its largest resident size in KiB, and what it said of its speed."""
    code = """
import asyncio, resource, sys
from lionstate.copying import StoreCopy

r = asyncio.run(StoreCopy(sys.argv[1], sys.argv[2]).run())
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, "KiB", round(r.copied_rows / r.copy_seconds), "rows/s")
"""
    found = subprocess.run([sys.executable, "-c", code, source, target], capture_output=True, text=True, check=True)
    return found.stdout.strip()
