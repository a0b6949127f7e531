"""``preflight()``: every JSON value judged before anything moves; reads only."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Connection, select

from lionstate.dialects import ParentValue, dialect_of
from lionstate.migration.foreign import ForeignWriters, read_foreign
from lionstate.migration.port import MigrationStore, bound
from lionstate.migration.verification import judge
from lionstate.progression.phases import Phase
from lionstate.schema import fence_exists
from lionstate.schema.conversation import progressions
from lionstate.schema.own import progression_storage_state

__all__ = ["MIGRATABLE", "Preflight", "preflight"]

MIGRATABLE: Final = "migratable"
"""The verdict of a value that may be migrated; every other verdict is a blocked code."""

_PAGE_ROWS: Final = 500
# What one snapshot reads of values, unless a single one is larger.
_SNAPSHOT_BYTES: Final = 8 * 1024 * 1024

_s = progression_storage_state.c


@dataclass(frozen=True, slots=True)
class Preflight:
    """What migration will meet in a store; holds no message ids.

    Attributes:
        verdicts: JSON progressions by what admission would say: ``migratable`` or a blocked code.
        named: For each code, the first progressions that have it, in the order of ids.
        left_out: Progressions that have left ``json``, by phase.
        items: Elements of the migratable values.
        size_bytes: UTF-8 bytes of all JSON values read.
        largest_items: Elements of the longest migratable value.
        largest_bytes: Bytes of the largest value read.
        has_fence: Whether the database already refuses appends of programs that know only the JSON column; the
            first cutover installs it.
        foreign: What was seen of other programs that write the store: automatic cutovers wait for them.
        seconds: How long the look took.
        measured_at: When it ended, epoch seconds. Values may have changed since they were read.
    """

    verdicts: Mapping[str, int]
    named: Mapping[str, tuple[str, ...]]
    left_out: Mapping[str, int]
    items: int
    size_bytes: int
    largest_items: int
    largest_bytes: int
    has_fence: bool
    foreign: ForeignWriters
    seconds: float
    measured_at: float

    @property
    def not_migratable(self) -> int:
        """Progressions that admission would block."""
        return sum(self.verdicts.values()) - self.verdicts.get(MIGRATABLE, 0)


def _page(conn: Connection, /, after: str) -> list[tuple[str, int, str | None]]:
    """Ids above ``after`` in order, the bytes of their values, and their phases."""
    size = dialect_of(conn).byte_length(conn, progressions.c.collection)
    joined = progressions.outerjoin(progression_storage_state, _s.progression_id == progressions.c.id)
    query = select(progressions.c.id, size, _s.phase).select_from(joined).where(progressions.c.id > after)
    rows = conn.execute(query.order_by(progressions.c.id).limit(_PAGE_ROWS))
    return [(row[0], int(row[1] or 0), row[2]) for row in rows]


def _values(conn: Connection, /, ids: Sequence[str]) -> list[tuple[str, ParentValue | None]]:
    dialect = dialect_of(conn)
    return [(progression_id, dialect.collection_of(conn, progression_id)) for progression_id in ids]


class _Look:
    """What has been seen so far."""

    def __init__(self, store: MigrationStore, limit: int) -> None:
        self._store = store
        self._limit = limit
        self._longest_id = store.dialect.capabilities.max_migratable_id_bytes
        self.verdicts: Counter[str] = Counter()
        self.left_out: Counter[str] = Counter()
        self.named: dict[str, list[str]] = {}
        self.items = self.size_bytes = self.largest_items = self.largest_bytes = 0

    async def page(self, rows: Sequence[tuple[str, int, str | None]]) -> None:
        """Judge one page, in snapshots of bounded size."""
        waiting: list[str] = []
        size = 0
        for progression_id, bytes_, phase in rows:
            if phase is not None and phase != Phase.JSON:
                self.left_out[phase] += 1
                continue
            if waiting and size + bytes_ > _SNAPSHOT_BYTES:
                await self._judge(waiting)
                waiting, size = [], 0
            waiting.append(progression_id)
            size += bytes_
            self.size_bytes += bytes_
            self.largest_bytes = max(self.largest_bytes, bytes_)
        if waiting:
            await self._judge(waiting)

    async def _judge(self, ids: Sequence[str]) -> None:
        found: Any = await self._store.read(bound(_values, ids))
        for progression_id, value in found:
            if value is None:
                continue
            verdict = await judge(value.value)
            code = verdict.code_for(self._longest_id)
            self.verdicts[MIGRATABLE if code is None else code.value] += 1
            if code is None:
                self.items += verdict.count
                self.largest_items = max(self.largest_items, verdict.count)
            elif len(named := self.named.setdefault(code.value, [])) < self._limit:
                named.append(progression_id)


async def preflight(store: MigrationStore, *, limit: int) -> Preflight:
    """Read every JSON value once and say what admission would.

    Args:
        limit: Progressions to name for each code.

    Cost: the whole column once, in pages of 500 rows and snapshots of at most 8 MiB (one larger value alone); no
    write, no lock.
    Contract: ADR-0117 D3; design decision 15.
    """
    began = time.monotonic()
    look = _Look(store, limit)
    after: str | None = ""
    while after is not None:
        rows: list[tuple[str, int, str | None]] = await store.read(bound(_page, after))
        await look.page(rows)
        after = rows[-1][0] if len(rows) == _PAGE_ROWS else None
    has_fence: bool = await store.read(fence_exists)
    foreign: ForeignWriters = await store.read(
        bound(read_foreign, seen=frozenset(store.parsed.append_counts), now=time.time())
    )
    return Preflight(
        verdicts=dict(look.verdicts),
        named={code: tuple(ids) for code, ids in sorted(look.named.items())},
        left_out=dict(look.left_out),
        items=look.items,
        size_bytes=look.size_bytes,
        largest_items=look.largest_items,
        largest_bytes=look.largest_bytes,
        has_fence=has_fence,
        foreign=foreign,
        seconds=time.monotonic() - began,
        measured_at=time.time(),
    )
