"""``verify()``: what each phase lets one compare, read-only."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator, Sequence

from lionstate.errors import BlockedCode, NotFoundError
from lionstate.migration.port import MigrationStore, bound
from lionstate.migration.report import VerificationOutcome, VerificationResult
from lionstate.migration.verification import Facts, Prover, in_thread, judge, read_facts, read_page
from lionstate.progression.digest import Digest
from lionstate.progression.items import PAGE_ROWS, Item
from lionstate.progression.phases import Authority, Phase
from lionstate.progression.storage_state import StorageState
from lionstate.progression.strict import Verdict

__all__ = ["verify"]

_TRIES = 5


class _Replaced(Exception):
    """Another generation was met between two pages."""


async def verify(store: MigrationStore, progression_id: str) -> VerificationResult:
    """Compare the representations of one progression; a replacement under way starts it again, five times at most.

    Raises:
        NotFoundError: There is no such progression.

    Contract: ADR-0117 D3; design decisions 5, 6.
    """
    facts: Facts = await store.read(bound(read_facts, progression_id))
    for _ in range(_TRIES):
        try:
            return await _verify(store, progression_id, facts)
        except _Replaced:
            facts = await store.read(bound(read_facts, progression_id))
    return _result(progression_id, facts, VerificationOutcome.INCOMPLETE)


async def _verify(store: MigrationStore, progression_id: str, facts: Facts) -> VerificationResult:
    state = facts.state
    if facts.found is None or (state is not None and state.is_tombstone):
        raise NotFoundError("there is no such progression")
    if state is not None and (state.frozen_count is not None) and state.authority is not Authority.JSON:
        return await _verify_items(store, facts, state)
    if state is not None and state.authority is Authority.NONE:
        mismatch = _result(progression_id, facts, VerificationOutcome.MISMATCH)
        return dataclasses.replace(mismatch, code=state.blocked_reason, items_count=facts.items)
    if state is None or state.phase is Phase.JSON or state.source_count is None:
        verdict = await judge(facts.value)
        code = verdict.code_for(store.dialect.capabilities.max_migratable_id_bytes)
        found = _result(progression_id, facts, VerificationOutcome.NOT_APPLICABLE)
        if code is not None:
            return dataclasses.replace(found, code=code.value)
        return dataclasses.replace(found, json_count=verdict.count, json_digest=verdict.digest)
    if state.backfill_next < state.source_count:
        return await _verify_partial(store, facts, state, state.source_count)
    proof = await Prover(store).prove_facts(facts, facts.found, state, give_up=None, keep=False)
    if proof is None:
        raise _Replaced
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
            raise _Replaced
        if rows:
            yield rows
        if len(rows) < PAGE_ROWS:
            return
        after = rows[-1][0]


async def _verify_partial(
    store: MigrationStore, facts: Facts, state: StorageState, source_count: int
) -> VerificationResult:
    """Compare what has been copied, and the tail that dual appends wrote, with the same places of the JSON."""
    verdict = await judge(facts.value)
    code = verdict.code
    if code is None and verdict.count != state.next_ordinal:
        code = BlockedCode.FOREIGN_WRITE
    first: int | None = None
    count = 0
    if code is None:
        for start, end in ((0, state.backfill_next), (source_count, state.next_ordinal)):
            seen = 0
            async for rows in _rows(store, state, first=start, before=end):
                seen += len(rows)
                first = first if first is not None else _first_difference(rows, verdict, start + seen - len(rows))
            count += seen
            if code is None and seen != end - start:
                code = BlockedCode.COUNT_MISMATCH
        if code is None and first is not None:
            code = BlockedCode.DIGEST_MISMATCH
    outcome = VerificationOutcome.INCOMPLETE if code is None else VerificationOutcome.MISMATCH
    return dataclasses.replace(
        _result(state.progression_id, facts, outcome),
        code=None if code is None else code.value,
        json_count=verdict.count if verdict.code is None else None,
        items_count=count,
        first_difference=first,
    )


def _first_difference(rows: Sequence[Item], verdict: Verdict, expected: int) -> int | None:
    for place, (ordinal, message_id) in enumerate(rows, expected):
        if ordinal != place or verdict.ids[ordinal] != message_id:
            return place
    return None


async def _verify_items(store: MigrationStore, facts: Facts, state: StorageState) -> VerificationResult:
    """Compare frozen prefix, item prefix and both recorded digests; then the tail with the allocator."""
    frozen = state.frozen_count
    assert frozen is not None
    verdict = await judge(facts.value)
    prefix, source = Digest(), verdict.ids[:frozen]
    items = Digest()
    await in_thread(prefix.update, source, sum(map(len, source)))
    place, gap, first = 0, False, None
    async for rows in _rows(store, state, first=0, before=state.next_ordinal):
        ids = [message_id for _, message_id in rows]
        gap = gap or [ordinal for ordinal, _ in rows] != list(range(place, place + len(rows)))
        if first is None and (ids[: max(0, frozen - place)] != source[place : place + len(ids)] or gap):
            first = next(
                (at for at, (ordinal, found) in enumerate(rows, place) if ordinal != at or _other(source, at, found)),
                None,
            )
        if place < frozen:
            part = ids[: frozen - place]
            await in_thread(items.update, part, sum(map(len, part)))
        place += len(rows)
    code = _items_code(facts, state, frozen, verdict, prefix, items, gap)
    outcome = VerificationOutcome.MATCH if code is None else VerificationOutcome.MISMATCH
    return dataclasses.replace(
        _result(state.progression_id, facts, outcome),
        code=code,
        json_count=verdict.count if verdict.code is None else None,
        items_count=facts.items,
        json_digest=prefix.hexdigest() if verdict.code is None else None,
        items_digest=items.hexdigest(),
        first_difference=first,
    )


def _other(source: Sequence[str], place: int, message_id: str) -> bool:
    return place < len(source) and source[place] != message_id


def _items_code(
    facts: Facts,
    state: StorageState,
    frozen: int,
    verdict: Verdict,
    prefix: Digest,
    items: Digest,
    gap: bool,
) -> str | None:
    if verdict.code is not None:
        return verdict.code.value
    last = -1 if facts.last_ordinal is None else facts.last_ordinal
    contiguous = not gap and last + 1 == facts.items
    if facts.items != state.next_ordinal:
        found = BlockedCode.ALLOCATOR_MISMATCH if contiguous else BlockedCode.COUNT_MISMATCH
        return found.value
    if not contiguous:
        return BlockedCode.ORDINAL_MISMATCH.value
    if verdict.count < frozen or items.count < frozen:
        return BlockedCode.COUNT_MISMATCH.value
    if prefix.hexdigest() != state.source_digest or items.hexdigest() != state.items_digest:
        return BlockedCode.DIGEST_MISMATCH.value
    return BlockedCode.FOREIGN_WRITE.value if verdict.count > frozen else None
