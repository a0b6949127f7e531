"""The item rows of a progression after its cutover, compared place by place with the JSON that was frozen.

`verify()` and the scrubber share it. What it says is a finding outside every lock, nothing more.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Final

from sqlalchemy import Connection

from lionstate.errors import BlockedCode
from lionstate.migration.admission import Judged
from lionstate.migration.port import MigrationStore, bound
from lionstate.migration.verification import decoders_agree, in_thread, judged_of, read_value
from lionstate.progression.digest import Digest
from lionstate.progression.items import MAX_ORDINAL, MIN_ORDINAL, Item, page
from lionstate.progression.known_text import hash_text
from lionstate.progression.storage_state import StorageState, get_state

__all__ = ["Extent", "FrozenSide", "ItemsWalk", "Rows", "RowsVerdict", "advance", "frozen_side", "judge_rows", "look"]

# Rows of one snapshot; see ``items.PAGE_ROWS``.
_ROWS: Final = 1_000


@dataclass(frozen=True, slots=True)
class Extent:
    """What lies outside the places that an allocator has given out.

    Attributes:
        next_ordinal: The allocator of the snapshot.
        before: There is a row below ordinal 0.
        beyond: Rows at or behind the allocator, at most 1,000.
        first: The lowest of them.
        last: The highest of them.
    """

    next_ordinal: int
    before: bool
    beyond: int
    first: int | None
    last: int | None

    @property
    def is_clean(self) -> bool:
        """Nothing is there."""
        return not (self.before or self.beyond)


@dataclass(frozen=True, slots=True)
class Rows:
    """One page of rows below the allocator; ``extent`` comes with the last one."""

    state: StorageState | None
    rows: list[Item] = field(repr=False)
    extent: Extent | None


def read_rows(conn: Connection, /, progression_id: str, after: int) -> Rows:
    """Read the next 1,000 rows behind an ordinal, and what is wrong around them when these are the last.

    Cost: one primary-key range; at the end two more.
    """
    state = get_state(conn, progression_id)
    if state is None:
        return Rows(None, [], None)
    rows = page(conn, progression_id, after=after, before=state.next_ordinal, limit=_ROWS)
    if len(rows) == _ROWS:
        return Rows(state, rows, None)
    before = bool(page(conn, progression_id, after=MIN_ORDINAL, before=0, limit=1))
    beyond = page(conn, progression_id, after=state.next_ordinal - 1, before=MAX_ORDINAL, limit=_ROWS)
    first, last = (beyond[0][0], beyond[-1][0]) if beyond else (None, None)
    return Rows(state, rows, Extent(state.next_ordinal, before, len(beyond), first, last))


@dataclass(frozen=True, slots=True)
class FrozenSide:
    """The JSON value of a cut-over progression against what was recorded of it.

    Attributes:
        judged: The value, as it was read.
        ids: The frozen ids; None when the value does not begin with them.
        others: Of a migratable value that does not begin with them: what stands at their places; None otherwise.
        digest: Digest of as many ids as were frozen; None when the value is not migratable.
        code: How the value differs from what was recorded; None when it does not.
        is_rewritten: The text is not the one that was recorded.
    """

    judged: Judged
    ids: Sequence[str] | None = field(repr=False)
    digest: str | None
    code: BlockedCode | None
    is_rewritten: bool
    others: Sequence[str] | None = field(default=None, repr=False)


def _digest(ids: Sequence[str]) -> str:
    digest = Digest()
    digest.update(ids)
    return digest.hexdigest()


def _text_record(text: str) -> tuple[int, str]:
    size, found = hash_text(text, len(text), errors="surrogatepass")
    return size, found.hexdigest()


async def frozen_side(judged: Judged, state: StorageState) -> FrozenSide:
    """Judge a value by both decoders, the recorded text and the recorded digest. Cost: linear, outside every lock."""
    value, verdict, frozen = judged.value, judged.verdict, state.frozen_count or 0
    size = len(value) if isinstance(value, (str, bytes)) else 0
    rewritten = not isinstance(value, str)
    if isinstance(value, str) and state.text_sha256 is not None:
        rewritten = await in_thread(_text_record, value, size) != (state.text_bytes, state.text_sha256)
    code = verdict.code
    if code is None and not await decoders_agree(value, verdict.digest):
        code = BlockedCode.MALFORMED_JSON
    if code is not None:
        return FrozenSide(judged, None, None, code, rewritten)
    ids = verdict.ids if verdict.count <= frozen else verdict.ids[:frozen]
    digest = verdict.digest if verdict.count <= frozen else await in_thread(_digest, ids, size)
    if verdict.count < frozen:
        code = BlockedCode.COUNT_MISMATCH
    elif digest != state.source_digest:
        code = BlockedCode.DIGEST_MISMATCH
    else:
        code = BlockedCode.FOREIGN_WRITE if verdict.count > frozen or rewritten else None
        return FrozenSide(judged, ids, digest, code, rewritten)
    return FrozenSide(judged, None, digest, code, rewritten, ids)


@dataclass(slots=True)
class ItemsWalk:
    """How far the rows of one generation were compared.

    With the frozen ids each row is compared with its own; without them the digest of the rows has to do. Places below
    ``start`` were compared before, and equal.

    Attributes:
        generation: Of the rows; another one ends the walk.
        frozen: Places of the prefix.
        ids: The frozen ids; None when the JSON does not begin with them.
        others: What stands at their places then; it says where the JSON differs, not which rows are wrong.
        next: The ordinal that is expected next.
        seen: Rows at places that were expected to have one, those before ``start`` included.
        differing: Rows that are another id than the JSON's, and missing ones.
        first: The lowest place where the rows were seen to differ.
        first_other: The lowest place where the JSON was seen to hold another id than the row, or none, or one more
            than was frozen, while the rows may be right.
        first_missing: The lowest place without a row.
        first_in_tail: The lowest place behind the prefix that has no row.
        digest: Of the rows of the prefix; None when the walk did not begin at 0.
    """

    generation: int
    frozen: int
    ids: Sequence[str] | None = field(repr=False)
    others: Sequence[str] | None = field(default=None, repr=False)
    next: int = 0
    seen: int = 0
    differing: int = 0
    first: int | None = None
    first_other: int | None = None
    first_missing: int | None = None
    first_in_tail: int | None = None
    digest: Digest | None = None

    @classmethod
    def of(cls, state: StorageState, side: FrozenSide, *, start: int = 0) -> ItemsWalk:
        """Begin at a place; only with the frozen ids may that be another than 0."""
        frozen = state.frozen_count or 0
        start = start if side.ids is not None else 0
        is_longer = side.ids is not None and side.judged.verdict.count > frozen
        return cls(
            state.generation,
            frozen,
            side.ids,
            side.others,
            next=start,
            seen=start,
            first_other=frozen if is_longer else None,
            digest=None if start else Digest(),
        )

    def first_difference(self, extent: Extent | None) -> int | None:
        """The lowest place where JSON, rows and allocator were seen to differ; None when none was."""
        places = (self.first, self.first_other, None if extent is None or self.first is not None else extent.first)
        return min((place for place in places if place is not None), default=None)

    def take(self, rows: Sequence[Item]) -> None:
        """Compare the next rows, ascending and behind those that were taken. Cost: linear in them."""
        found = [message_id for _, message_id in rows]
        ordinals = [ordinal for ordinal, _ in rows]
        if ordinals == list(range(self.next, self.next + len(rows))):
            self._compare(self.next, found)
            self.next += len(rows)
        else:
            for ordinal, message_id in rows:
                self._miss(ordinal)
                self._compare(ordinal, [message_id])
                self.next = ordinal + 1
        self.seen += len(rows)

    def end(self, extent: Extent) -> None:
        """Note what is missing up to the allocator."""
        self._miss(extent.next_ordinal)

    def _miss(self, before: int) -> None:
        """Places from the expected one up to ``before`` have no row."""
        if before <= self.next:
            return
        self.differing += before - self.next
        if self.first is None:
            self.first = self.next
        if self.first_missing is None:
            self.first_missing = self.next
        if self.first_in_tail is None and before > self.frozen:
            self.first_in_tail = max(self.next, self.frozen)
        self.next = before

    def _compare(self, start: int, found: list[str]) -> None:
        found = found[: max(0, self.frozen - start)]
        if not found:
            return
        if self.digest is not None:
            self.digest.update(found)
        known = self.others if self.ids is None else self.ids
        if known is None:
            return
        expected = list(known[start : start + len(found)])
        if found == expected:
            return
        pairs = zip_longest(found, expected)
        places = [start + at for at, (left, right) in enumerate(pairs) if left != right]
        if self.ids is None:
            self.first_other = places[0] if self.first_other is None else self.first_other
            return
        self.differing += len(places)
        if self.first is None:
            self.first = places[0]


@dataclass(frozen=True, slots=True)
class RowsVerdict:
    """What the rows are worth.

    Attributes:
        code: What is wrong with them; None when nothing is.
        prefix_is_good: They hold what was frozen.
        tail_is_good: They reach from the prefix to the allocator, and no further.
    """

    code: BlockedCode | None
    prefix_is_good: bool
    tail_is_good: bool


def judge_rows(walk: ItemsWalk, extent: Extent, state: StorageState) -> RowsVerdict:
    """Name what is wrong with rows that were walked to their end.

    Contract: ADR-0117 D3; design decisions 2, 5.
    """
    differs = walk.first is not None and walk.first < walk.frozen
    if walk.ids is not None:
        prefix = not differs and state.items_digest == state.source_digest
    else:
        digest = walk.digest
        prefix = (
            not differs
            and digest is not None
            and digest.count == walk.frozen
            and digest.hexdigest() == state.items_digest
        )
    tail = walk.first_in_tail is None and not extent.beyond and extent.next_ordinal >= walk.frozen
    total = walk.seen + extent.beyond
    has_gap = walk.first_missing is not None and walk.first_missing < walk.seen
    if total != extent.next_ordinal or extent.before:
        behind = extent.last if extent.last is not None else walk.seen - 1
        in_order = not (extent.before or has_gap) and behind == total - 1
        code = BlockedCode.ALLOCATOR_MISMATCH if in_order else BlockedCode.COUNT_MISMATCH
    elif walk.first_missing is not None or extent.beyond:
        code = BlockedCode.ORDINAL_MISMATCH
    elif not (prefix and tail):
        code = BlockedCode.DIGEST_MISMATCH
    else:
        return RowsVerdict(None, True, True)
    return RowsVerdict(code, prefix and not extent.before, tail)


async def advance(
    store: MigrationStore, progression_id: str, walk: ItemsWalk, *, max_rows: int | None, give_up: float | None
) -> tuple[Extent | None, bool]:
    """Walk on over the rows.

    Args:
        max_rows: Rows after which it stops, at least one page.
        give_up: ``time.monotonic()`` after which it stops, after at least one page.
    Returns:
        The extent when the end was reached, else None; and whether the progression is another one now.

    Cost: one snapshot for each 1,000 rows; no lock.
    """
    began = walk.seen
    while True:
        found: Rows = await store.read(bound(read_rows, progression_id, walk.next - 1))
        state = found.state
        if state is None or state.generation != walk.generation:
            return None, True
        await in_thread(walk.take, found.rows, sum(len(message_id) for _, message_id in found.rows))
        if found.extent is not None:
            walk.end(found.extent)
            return found.extent, False
        is_over = max_rows is not None and walk.seen - began >= max_rows
        if is_over or (give_up is not None and time.monotonic() >= give_up):
            return None, False


async def look(store: MigrationStore, progression_id: str) -> tuple[Judged | None, StorageState | None]:
    """The value of a progression, judged, and its state row, of one snapshot; no value when it does not exist."""
    found, state = await store.read(bound(read_value, progression_id))
    if found is None or state is None:
        return None, state
    return await judged_of(progression_id, found, state.generation), state
