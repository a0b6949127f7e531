"""Row 15: bytes sent to storage per message."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

import asyncpg

from tests.bench.context import Bench, available
from tests.bench.floor import PostgresqlFloor, SqliteFloor
from tests.bench.peers import Process, start_peer
from tests.bench.report import Row
from tests.bench.rows.peers import start_worker
from tests.bench.rows.processes import what_to_write
from tests.bench.stores import Conversation, History, message, plain_dsn

__all__ = ["per_message"]

_TALK = Conversation.named("a")


def process_bytes(pid: int | str = "self") -> int:
    """Bytes that a process has given to write system calls."""
    for line in Path(f"/proc/{pid}/io").read_text().splitlines():
        if line.startswith("wchar:"):
            return int(line.split()[1])
    return 0


async def per_message(bench: Bench) -> Row:
    """Row 15: system calls' bytes of the process on SQLite, the growth of the log on PostgreSQL."""
    row = Row(15, "bytes sent to storage per record_message")
    samples = bench.samples(400, 150)
    for database in ("sqlite", "postgresql"):
        with available(row, database):
            found = {size: await _ours(bench, row, database, size, samples) for size in (1_000, bench.long_history)}
            floor = await _floor(bench, database, bench.long_history, samples)
            row.add(f"{database}: at 100,000 / at 1,000", found[bench.long_history] / found[1_000], 1.2)
            row.add(f"{database}: at 100,000 / raw floor", found[bench.long_history] / floor, 2.0)
            row.notes[f"{database}, bytes"] = {**{str(k): round(v) for k, v in found.items()}, "floor": round(floor)}
            if bench.peers:
                row.notes[f"{database}, bytes, LionAGI"] = round(await _lionagi(bench, database, 10))
    return row


async def _log_position(url: str) -> int:
    conn = await asyncpg.connect(plain_dsn(url))
    try:
        return int(await conn.fetchval("SELECT pg_current_wal_lsn() - '0/0'::pg_lsn"))
    finally:
        await conn.close()


async def _spent(database: str, target: Any, pid: int, process: Process, what: str, samples: int) -> float:
    async def position() -> int:
        return process_bytes(pid) if database == "sqlite" else await _log_position(target)

    await process.call("measure", what=what, samples=samples // 4, warm=0, first=10_000_000)
    before = await position()
    await process.call("measure", what=what, samples=samples, warm=0)
    return (await position() - before) / samples


async def _ours(bench: Bench, row: Row, database: str, size: int, samples: int) -> float:
    target: Any = await bench.store(database, History({"a": size}))
    async with await start_worker() as worker:
        await worker.call("open", target=str(target), synchronous="FULL")
        what = await what_to_write(row, worker)
        found = await _spent(database, target, worker.pid, worker, what, samples)
        await worker.call("close")
    bench.cache["row15"] = what
    return found


async def _floor(bench: Bench, database: str, size: int, samples: int) -> float:
    history = History({"a": size})
    whole = bench.cache["row15"] == "record"
    if database == "sqlite":
        raw = SqliteFloor(await bench.sqlite(history), sqlite3, "FULL")
        for turn in range(-samples // 4, samples):
            if turn == 0:
                before = process_bytes()
            if whole:
                raw.record(message(turn + samples), _TALK)
            else:
                raw.append(_TALK.branch_progression, f"f{turn:031d}")
        spent = process_bytes() - before
        raw.close()
        return spent / samples
    url = await bench.postgresql(history)
    floor = await PostgresqlFloor.open(url)
    for turn in range(-samples // 4, samples):
        if turn == 0:
            before = await _log_position(url)
        if whole:
            await floor.record(message(turn + samples), _TALK)
        else:
            await floor.append(_TALK.branch_progression, f"f{turn:031d}")
    spent = await _log_position(url) - before
    await floor.close()
    return spent / samples


async def _lionagi(bench: Bench, database: str, samples: int) -> float:
    target = str(bench.new_path("lionagi")) if database == "sqlite" else bench.empty_database()
    async with await start_peer("lionagi 0.36.0") as peer:
        await peer.call("open", target=target, synchronous="NORMAL")
        await peer.call("fill", count=100_000)
        found = await _spent(database, target, peer.pid, peer, "record", samples)
        await peer.call("close")
    return found
