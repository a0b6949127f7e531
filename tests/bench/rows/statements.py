"""Row 14: how many statements an append and a folded batch take."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.bench.context import Bench, available
from tests.bench.report import Row
from tests.bench.stores import Conversation, History
from tests.support.statements import seen_on_postgresql

__all__ = ["counted"]

_TALKS = {size: Conversation.named(f"n{size}") for size in (0, 1_000, 100_000)}


@contextmanager
def _counting(state: Any) -> Iterator[Counter[str]]:
    """Count statements of the writer: executions seen by SQLite itself, round trips on PostgreSQL."""
    seen: Counter[str] = Counter()
    writer = state.store.writer
    if state.dialect == "sqlite":
        writer._driver.set_trace_callback(lambda sql: seen.update([sql.split("(")[0][:40]]))
        try:
            yield seen
        finally:
            writer._driver.set_trace_callback(None)
        return

    with seen_on_postgresql(lambda sql: seen.update([sql[:40]]), writer.engine.sync_engine):
        yield seen


async def counted(bench: Bench) -> Row:
    """Row 14."""
    row = Row(14, "statements per append and per folded batch (one progression)")
    history = History({f"n{size}": size for size in _TALKS})
    for database in ("sqlite", "postgresql"):
        with available(row, database):
            target: Any = await bench.store(database, history)
            async with bench.state(target) as state:
                await _count(row, database, state)
    return row


async def _count(row: Row, database: str, state: Any) -> None:
    singles = {}
    for size, talk in _TALKS.items():
        await state.append_to_progression(talk.branch_progression, "warm")
        with _counting(state) as seen:
            await state.append_to_progression(talk.branch_progression, "once")
        singles[size] = seen.total()
    row.add(f"{database}: append at 100,000 / at 0 items", singles[100_000] / singles[0], 1.0)
    row.notes[f"{database}: statements of one append, by history"] = singles
    folded = {}
    talk = _TALKS[1_000]
    for callers in (1, 16, 64, 256):
        with _counting(state) as seen:
            calls = (state.append_to_progression(talk.branch_progression, f"f{callers}-{n}") for n in range(callers))
            await asyncio.gather(*calls)
        folded[callers] = seen.total()
    row.notes[f"{database}: statements of n appends at once"] = folded
