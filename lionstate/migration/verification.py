"""Stage one of a cutover, and verification: both representations proved equal outside every lock."""

from __future__ import annotations

import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from sqlalchemy import Connection

from lionstate.dialects import dialect_of
from lionstate.engine.offload import run_pure
from lionstate.errors import BlockedCode
from lionstate.migration.admission import Judged
from lionstate.migration.port import MigrationStore, bound
from lionstate.progression.digest import Digest
from lionstate.progression.items import PAGE_ROWS, count_items, page
from lionstate.progression.phases import Phase
from lionstate.progression.storage_state import StorageState, get_state
from lionstate.progression.strict import Verdict, decode_again, strict_verdict

__all__ = [
    "Facts",
    "Proof",
    "Prover",
    "TextProof",
    "compare",
    "in_thread",
    "judge",
    "read_facts",
    "read_page",
    "size_of",
]

A = TypeVar("A")
R = TypeVar("R")

_THREAD_BYTES = 16 * 1024 * 1024
_KEPT_WALKS = 8
_WHITESPACE = " \t\n\r"


@dataclass(frozen=True, slots=True)
class Facts:
    """One progression as one snapshot showed it.

    Attributes:
        exists: Whether the ``progressions`` row is there.
        items: Item rows at or above ordinal 0.
        last_ordinal: The highest of them; None without rows.
        read_seconds: What reading the value cost: the work that a cutover does under the lock when it cannot tell
            that nothing has changed.
    """

    exists: bool
    state: StorageState | None
    value: object = field(repr=False)
    version: int | None
    items: int
    last_ordinal: int | None
    read_seconds: float


def read_facts(conn: Connection, /, progression_id: str) -> Facts:
    """Read state, value and the extent of the item rows. Cost: the value, and a count over the primary key."""
    began = time.perf_counter()
    found = dialect_of(conn).collection_of(conn, progression_id)
    seconds = time.perf_counter() - began
    count = count_items(conn, progression_id)
    last = page(conn, progression_id, limit=1, newest_first=True)
    state = get_state(conn, progression_id)
    if found is None:
        return Facts(False, state, None, None, count, None, seconds)
    return Facts(True, state, found.value, found.version, count, last[0][0] if last else None, seconds)


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


async def in_thread(work: Callable[[A], R], argument: A, size_bytes: int) -> R:
    """As ``run_pure``, but never in a child process: hashes cannot be sent there."""
    return await run_pure(work, argument, min(size_bytes, _THREAD_BYTES))


@dataclass(frozen=True, slots=True)
class TextProof:
    """What a cutover records of a text, open at its end so that own appends can be added under the lock.

    Attributes:
        digest: Over all ids.
        prefix_hash: SHA-256 over the text before its closing bracket.
        prefix_bytes: UTF-8 length of that.
        closing: Index of the closing bracket.
    """

    digest: Digest
    prefix_hash: Any
    prefix_bytes: int
    closing: int

    def text_record(self, text: str) -> tuple[int, str]:
        """Bytes and SHA-256 of a text that begins with the prefix. Cost: linear in what follows it."""
        rest = text[self.closing :].encode()
        whole = self.prefix_hash.copy()
        whole.update(rest)
        return self.prefix_bytes + len(rest), whole.hexdigest()


def _prove_text(work: tuple[str, Sequence[str]]) -> TextProof:
    text, ids = work
    digest = Digest()
    digest.update(ids)
    closing = len(text.rstrip(_WHITESPACE)) - 1
    prefix = text[:closing].encode()
    return TextProof(digest, hashlib.sha256(prefix), len(prefix), closing)


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
    """

    judged: Judged
    facts: Facts
    state: StorageState
    code: BlockedCode | None
    count: int
    text: TextProof | None
    items: Digest
    first_difference: int | None

    @property
    def details(self) -> dict[str, Any]:
        """Counts and digests, for the audit row."""
        return {
            "json_count": self.count,
            "items_count": self.facts.items,
            "next_ordinal": self.state.next_ordinal,
            "json_digest": None if self.text is None else self.text.digest.hexdigest(),
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
        self._last_text: tuple[object, Verdict, TextProof] | None = None

    def forget(self, progression_id: str) -> None:
        """Drop what is remembered of one progression, and the last text."""
        self._walks.pop(progression_id, None)
        self._last_text = None

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
        state = facts.state
        if not facts.exists or state is None or state.phase not in (Phase.DUAL, Phase.BLOCKED):
            return None
        return await self.prove_facts(progression_id, facts, state, give_up=give_up, keep=keep)

    async def prove_facts(
        self, progression_id: str, facts: Facts, state: StorageState, *, give_up: float | None, keep: bool
    ) -> Proof | None:
        """As `prove`, for a snapshot that has been taken."""
        last = self._last_text
        if last is not None and type(last[0]) is type(facts.value) and last[0] == facts.value:
            verdict = last[1]
        else:
            last = None
            verdict = await judge(facts.value)
        judged = Judged(progression_id, facts.value, facts.version, state.generation, verdict)
        code = verdict.code_for(self._store.dialect.capabilities.max_migratable_id_bytes)
        if code is not None:
            return Proof(judged, facts, state, code, verdict.count, None, Digest(), None)
        assert isinstance(facts.value, str)
        text = last[2] if last else await in_thread(_prove_text, (facts.value, verdict.ids), len(facts.value))
        self._last_text = (facts.value, verdict, text)
        walk = self._walk(progression_id, state.generation, keep=keep)
        if not await self._read_rows(walk, progression_id, state, verdict.ids, give_up):
            return None
        contiguous = not walk.gap and facts.last_ordinal == (facts.items - 1 if facts.items else None)
        code = compare(
            json_count=verdict.count,
            items_count=facts.items,
            next_ordinal=state.next_ordinal,
            contiguous=contiguous,
            json_digest=text.digest.hexdigest(),
            items_digest=walk.digest.hexdigest(),
        )
        if code is None and await run_pure(decode_again, facts.value, len(facts.value)) != verdict.ids:
            # The two decoders disagree, so one of them is wrong: what it read must not become the authority.
            code = BlockedCode.DIGEST_MISMATCH
        first = walk.first_difference
        if first is None and verdict.count != walk.next:
            first = min(verdict.count, walk.next)
        return Proof(judged, facts, state, code, verdict.count, text, walk.digest.copy(), first)

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
