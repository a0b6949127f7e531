"""``verify()``: what each phase lets one compare, read-only."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from lionstate.errors import BlockedCode, InvalidInputError, NotFoundError
from lionstate.migration.admission import Judged
from lionstate.migration.findings import trusted_after
from lionstate.migration.port import MigrationStore, bound
from lionstate.migration.report import VerificationOutcome, VerificationResult
from lionstate.migration.verification import Facts, Prover, decoders_agree, judge, judged_of, read_facts, read_page
from lionstate.migration.walk import FrozenSide, ItemsWalk, advance, frozen_side, judge_rows
from lionstate.progression.items import PAGE_ROWS, Item
from lionstate.progression.phases import Authority, Phase
from lionstate.progression.storage_state import StorageState
from lionstate.progression.strict import Verdict

__all__ = ["Replaced", "compare_copied", "verify"]

_TRIES = 5
_NONE = "-"
# Of a number of 63 bits.
_DIGITS = 19


class Replaced(Exception):
    """Another generation was met between two pages."""


@dataclass(frozen=True, slots=True)
class _Place:
    """How far the rows of one generation were compared, and what was found by then; a token says it in text."""

    generation: int
    next: int
    seen: int
    first: int | None = None
    first_missing: int | None = None
    first_in_tail: int | None = None

    @classmethod
    def of(cls, walk: ItemsWalk) -> _Place:
        if walk.ids is None:
            # What such rows are worth is told by their digest alone, from the first one on.
            return cls(walk.generation, 0, 0)
        return cls(walk.generation, walk.next, walk.seen, walk.first, walk.first_missing, walk.first_in_tail)

    @classmethod
    def of_token(cls, token: str | None) -> _Place | None:
        if token is None:
            return None
        parts = token.split(":")
        if all(part == _NONE or (part.isdecimal() and len(part) <= _DIGITS) for part in parts):
            match [None if part == _NONE else int(part) for part in parts]:
                case [int(generation), int(ordinal)]:
                    return cls(generation, ordinal, ordinal)
                case [int(generation), int(ordinal), int(seen), first, missing, in_tail]:
                    return cls(generation, ordinal, seen, first, missing, in_tail)
        raise InvalidInputError("the token is not one that a verification gave: give it as it was printed")

    def token(self) -> str:
        found = (self.first, self.first_missing, self.first_in_tail)
        if found == (None, None, None):
            return f"{self.generation}:{self.next}"
        numbers = (self.generation, self.next, self.seen, *found)
        return ":".join(_NONE if number is None else str(number) for number in numbers)

    def walk_on(self, walk: ItemsWalk, state: StorageState) -> None:
        """Have a walk that compares each row with its own id begin here, unless the rows are others now."""
        if self.generation == state.generation and self.next <= state.next_ordinal and walk.ids is not None:
            walk.next, walk.seen = self.next, self.seen
            walk.first, walk.first_missing, walk.first_in_tail = self.first, self.first_missing, self.first_in_tail
            walk.digest = walk.digest if self.next == 0 else None


async def verify(
    store: MigrationStore, progression_id: str, *, after: str | None = None, max_seconds: float | None = None
) -> VerificationResult:
    """Compare the representations of one progression; a replacement under way starts it again, five times at most.

    Args:
        after: The token of a verification that was cut short.
        max_seconds: After the cutover: cut it short, after at least 1,000 rows; the other phases need no long walk
            over rows that could go on later. Where the JSON is not what was frozen, only the digest of all rows tells
            what they are worth: it goes on from the first row then, and is not cut again.
    Raises:
        InvalidInputError: The token is none.
        NotFoundError: There is no such progression.

    Contract: ADR-0117 D3; design decisions 5, 6.
    """
    start = _Place.of_token(after)
    give_up = None if max_seconds is None else time.monotonic() + max_seconds
    facts: Facts = await store.read(bound(read_facts, progression_id))
    for _ in range(_TRIES):
        try:
            return await _verify(store, progression_id, facts, start, give_up)
        except Replaced:
            facts = await store.read(bound(read_facts, progression_id))
    return _result(progression_id, facts, VerificationOutcome.INCOMPLETE)


async def _verify(
    store: MigrationStore, progression_id: str, facts: Facts, start: _Place | None, give_up: float | None
) -> VerificationResult:
    state = facts.state
    if facts.found is None or (state is not None and state.is_tombstone):
        raise NotFoundError("there is no such progression")
    if state is not None and (state.frozen_count is not None) and state.authority is not Authority.JSON:
        judged = await judged_of(progression_id, facts.found, state.generation)
        return await _verify_items(store, facts, judged, state, start, give_up)
    if state is not None and state.authority is Authority.NONE:
        mismatch = _result(progression_id, facts, VerificationOutcome.MISMATCH)
        return dataclasses.replace(mismatch, code=state.blocked_reason, items_count=facts.items)
    if state is None or state.phase is Phase.JSON or state.source_count is None:
        verdict = await judge(facts.value)
        code = verdict.code_for(store.dialect.capabilities.max_migratable_id_bytes)
        if not await decoders_agree(facts.value, verdict.digest):
            code = code or BlockedCode.MALFORMED_JSON
        found = _result(progression_id, facts, VerificationOutcome.NOT_APPLICABLE)
        if code is not None:
            return dataclasses.replace(found, code=code.value)
        return dataclasses.replace(found, json_count=verdict.count, json_digest=verdict.digest)
    if state.backfill_next < state.source_count:
        judged = await judged_of(progression_id, facts.found, state.generation)
        return await _verify_partial(store, facts, judged, state)
    proof = await Prover(store).prove_facts(facts, facts.found, state, give_up=None, keep=False)
    if proof is None:
        raise Replaced
    outcome = VerificationOutcome.MATCH if proof.code is None else VerificationOutcome.MISMATCH
    return dataclasses.replace(
        _result(progression_id, facts, outcome),
        code=None if proof.code is None else proof.code.value,
        json_count=None if proof.source is None else proof.count,
        items_count=facts.items,
        json_digest=None if proof.source is None else proof.source.hexdigest(),
        items_digest=None if proof.source is None else proof.items.hexdigest(),
        first_difference=proof.first_difference,
    )


def _result(progression_id: str, facts: Facts, outcome: VerificationOutcome) -> VerificationResult:
    state = facts.state
    phase = Phase.JSON if state is None else state.phase
    return VerificationResult(
        progression_id, phase.value, outcome, next_ordinal=None if state is None else state.next_ordinal
    )


async def _rows(store: MigrationStore, state: StorageState, *, first: int, before: int) -> AsyncIterator[list[Item]]:
    """The item rows of one generation from ``first`` on, in short snapshots."""
    after = first - 1
    while after + 1 < before:
        generation, rows = await store.read(bound(read_page, state.progression_id, after, before))
        if generation != state.generation:
            raise Replaced
        if rows:
            yield rows
        if len(rows) < PAGE_ROWS:
            return
        after = rows[-1][0]


async def _verify_partial(
    store: MigrationStore, facts: Facts, judged: Judged, state: StorageState
) -> VerificationResult:
    code, first, count = await compare_copied(store, judged, state)
    outcome = VerificationOutcome.INCOMPLETE if code is None else VerificationOutcome.MISMATCH
    return dataclasses.replace(
        _result(state.progression_id, facts, outcome),
        code=None if code is None else code.value,
        json_count=judged.verdict.count if judged.verdict.code is None else None,
        items_count=count,
        first_difference=first,
    )


async def compare_copied(
    store: MigrationStore, judged: Judged, state: StorageState
) -> tuple[BlockedCode | None, int | None, int]:
    """Compare what has been copied, and the tail that dual appends wrote, with the same places of the JSON.

    Returns:
        What differs, the lowest place where it does, and the rows compared.
    Raises:
        Replaced: Its rows are others now.
    """
    verdict = judged.verdict
    code = verdict.code
    if code is None and not await decoders_agree(judged.value, verdict.digest):
        code = BlockedCode.MALFORMED_JSON
    if code is None and verdict.count != state.next_ordinal:
        code = BlockedCode.FOREIGN_WRITE
    first: int | None = None
    count = 0
    if code is not None:
        return code, first, count
    for start, end in ((0, state.backfill_next), (state.source_count or 0, state.next_ordinal)):
        seen = 0
        async for rows in _rows(store, state, first=start, before=end):
            seen += len(rows)
            first = first if first is not None else _first_difference(rows, verdict, start + seen - len(rows))
        count += seen
        if seen != end - start:
            code = BlockedCode.COUNT_MISMATCH
            first = first if first is not None else start + seen
    if code is None and first is not None:
        code = BlockedCode.DIGEST_MISMATCH
    return code, first, count


def _first_difference(rows: Sequence[Item], verdict: Verdict, expected: int) -> int | None:
    for place, (ordinal, message_id) in enumerate(rows, expected):
        if ordinal != place or verdict.ids[ordinal] != message_id:
            return place
    return None


async def _verify_items(
    store: MigrationStore,
    facts: Facts,
    judged: Judged,
    state: StorageState,
    start: _Place | None,
    give_up: float | None,
) -> VerificationResult:
    """Compare frozen prefix, item prefix and both recorded digests; then the tail with the allocator."""
    side = await frozen_side(judged, state)
    walk = ItemsWalk.of(state, side)
    if start is not None:
        start.walk_on(walk, state)
        give_up = None if walk.ids is None else give_up
    extent, moved = await advance(store, state.progression_id, walk, max_rows=None, give_up=give_up)
    if moved:
        raise Replaced
    found = dataclasses.replace(
        _result(state.progression_id, facts, VerificationOutcome.INCOMPLETE),
        json_count=judged.verdict.count if judged.verdict.code is None else None,
        json_digest=side.digest,
        first_difference=walk.first_difference(extent),
    )
    if extent is None:
        found = dataclasses.replace(found, items_count=walk.seen, token=_Place.of(walk).token())
        if walk.first is None and side.ids is not None:
            return found
        # They differ, whatever stands behind; which code is known at the end only.
        return dataclasses.replace(found, outcome=VerificationOutcome.MISMATCH, code=_code_so_far(walk, side).value)
    verdict = trusted_after(side, judge_rows(walk, extent, state))
    return dataclasses.replace(
        found,
        outcome=VerificationOutcome.MATCH if verdict is None else VerificationOutcome.MISMATCH,
        code=None if verdict is None else verdict[0].value,
        items_count=walk.seen + extent.beyond,
        items_digest=None if walk.digest is None else walk.digest.hexdigest(),
        next_ordinal=extent.next_ordinal,
    )


def _code_so_far(walk: ItemsWalk, side: FrozenSide) -> BlockedCode:
    """What the scrubber would say if the rows behind those that were read are good."""
    if walk.first is not None:
        return BlockedCode.COUNT_MISMATCH if walk.first == walk.first_missing else BlockedCode.DIGEST_MISMATCH
    changed = BlockedCode.FOREIGN_WRITE if side.is_rewritten else side.code
    return changed or BlockedCode.DIGEST_MISMATCH
