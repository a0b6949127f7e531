"""Prove that two stores hold the same rows; when they do not, name the progressions that differ."""

from __future__ import annotations

import asyncio
import hashlib
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from sqlalchemy import Connection

from lionstate.copying.report import OnProgress
from lionstate.copying.sides import Side, pages
from lionstate.copying.tables import COPIED, CopiedTable
from lionstate.copying.values import DIGEST_MASK, digest_rows, hex_of
from lionstate.dialects import dialect_of
from lionstate.progression import items
from lionstate.progression.digest import Digest
from lionstate.schema.conversation import progressions
from lionstate.schema.own import progression_items, progression_storage_state

__all__ = ["Compared", "Sum", "compare", "sum_of"]

_PROGRESSIONS_NAMED = 5
_ABOUT_PROGRESSIONS = (progressions.name, progression_items.name, progression_storage_state.name)


@dataclass(frozen=True, slots=True)
class Sum:
    """Rows of a table and the sum of their digests."""

    rows: int = 0
    digest: int = 0


@dataclass(frozen=True, slots=True)
class Compared:
    """One table on both sides; ``progressions`` names some that differ."""

    name: str
    source: Sum
    target: Sum
    progressions: tuple[str, ...] = field(default=())

    def __str__(self) -> str:
        sides = (self.source, self.target)
        rows, digests = [side.rows for side in sides], [hex_of(side.digest)[:8] for side in sides]
        text = f"{self.name}: source {rows[0]} rows {digests[0]}, target {rows[1]} rows {digests[1]}"
        return f"{text}, progressions {', '.join(self.progressions)}" if self.progressions else text


async def compare(
    source: Side,
    target: Side,
    totals: Mapping[str, int],
    on_progress: OnProgress,
    tables: Sequence[CopiedTable] = COPIED,
) -> list[Compared]:
    """Read these tables of both sides, one after the other, and compare.

    Cost: one pass over both stores.
    """
    found: list[Compared] = []
    done, total = 0, 2 * sum(totals.values())
    for copied in tables:
        sums: list[Sum] = []
        for side in (source, target):

            def note(rows: int, before: int = done) -> None:
                on_progress("verify", min(before + rows, total), total)

            sums.append(await sum_of(side, copied, note))
            done += sums[-1].rows
        found.append(Compared(copied.name, sums[0], sums[1]))
    if any(table.source != table.target for table in found if table.name in _ABOUT_PROGRESSIONS):
        named = await _different_progressions(source, target)
        found = [
            Compared(table.name, table.source, table.target, named)
            if table.name in _ABOUT_PROGRESSIONS and table.source != table.target
            else table
            for table in found
        ]
    return found


async def sum_of(side: Side, copied: CopiedTable, note: Callable[[int], None]) -> Sum:
    """Read a whole table and add up its rows; ``note`` is told after each page how many. Cost: one pass."""
    rows = digest = 0
    async with pages(side, copied) as found:
        async for page in found:
            digest += await asyncio.to_thread(digest_rows, copied, page.rows)
            rows += len(page.rows)
            note(rows)
    return Sum(rows, digest & DIGEST_MASK)


async def _different_progressions(source: Side, target: Side) -> tuple[str, ...]:
    """Some of the source's progressions whose JSON or items differ in the target."""
    (copied,) = (copied for copied in COPIED if copied.table is progressions)
    names: list[str] = []
    async with pages(source, copied) as found:
        async for page in found:
            for progression_id in (str(copied.key_of(row)[0]) for row in page.rows):
                look = partial(_fingerprint, progression_id=progression_id)
                if await source.run(look) != await target.run(look):
                    names.append(progression_id)
                    if len(names) == _PROGRESSIONS_NAMED:
                        return tuple(names)
    return tuple(names)


def _fingerprint(conn: Connection, /, *, progression_id: str) -> tuple[str | None, int, str, str]:
    """Digest of the JSON value, and count, ordered digest and digest of the ordinals of the items."""
    value = dialect_of(conn).collection_of(conn, progression_id)
    dialect_of(conn).prefer_indexes(conn)
    digest, ordinals = Digest(), hashlib.sha256()
    for page in items.pages(conn, progression_id):
        ordinals.update(array("q", [ordinal for ordinal, _ in page]).tobytes())
        digest.update([message_id for _, message_id in page])
    text = None if value is None else hashlib.sha256(repr(value.value).encode()).hexdigest()
    return text, digest.count, digest.hexdigest(), ordinals.hexdigest()
