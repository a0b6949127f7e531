"""Stage one of a cutover, and verification: both representations proved equal outside every lock."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from sqlalchemy import Connection

from lionstate.dialects import ParentValue, dialect_of
from lionstate.engine.offload import run_pure
from lionstate.errors import BlockedCode
from lionstate.migration.admission import Finding, Judged, compare_value
from lionstate.migration.port import MigrationStore, bound
from lionstate.progression.digest import Digest
from lionstate.progression.items import PAGE_ROWS, count_items, page
from lionstate.progression.known_text import KnownText
from lionstate.progression.phases import Phase
from lionstate.progression.storage_state import StorageState, get_state
from lionstate.progression.strict import Verdict, digest_again, strict_verdict

__all__ = [
    "Facts",
    "Proof",
    "Prover",
    "compare",
    "decoders_agree",
    "in_thread",
    "judge",
    "judged_of",
    "read_facts",
    "read_page",
    "read_value",
    "size_of",
    "time_comparison",
]

A = TypeVar("A")
R = TypeVar("R")

_THREAD_BYTES = 16 * 1024 * 1024
_KEPT_WALKS = 8


@dataclass(frozen=True, slots=True)
class Facts:
    """One progression as one snapshot showed it.

    Attributes:
        found: The value; None when there is no ``progressions`` row.
        items: Item rows at or above ordinal 0.
        last_ordinal: The highest of them; None without rows.
    """

    found: ParentValue | None = field(repr=False)
    state: StorageState | None
    items: int
    last_ordinal: int | None

    @property
    def value(self) -> object:
        """What stands in the column."""
        return None if self.found is None else self.found.value


def read_facts(conn: Connection, /, progression_id: str) -> Facts:
    """Read state, value and the extent of the item rows. Cost: the value, and a count over the primary key."""
    found = dialect_of(conn).collection_of(conn, progression_id)
    count = count_items(conn, progression_id)
    last = page(conn, progression_id, limit=1, newest_first=True)
    state = get_state(conn, progression_id)
    return Facts(found, state, count, last[0][0] if last and found is not None else None)


def read_value(conn: Connection, /, progression_id: str) -> tuple[ParentValue | None, StorageState | None]:
    """The value and the state row of one snapshot. Cost: the value."""
    return dialect_of(conn).collection_of(conn, progression_id), get_state(conn, progression_id)


def read_page(
    conn: Connection, /, progression_id: str, after: int, before: int
) -> tuple[int | None, list[tuple[int, str]]]:
    """One page of item rows between two exclusive bounds, and the generation that they belong to."""
    state = get_state(conn, progression_id)
    rows = page(conn, progression_id, after=after, before=before, limit=PAGE_ROWS)
    return (None if state is None else state.generation), rows


def size_of(value: object) -> int:
    """Characters or bytes of a value, to choose where work on it runs."""
    return len(value) if isinstance(value, (str, bytes)) else 0


async def judge(value: object) -> Verdict:
    """The strict verdict, in a thread or a child process when the value is large."""
    return await run_pure(strict_verdict, value, size_of(value))


async def second_digest(value: object) -> str | None:
    """The digest of what the second decoder reads from a value; None: that it may not be migrated."""
    return await run_pure(digest_again, value, size_of(value))


async def decoders_agree(value: object, digest: str | None) -> bool:
    """Whether the second decoder reads from a value what the strict one did; None: that it may not be migrated.

    Where they disagree one of them is wrong, and what it read must not become the authority: `malformed_json`.
    """
    return await second_digest(value) == digest


async def judged_of(progression_id: str, found: ParentValue, generation: int | None) -> Judged:
    """Judge a value that a snapshot showed, and take note of its text; off the event loop when it is large."""
    value = found.value
    verdict = await judge(value)
    known = await in_thread(KnownText.of, value, len(value)) if isinstance(value, str) else None
    return Judged(progression_id, value, found.version, found.seal, generation, verdict, known)


def time_comparison(conn: Connection, /, judged: Judged) -> float:
    """Seconds of what a cutover does under the lock when it cannot tell that nothing has changed."""
    began = time.perf_counter()
    compare_value(conn, judged)
    return time.perf_counter() - began


async def in_thread(work: Callable[[A], R], argument: A, size_bytes: int) -> R:
    """As ``run_pure``, but never in a child process: hashes cannot be sent there."""
    return await run_pure(work, argument, min(size_bytes, _THREAD_BYTES))


def _digest(ids: Sequence[str]) -> Digest:
    digest = Digest()
    digest.update(ids)
    return digest


@dataclass(slots=True)
class _Walk:
    """How far the item rows of one generation have been read, kept between steps."""

    generation: int
    digest: Digest = field(default_factory=Digest)
    next: int = 0
    gap: bool = False
    first_difference: int | None = None

    def take(self, work: tuple[Sequence[str], Sequence[str]]) -> None:
        """Add rows; note where they first differ from the JSON side."""
        rows, expected = work
        self.digest.update(rows)
        if self.first_difference is None and list(rows) != list(expected):
            same = zip(rows, expected, strict=False)
            place = next((at for at, (left, right) in enumerate(same) if left != right), min(len(rows), len(expected)))
            self.first_difference = self.next + place
        self.next += len(rows)


@dataclass(frozen=True, slots=True)
class Proof:
    """Both representations, read and compared outside the lock.

    Attributes:
        code: What is wrong; None when they are equal.
        count: Elements of the JSON value.
        source: Digest of them; None when the value may not be migrated.
        in_rows: Value and allocator agree, so that ``code`` is about the item rows.
        first_difference: The lowest ordinal at which a row differs from the value; None when none was seen to.
    """

    judged: Judged
    facts: Facts
    state: StorageState
    code: BlockedCode | None
    count: int
    source: Digest | None
    items: Digest
    first_difference: int | None
    in_rows: bool = False

    def finding(self, code: BlockedCode) -> Finding:
        """What must be proved again under the lock to block for ``code``."""
        next_ordinal = self.state.next_ordinal
        return Finding(self.judged, code, next_ordinal, self.details, self.in_rows, self.first_difference)

    @property
    def details(self) -> dict[str, Any]:
        """Counts and digests, for the audit row."""
        return {
            "json_count": self.count,
            "items_count": self.facts.items,
            "next_ordinal": self.state.next_ordinal,
            "json_digest": None if self.source is None else self.source.hexdigest(),
            "items_digest": self.items.hexdigest(),
            "first_difference": self.first_difference,
        }


def compare(
    *,
    json_count: int,
    items_count: int,
    next_ordinal: int,
    contiguous: bool,
    json_digest: str,
    items_digest: str,
) -> BlockedCode | None:
    """Name what differs between the representations; None when they are equal (design decision 5).

    A JSON value that alone disagrees with allocator and rows was written by somebody else.
    """
    if items_count != json_count:
        foreign = contiguous and items_count == next_ordinal
        return BlockedCode.FOREIGN_WRITE if foreign else BlockedCode.COUNT_MISMATCH
    if not contiguous:
        return BlockedCode.ORDINAL_MISMATCH
    if json_digest != items_digest:
        return BlockedCode.DIGEST_MISMATCH
    return None if next_ordinal == json_count else BlockedCode.ALLOCATOR_MISMATCH


class Prover:
    """Makes proofs; remembers how far the rows of a few generations have been read.

    Rows of one generation are neither rewritten nor removed (design decision 4), so what was read stays read.
    """

    def __init__(self, store: MigrationStore) -> None:
        """Read through ``store``."""
        self._store = store
        self._walks: OrderedDict[str, _Walk] = OrderedDict()
        # What the last text held, its digest, and that of the second decoder.
        self._last: tuple[Judged, Digest, str | None] | None = None

    def forget(self, progression_id: str) -> None:
        """Drop what is remembered of one progression, and the last text."""
        self._walks.pop(progression_id, None)
        self._last = None

    def _walk(self, progression_id: str, generation: int, *, keep: bool) -> _Walk:
        found = self._walks.get(progression_id) if keep else None
        if found is None or found.generation != generation:
            found = _Walk(generation)
        if keep:
            self._walks[progression_id] = found
            self._walks.move_to_end(progression_id)
            while len(self._walks) > _KEPT_WALKS:
                self._walks.popitem(last=False)
        return found

    async def prove(self, progression_id: str, *, give_up: float | None = None, keep: bool = True) -> Proof | None:
        """Compare the whole JSON value of a dual progression with its rows.

        Args:
            give_up: ``time.monotonic()`` after which the reading of rows stops; at least one page is read.
            keep: Go on from what an earlier proof has read, and remember how far this one came.
        Returns:
            The proof, whose ``code`` says what differs; None when the progression moved on or time was over.

        Cost: linear in the history, outside every lock, in snapshots of 5,000 rows.
        Contract: ADR-0117 D3; design decisions 5, 7.
        """
        facts: Facts = await self._store.read(bound(read_facts, progression_id))
        facts = self._with_last_text(facts)
        state = facts.state
        if facts.found is None or state is None or state.phase not in (Phase.DUAL, Phase.BLOCKED):
            return None
        return await self.prove_facts(facts, facts.found, state, give_up=give_up, keep=keep)

    def _with_last_text(self, facts: Facts) -> Facts:
        """The same facts with the last text in place of one that is equal: one of them is enough to keep."""
        found, last = facts.found, self._last
        if found is None or last is None or type(last[0].value) is not type(found.value):
            return facts
        return replace(facts, found=replace(found, value=last[0].value)) if last[0].value == found.value else facts

    async def prove_facts(
        self, facts: Facts, found: ParentValue, state: StorageState, *, give_up: float | None, keep: bool
    ) -> Proof | None:
        """As `prove`, for a snapshot that has been taken: ``found`` and ``state`` are those of ``facts``."""
        progression_id, value = state.progression_id, found.value
        last, source = self._last, None
        if last is not None and type(last[0].value) is type(value) and last[0].value == value:
            kept, source, second = last
            judged = Judged(
                progression_id, value, found.version, found.seal, state.generation, kept.verdict, kept.known
            )
        else:
            self._last = None
            # First, while nothing else of a large value is held: a child that decodes one needs twice its size.
            second = await second_digest(value)
            judged = await judged_of(progression_id, found, state.generation)
        verdict = judged.verdict
        code = verdict.code_for(self._store.dialect.capabilities.max_migratable_id_bytes)
        if code is not None:
            return Proof(judged, facts, state, code, verdict.count, None, Digest(), None)
        if source is None:
            source = await in_thread(_digest, verdict.ids, size_of(value))
        self._last = (judged, source, second)
        walk = self._walk(progression_id, state.generation, keep=keep)
        if not await self._read_rows(walk, progression_id, state, verdict.ids, give_up):
            return None
        contiguous = not walk.gap and facts.last_ordinal == (facts.items - 1 if facts.items else None)
        code = compare(
            json_count=verdict.count,
            items_count=facts.items,
            next_ordinal=state.next_ordinal,
            contiguous=contiguous,
            json_digest=source.hexdigest(),
            items_digest=walk.digest.hexdigest(),
        )
        in_rows = code is not None and verdict.count == state.next_ordinal
        if code is None and second != source.hexdigest():
            # One of the decoders is wrong, and what it read must not become the authority.
            code = BlockedCode.MALFORMED_JSON
        first = walk.first_difference
        if first is None and verdict.count != walk.next:
            first = min(verdict.count, walk.next)
        return Proof(judged, facts, state, code, verdict.count, source, walk.digest.copy(), first, in_rows)

    async def _read_rows(
        self, walk: _Walk, progression_id: str, state: StorageState, ids: Sequence[str], give_up: float | None
    ) -> bool:
        """Read on to the allocator; False when another generation was met or the time is over."""
        while walk.next < state.next_ordinal and not walk.gap:
            generation, rows = await self._store.read(
                bound(read_page, progression_id, walk.next - 1, state.next_ordinal)
            )
            if generation != walk.generation:
                self.forget(progression_id)
                return False
            if not rows:
                break
            good = [found for place, (ordinal, found) in enumerate(rows) if ordinal == walk.next + place]
            walk.gap = len(good) != len(rows)
            expected = ids[walk.next : walk.next + len(good)]
            await in_thread(walk.take, (good, expected), sum(map(len, good)))
            if walk.gap:
                seen = walk.first_difference
                walk.first_difference = walk.next if seen is None else min(walk.next, seen)
            elif give_up is not None and walk.next < state.next_ordinal and time.monotonic() >= give_up:
                return False
        return True
