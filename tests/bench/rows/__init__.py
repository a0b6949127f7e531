"""The rows of the table, by number; each is ``async def row(bench) -> Row``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from tests.bench.context import Bench
from tests.bench.report import Row
from tests.bench.rows import appends, concurrency, daemon, statements

__all__ = ["ROWS"]

ROWS: dict[int, Callable[[Bench], Awaitable[Row]]] = {
    1: appends.flat,
    2: appends.single_against_floor,
    3: daemon.single_message,
    4: concurrency.in_process,
    5: daemon.many_callers,
    6: concurrency.on_postgresql,
    12: appends.reads_at_a_million,
    14: statements.counted,
}
