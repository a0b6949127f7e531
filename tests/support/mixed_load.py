"""Several client processes on all record families at once, on one daemon; and the check of what is there."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import sys
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lionstate import StateClient
from tests.demo.processes import DaemonProcess
from tests.support.mixed_client import SHARED

__all__ = ["mixed_load"]

_LONGEST_SECONDS = 5.0


async def _client(target: str, name: str, seconds: float) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.support.mixed_client", target, name, str(seconds)]
    process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE)
    try:
        out, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert process.returncode == 0
    found: dict[str, Any] = json.loads(out)
    return found


def _values(path: Path, table: str, column: str) -> set[str]:
    """What a column holds, read with a plain driver after the daemon has ended."""
    conn = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        return {value for (value,) in conn.execute(f'SELECT "{column}" FROM "{table}"')}
    finally:
        conn.close()


def _check(path: Path, books: list[dict[str, Any]]) -> int:
    """Every acknowledged write is there, every number was given once and none is left out."""
    wanted: dict[tuple[str, str], set[str]] = defaultdict(set)
    for book in books:
        for table, column, value in book["written"]:
            wanted[table, column].add(value)
    for (table, column), values in wanted.items():
        missing = values - _values(path, table, column)
        assert not missing, f"{len(missing)} acknowledged rows of {table} are lost"
    for kind in ("signals", "versions"):
        numbers = sorted(number for book in books for number in book["numbers"][kind])
        assert list(range(1, len(numbers) + 1)) == numbers, kind
    return sum(map(len, wanted.values()))


async def mixed_load(start: Callable[..., DaemonProcess], folder: Path, *, clients: int, seconds: float) -> str:
    """Let so many processes work at the same time; a line of what was seen."""
    path = folder / "state.db"
    daemon = start(path)
    async with StateClient(daemon.target) as client:
        await client.create_progression(SHARED)
        await client.create_session({"id": SHARED, "progression_id": SHARED, "status": "running"})
        books = await asyncio.gather(*(_client(daemon.target, f"c{number:02d}", seconds) for number in range(clients)))
        assert [{}] * clients == [book["errors"] for book in books]
        longest = max(book["longest_seconds"] for book in books)
        assert longest < _LONGEST_SECONDS
        shared = await client.get_progression(SHARED)
        chain = await client.verify_approval_chain()
    assert daemon.stop() == 0
    assert chain["valid"] is True, chain
    assert len(set(shared)) == len(shared)
    written = _check(path, books)
    calls = [book["calls"] for book in books]
    return (
        f"{clients} clients for {seconds:g} s: {sum(calls)} calls ({min(calls)} to {max(calls)} each), {written} rows"
        f" acknowledged and there, longest call {longest:.2f} s, no error"
    )
