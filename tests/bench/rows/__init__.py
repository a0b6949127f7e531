"""The rows of the table, by number; each is ``async def row(bench) -> Row``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from tests.bench.context import Bench
from tests.bench.report import Row
from tests.bench.rows import appends, concurrency, daemon, migration, peers, processes, statements, storage

__all__ = ["ROWS"]

ROWS: dict[int, Callable[[Bench], Awaitable[Row]]] = {
    1: appends.flat,
    2: appends.single_against_floor,
    3: daemon.single_message,
    4: concurrency.in_process,
    5: daemon.many_callers,
    6: concurrency.on_postgresql,
    7: peers.lionagi_live,
    8: peers.other_stores,
    9: processes.against_lionagi,
    10: migration.appends_meanwhile,
    11: migration.lock_holds,
    12: appends.reads_at_a_million,
    13: migration.memory,
    14: statements.counted,
    15: storage.per_message,
    16: processes.fair,
    17: processes.one_conversation,
}
