"""How the harness talks to a measured process: one JSON command a line, one JSON answer a line.

Only the standard library, because it runs in the environments of the peers too.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sqlite3
import sys
import time

TEXT = "The build is green again; the next step is to move the remaining callers and to delete the old table. " * 5


def same_durability(synchronous: str) -> None:
    """Every SQLite connection of this process is WAL with this ``synchronous``, whatever its maker does by default."""
    original = sqlite3.connect

    def connect(*args, **kwargs):
        conn = original(*args, **kwargs)
        conn.execute("PRAGMA journal_mode = WAL").fetchall()
        conn.execute(f"PRAGMA synchronous = {synchronous}")
        return conn

    sqlite3.connect = connect
    for name in ("aiosqlite.core", "sqlite3.dbapi2"):
        module = sys.modules.get(name)
        if module is not None and getattr(module, "connect", None) is original:
            module.connect = connect


class Subject:
    """One store under measurement; the names of the methods are the kinds of work."""

    async def open(self, target, synchronous):
        """Open the store: a path, or a SQLAlchemy URL of PostgreSQL."""

    async def fill(self, count):
        """Make a conversation with this history; how is not measured."""

    async def append(self, number):
        """Append one message (or, where a store keeps ids apart, one id)."""

    async def tail(self, number):
        """The newest 200."""

    async def count(self, number):
        """How many there are."""

    async def full(self, number):
        """All of them."""

    async def close(self):
        """Close the store."""

    async def measure(self, what, samples, warm=5, first=0):
        """So many calls one after another; their latencies in nanoseconds."""
        work = getattr(self, what)
        taken = []
        gc.collect()
        for turn in range(samples + warm):
            began = time.perf_counter_ns()
            await work(first + turn)
            spent = time.perf_counter_ns() - began
            if turn >= warm:
                taken.append(spent)
        return {"latencies": taken}

    async def loop(self, what, seconds, start_at=None, first=0):
        """Call for so long, from a moment that several processes share."""
        work = getattr(self, what)
        if start_at is not None:
            await asyncio.sleep(max(0.0, start_at - time.time()))
        taken, errors = [], []
        stop = time.monotonic() + seconds
        while time.monotonic() < stop:
            began = time.perf_counter_ns()
            try:
                await work(first + len(taken) + len(errors))
            except Exception as error:
                errors.append(f"{type(error).__name__}: {error}"[:200])
            else:
                taken.append(time.perf_counter_ns() - began)
        return {"latencies": taken, "errors": len(errors), "first_error": errors[:1]}


async def _serve(subject):
    while True:
        line = await asyncio.to_thread(sys.stdin.readline)
        if not line:
            return
        command = json.loads(line)
        try:
            answer = await getattr(subject, command.pop("do"))(**command)
            reply = {"ok": answer}
        except Exception as error:
            reply = {"error": f"{type(error).__name__}: {error}"[:500]}
        print("@" + json.dumps(reply), flush=True)


def serve(subject):
    """Answer commands until the input ends; other output of the process is ignored by the harness."""
    asyncio.run(_serve(subject))
