"""``plan()``: what the next steps will do, in their order; every number measured or None, nothing changed."""

from __future__ import annotations

import heapq
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final, TypeAlias

from sqlalchemy import Connection

from lionstate.dialects import ParentValue, dialect_of
from lionstate.errors import BlockedCode, HeldReason
from lionstate.migration import candidates
from lionstate.migration.budget import CHUNK_BYTES, cut_chunk
from lionstate.migration.explain import store_waits
from lionstate.migration.footprint import free_disk_bytes, log_bytes
from lionstate.migration.port import MigrationStore, bound
from lionstate.migration.progress import Amounts, read_amounts
from lionstate.migration.runbook import HELD_RUNBOOK
from lionstate.migration.speed import Speed, load_speed, weight_of
from lionstate.migration.status import count_phases
from lionstate.migration.verification import in_thread, judge
from lionstate.progression.items import count_items
from lionstate.progression.phases import Phase
from lionstate.progression.storage_state import StorageState, get_state

__all__ = ["Move", "Plan", "Planned", "make_plan"]

# The fewest and the most elements that a chunk may have.
ChunkBounds: TypeAlias = tuple[int, int]
Queries: TypeAlias = Callable[[int], Awaitable[Sequence[Callable[[Connection], list[str]]]]]

# Of values that are read whole; the lengths of the others are still told.
_LOOK_BYTES: Final = 64 * 1024 * 1024


class Move(StrEnum):
    """What comes next for a progression."""

    COPY = "copy"
    CUT_OVER = "cut_over"
    REMOVE = "remove"
    ADMIT = "admit"


@dataclass(frozen=True, slots=True)
class Planned:
    """A progression that is taken next.

    Attributes:
        progression_id: Which.
        move: What comes first: finish its ``copy``, ``cut_over``, ``remove`` leftover rows, ``admit``.
        size_bytes: Bytes of its JSON value.
        items: Elements to copy; None when the value was not read.
        id_bytes: Their UTF-8 bytes.
        chunks: Transactions that copy them; a step that ends at a cap of its own makes more of them. None where it
            depends on the holds to come, to which the size of a chunk is fitted.
        removed_items: Rows to remove first.
        code: The code that it will be blocked with, as its value stands; None when it may be migrated, and when
            the value was not read.
        work_seconds: How long steps would work on what is left of it; None until steps on this store have been
            measured.
    """

    progression_id: str
    move: Move
    size_bytes: int
    items: int | None = None
    id_bytes: int | None = None
    chunks: int | None = None
    removed_items: int = 0
    code: str | None = None
    work_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Plan:
    """What migration has before it; holds no message ids. None is: not measured.

    Attributes:
        next: The next progressions, in order.
        order_is_certain: The next step takes them in this order. It may not while the sizes of more progressions
            are still to be noted than one step does: it begins with the smallest of those that it has.
        left: Progressions in ``json`` and ``dual``.
        left_bytes: JSON still to be moved.
        items: Elements of all that is left; None unless ``next`` holds all of it and was read whole.
        chunks: Copying transactions for all that is left; None likewise, and where one in ``next`` is unknown.
        work_seconds: How long steps would work on all that is left, from those measured last on this store; the sum of
            those of ``next`` where it holds all of it.
        growth_bytes: What the store will grow by, from the same steps.
        chunk_lock_seconds: The longest hold of the write lock by a chunk among them.
        cutover_lock_seconds: The longest hold by a cutover.
        log_peak_bytes: The largest write-ahead log seen after them.
        log_bytes: The write-ahead log now.
        store_bytes: The store now, its log aside.
        free_disk_bytes: Free space where it lies; None for a server, whose disk is not seen from here.
        waits: What keeps all of it from moving, or from being cut over.
        seconds: How long the look took.
        measured_at: When it ended, epoch seconds.
    """

    next: tuple[Planned, ...]
    order_is_certain: bool
    left: int
    left_bytes: int | None
    items: int | None
    chunks: int | None
    work_seconds: float | None
    growth_bytes: int | None
    chunk_lock_seconds: float | None
    cutover_lock_seconds: float | None
    log_peak_bytes: int | None
    log_bytes: int | None
    store_bytes: int
    free_disk_bytes: int | None
    waits: tuple[str, ...]
    seconds: float
    measured_at: float


@dataclass(frozen=True, slots=True)
class _Missing:
    """Progressions whose size nobody has noted yet: the smallest of them, how many, and their bytes."""

    smallest: list[tuple[int, str]]
    count: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class _Seen:
    state: StorageState | None
    size_bytes: int
    rows: int
    value: ParentValue | None


async def _missing(store: MigrationStore, limit: int) -> _Missing:
    smallest: list[tuple[int, str]] = []
    count = size_bytes = 0
    after: str | None = ""
    while after is not None:
        page: list[tuple[str, int]] = await store.read(bound(candidates.measure_missing, after=after))
        count += len(page)
        size_bytes += sum(size for _, size in page)
        smallest = heapq.nsmallest(limit, [*smallest, *((size, pid) for pid, size in page)])
        after = page[-1][0] if len(page) == candidates.SIZES_PAGE else None
    return _Missing(smallest, count, size_bytes)


async def _in_order(store: MigrationStore, queries: Queries, missing: _Missing, limit: int) -> list[str]:
    """The next progressions as the service takes them, if it had noted all sizes."""
    # The step notes again what it saw being appended to, before it begins.
    hot = [pid for pid, _ in Counter(store.parsed.append_counts).most_common(candidates.SIZES_PAGE)]
    *first, of_known_size = await queries(limit + len(hot))
    found: dict[str, None] = {}
    for query in first:
        found.update(dict.fromkeys(await store.read(query)))
    known: list[str] = await store.read(of_known_size)
    sizes: dict[str, int] = await store.read(bound(candidates.known_sizes, known))
    fresh = dict(await store.read(bound(candidates.measure_these, hot))) if hot else {}
    sized = sorted([*((fresh.get(pid, sizes[pid]), pid) for pid in known if pid in sizes), *missing.smallest])
    left_out: set[str] = await store.read(bound(candidates.excluded, [pid for _, pid in sized], now=time.time()))
    found.update(dict.fromkeys(pid for _, pid in sized if pid not in left_out))
    return list(found)[:limit]


def _look(conn: Connection, /, progression_id: str, most_bytes: int) -> _Seen | None:
    sized = candidates.measure_these(conn, [progression_id])
    if not sized:
        return None
    state = get_state(conn, progression_id)
    size = sized[0][1]
    value = dialect_of(conn).collection_of(conn, progression_id) if size <= most_bytes else None
    has_leftovers = state is None or state.phase is not Phase.DUAL
    return _Seen(state, size, count_items(conn, progression_id) if has_leftovers else 0, value)


async def _planned(store: MigrationStore, progression_id: str, seen: _Seen, sizes: ChunkBounds) -> Planned:
    state = seen.state
    found = Planned(progression_id, Move.ADMIT, seen.size_bytes, 0, 0, 0)
    if state is not None and state.phase is Phase.DUAL:
        assert state.source_count is not None
        if state.backfill_next == state.source_count:
            return replace(found, move=Move.CUT_OVER)
        found = replace(found, move=Move.COPY)
        span = (state.backfill_next, state.source_count)
        return await _with_elements(store, found, seen, sizes, span, state.next_ordinal)
    if state is not None and (state.is_tombstone or state.shadow_rows):
        found = replace(found, move=Move.REMOVE, removed_items=seen.rows)
        if state.is_tombstone or state.held_reason is not None:
            return found
    elif seen.rows:
        return replace(found, code=BlockedCode.ORPHAN_ITEMS.value)
    return await _with_elements(store, found, seen, sizes, (0, None), None)


async def _with_elements(
    store: MigrationStore,
    found: Planned,
    seen: _Seen,
    sizes: ChunkBounds,
    span: tuple[int, int | None],
    length: int | None,
) -> Planned:
    """Add what the value says of the elements of a span, if it is as long as it should be."""
    start, stop = span
    if seen.value is None:
        # Admission has counted the prefix.
        return replace(found, items=None if stop is None else stop - start, id_bytes=None, chunks=None)
    verdict = await judge(seen.value.value)
    code = verdict.code_for(store.dialect.capabilities.max_migratable_id_bytes)
    if code is None and length is not None and verdict.count != length:
        code = BlockedCode.FOREIGN_WRITE
    if code is not None:
        return replace(found, code=code.value)
    end = verdict.count if stop is None else stop
    least, most = sizes
    most_chunks, size = await in_thread(_chunks, (verdict.ids, start, end, least), seen.size_bytes)
    chunks: int | None = most_chunks
    if end - start > least and most > least:
        fewest, _ = await in_thread(_chunks, (verdict.ids, start, end, most), seen.size_bytes)
        chunks = fewest if fewest == most_chunks else None
    return replace(found, items=end - start, id_bytes=size, chunks=chunks)


def _chunks(work: tuple[Sequence[str], int, int, int]) -> tuple[int, int]:
    """Transactions that copy these ids, each at most so many, and the bytes of the ids."""
    ids, start, stop, most = work
    chunks = size = 0
    while start < stop:
        taken, taken_bytes = cut_chunk(ids, start, stop, max_items=most, max_bytes=CHUNK_BYTES)
        start += len(taken)
        size += taken_bytes
        chunks += 1
    return chunks, size


@dataclass(frozen=True, slots=True)
class _Facts:
    phases: Mapping[str, int]
    amounts: Amounts
    speed: Speed
    store_bytes: int
    waits: list[str]

    @property
    def left(self) -> int:
        return self.phases[Phase.JSON] + self.phases[Phase.DUAL]


def _facts(conn: Connection, /, now: float) -> _Facts:
    phases = count_phases(conn).phases
    return _Facts(
        phases, read_amounts(conn), load_speed(conn), dialect_of(conn).store_bytes(conn), store_waits(conn, now)
    )


async def make_plan(
    store: MigrationStore,
    queries: Queries,
    *,
    limit: int,
    held: HeldReason | None,
    sizes: ChunkBounds,
    load: Sequence[str],
) -> Plan:
    """Look at what is left.

    Args:
        queries: Given how many, what gives the next progressions in order; the last those of known size.
        limit: Progressions to name.
        held: Why no cutover may happen now.
        sizes: The fewest and the most elements that a chunk may have.
        load: What it waits for because the store is under load.

    Cost: the lengths of the values without a size in pages of 500, and the values of the named ones up to 64 MiB; one
    value in memory at a time.
    """
    began = time.monotonic()
    missing = await _missing(store, limit)
    facts: _Facts = await store.read(bound(_facts, time.time()))
    speed = facts.speed
    entries: list[Planned] = []
    may_read = _LOOK_BYTES
    for progression_id in await _in_order(store, queries, missing, limit):
        seen: _Seen | None = await store.read(bound(_look, progression_id, may_read))
        if seen is None:
            continue
        may_read -= seen.size_bytes if seen.value is not None else 0
        entry = await _planned(store, progression_id, seen, sizes)
        entries.append(replace(entry, work_seconds=speed.work_seconds(weight_of(_moves(entry, seen), 1))))
    left_bytes = _left_bytes(facts, missing)
    growth = None if left_bytes is None else speed.growth_bytes(left_bytes)
    moved = [one for one in entries if one.move is not Move.REMOVE or one.items]
    is_whole = len(moved) == facts.left
    work = None if left_bytes is None else speed.work_seconds(weight_of(left_bytes, facts.left))
    if is_whole and entries and None not in (each := [one.work_seconds for one in entries]):
        work = sum(seconds for seconds in each if seconds is not None)
    return Plan(
        next=tuple(entries),
        order_is_certain=missing.count <= candidates.SIZES_PAGE,
        left=facts.left,
        left_bytes=left_bytes,
        items=_total([one.items for one in entries]) if is_whole else None,
        chunks=_total([one.chunks for one in entries]) if is_whole else None,
        work_seconds=work,
        growth_bytes=None if growth is None else round(growth),
        chunk_lock_seconds=speed.chunk_lock_seconds,
        cutover_lock_seconds=speed.cutover_lock_seconds,
        log_peak_bytes=speed.log_bytes,
        log_bytes=log_bytes(store.url),
        store_bytes=facts.store_bytes,
        free_disk_bytes=free_disk_bytes(store.url),
        waits=(*facts.waits, *load, *([] if held is None else [HELD_RUNBOOK[held]])),
        seconds=time.monotonic() - began,
        measured_at=time.time(),
    )


def _moves(entry: Planned, seen: _Seen) -> float:
    """Bytes of its JSON that are still to be copied: of a copy under way, the share of the elements that are left."""
    if entry.code or (entry.move is Move.REMOVE and not entry.items):
        return 0.0
    state = seen.state
    if state is None or state.phase is not Phase.DUAL or not state.source_count:
        return entry.size_bytes
    return entry.size_bytes * (1 - state.backfill_next / state.source_count)


def _left_bytes(facts: _Facts, missing: _Missing) -> int | None:
    """JSON left when every size is known, from what is noted and what was just measured."""
    amounts = facts.amounts
    unknown = facts.phases[Phase.JSON] - amounts.sized - missing.count
    if unknown > 0 or amounts.dual_sized < facts.phases[Phase.DUAL]:
        return None
    left = amounts.json_bytes + missing.size_bytes + amounts.dual_bytes - amounts.dual_copied_bytes
    return max(0, round(left))


def _total(values: Sequence[int | None]) -> int | None:
    return None if None in values else sum(value for value in values if value is not None)
