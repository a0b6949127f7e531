"""One running step on one progression: read its state, do the next stage, count what was done."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from enum import Enum
from typing import Any, Final

from sqlalchemy import Connection

from lionstate.dialects import ParentValue, dialect_of
from lionstate.errors import BackendBusyError, BlockedCode, HeldReason
from lionstate.migration.admission import Finding, admit, block
from lionstate.migration.backfill import copy_chunk, remove_deleted_chunk, remove_shadow_chunk
from lionstate.migration.budget import CHUNK_BYTES, CHUNK_ITEMS, Caps, allowed_seconds, cut_chunk
from lionstate.migration.control import Controls
from lionstate.migration.cutover import STICKY_HOLDS, Mark, cut_over, hold, note_miss, prepare_fence
from lionstate.migration.memory import Memory
from lionstate.migration.port import MigrationStore, bound
from lionstate.migration.report import Stage, StageOutcome, StepTally, StopReason
from lionstate.migration.verification import Proof, judged_of, time_comparison
from lionstate.progression.phases import Phase, new_generation
from lionstate.progression.storage_state import StorageState, get_state

__all__ = ["Turn", "Worker"]

_TEXT_TRIES = 3
# Ids from which a cutover is worth a new look at the statistics.
_LARGE = 10_000
_MEASUREMENTS = 3
_WAIT_DETAILS: Final = {
    HeldReason.FOREIGN_WRITER: "another program seems to write this store",
    HeldReason.FENCE_MISSING: "the fence was removed: install it again or turn it off",
}


class Turn(Enum):
    """What comes after one advance: the same progression again, or another one."""

    AGAIN = "again"
    LEAVE = "leave"


def _look(conn: Connection, /, progression_id: str) -> tuple[bool, StorageState | None]:
    exists = bool(dialect_of(conn).existing_progressions(conn, [progression_id]))
    return exists, get_state(conn, progression_id)


def _look_at_value(conn: Connection, /, progression_id: str) -> tuple[ParentValue | None, StorageState | None]:
    return dialect_of(conn).collection_of(conn, progression_id), get_state(conn, progression_id)


class Worker:
    """Does the stages of one step within its caps.

    Attributes:
        caps: Of this step.
        unfinished: Something was left although nothing holds it: its text kept changing, or a cutover was over
            its time budget.
        last: Phase and reason at which the last progression was left.
    """

    def __init__(
        self,
        store: MigrationStore,
        memory: Memory,
        caps: Caps,
        controls: Controls,
        *,
        actor: str,
        waits: Callable[[str], Awaitable[HeldReason | None]],
    ) -> None:
        """Prepare; ``waits`` tells why no cutover may happen now."""
        self._store = store
        self._memory = memory
        self.caps = caps
        self._controls = controls
        self._actor = actor
        self._waits = waits
        self._began = time.monotonic()
        self._stages = 0
        self.tally = StepTally()
        self.unfinished = False
        self.last: StopReason | None = None

    @property
    def seconds(self) -> float:
        """Since the step began."""
        return time.monotonic() - self._began

    @property
    def over_time(self) -> bool:
        """Whether the time cap is hit; never before the first stage, so that every step comes further."""
        return self._stages > 0 and self.seconds >= self.caps.max_seconds

    async def stage(self, name: str, progression_id: str, script: Callable[[Connection], Any]) -> Any:
        """Run one short transaction as a maintenance ticket."""
        self._stages += 1
        return await self._store.maintain(
            f"progression_migrate.{name}", script, progressions=[progression_id] if progression_id else ()
        )

    async def housekeep(self, name: str, script: Callable[[Connection], Any]) -> None:
        """Run a short transaction that is no progress of a progression."""
        await self._store.maintain(f"progression_migrate.{name}", script)

    async def advance(self, progression_id: str) -> Turn | StopReason:
        """Do the next stage of one progression, several chunks of it when it is being copied."""
        if self.over_time:
            return StopReason.CAP_SECONDS
        exists, state = await self._store.read(bound(_look, progression_id))
        self.last = None
        if not exists:
            self._memory.forget(progression_id)
            return Turn.LEAVE
        if state is None or state.phase is Phase.JSON:
            return await self._before_admission(progression_id, state)
        if state.phase is Phase.DUAL:
            if state.held_reason in STICKY_HOLDS:
                return self._held(HeldReason(state.held_reason))
            if state.source_count is not None and state.backfill_next < state.source_count:
                return await self._copy(state)
            return await self._finish(state)
        if state.is_tombstone:
            return await self._remove(progression_id, bound(remove_deleted_chunk, progression_id, now=time.time()))
        self._memory.forget(progression_id)
        self.last = StopReason.DONE if state.phase is Phase.ITEMS else StopReason.BLOCKED
        return Turn.LEAVE

    def _held(self, reason: HeldReason) -> Turn:
        self.tally.held[reason.value] += 1
        self.last = StopReason.HELD
        return Turn.LEAVE

    def _common(self, stage: Stage, progression_id: str) -> Turn | StopReason | None:
        """The outcomes that every stage shares; None for the others."""
        if stage.outcome is StageOutcome.PAUSED:
            return StopReason.PAUSED
        if stage.outcome is StageOutcome.MOVED:
            self.tally.lost_races += 1
            return Turn.AGAIN
        if stage.outcome is StageOutcome.TEXT_CHANGED:
            self.tally.text_retries += 1
            return Turn.AGAIN
        if stage.outcome is StageOutcome.BLOCKED:
            assert stage.code is not None
            self.tally.blocked[stage.code.value] += 1
            self._memory.forget(progression_id)
            self.last = StopReason.BLOCKED
            return Turn.LEAVE
        return None

    async def _before_admission(self, progression_id: str, state: StorageState | None) -> Turn | StopReason:
        if state is not None and state.shadow_rows:
            script = bound(remove_shadow_chunk, progression_id, generation=state.generation, now=time.time())
            return await self._remove(progression_id, script)
        if state is not None and state.held_reason is not None:
            return self._held(HeldReason(state.held_reason))
        for _ in range(_TEXT_TRIES):
            found, seen = await self._store.read(bound(_look_at_value, progression_id))
            if found is None or (seen is None) != (state is None):
                return Turn.AGAIN
            stage = await self._admit(progression_id, found, seen)
            if stage.outcome is not StageOutcome.TEXT_CHANGED:
                return self._common(stage, progression_id) or Turn.AGAIN
            self.tally.text_retries += 1
        return self._left()

    async def _remove(self, progression_id: str, script: Callable[[Connection], Stage]) -> Turn | StopReason:
        stage: Stage = await self.stage("remove", progression_id, script)
        self.tally.removed_items += stage.count
        if stage.outcome is StageOutcome.REFERENCED:
            return Turn.LEAVE
        return self._common(stage, progression_id) or Turn.AGAIN

    async def _admit(self, progression_id: str, found: ParentValue, seen: StorageState | None) -> Stage:
        generation = new_generation()
        before = None if seen is None else seen.generation
        judged = await judged_of(progression_id, found, before)
        verdict = judged.verdict
        script = bound(admit, judged, generation=generation, actor=self._actor, now=time.time())
        stage: Stage = await self.stage("admit", progression_id, script)
        if stage.outcome is StageOutcome.ADMITTED:
            self.tally.admitted += 1
            self.tally.admitted_items += stage.count
            if stage.count == verdict.count:
                self._memory.sources.keep(progression_id, generation, verdict.ids)
        return stage

    def _left(self) -> Turn:
        self.unfinished = True
        self.last = StopReason.BUSY
        return Turn.LEAVE

    async def _copy(self, state: StorageState) -> Turn | StopReason:
        pid = state.progression_id
        ids = self._memory.sources.get(pid, state.generation)
        if ids is None:
            parsed = await self._parse(pid, state.generation)
            if isinstance(parsed, (Turn, StopReason)):
                return parsed
            ids = parsed
        assert state.source_count is not None
        cursor = state.backfill_next
        while cursor < state.source_count:
            if self.over_time:
                return StopReason.CAP_SECONDS
            chunk, size, stop = self._next_chunk(ids, cursor, state.source_count)
            if stop is not None:
                return stop
            began = time.monotonic()
            script = bound(
                copy_chunk,
                pid,
                generation=state.generation,
                cursor=cursor,
                ids=chunk,
                size_bytes=size,
                transactions=lambda: self._store.explicit_transactions,
                actor=self._actor,
                now=time.time(),
            )
            stage: Stage = await self.stage("chunk", pid, script)
            common = self._common(stage, pid)
            if common is not None:
                return common
            self.tally.add_chunk(stage, time.monotonic() - began)
            self._memory.note_mark(pid, Mark(stage.mark, stage.transactions))
            cursor += stage.count
        return Turn.AGAIN

    def _next_chunk(self, ids: Sequence[str], cursor: int, stop: int) -> tuple[list[str], int, StopReason | None]:
        items = self.caps.max_items - self.tally.items
        size = self.caps.max_bytes - self.tally.size_bytes
        if items <= 0:
            return [], 0, StopReason.CAP_ITEMS
        if size <= 0:
            return [], 0, StopReason.CAP_BYTES
        chunk, taken = cut_chunk(
            ids,
            cursor,
            stop,
            max_items=min(CHUNK_ITEMS, items),
            max_bytes=min(CHUNK_BYTES, size),
            at_least_one=self.tally.items == 0 or size >= CHUNK_BYTES,
        )
        return chunk, taken, None if chunk else StopReason.CAP_BYTES

    async def _parse(self, progression_id: str, generation: int) -> Sequence[str] | Turn | StopReason:
        """Parse the value for the chunks of this generation; a value of another length was written by others."""
        for _ in range(_TEXT_TRIES):
            found, state = await self._store.read(bound(_look_at_value, progression_id))
            if found is None or state is None or state.generation != generation or state.phase is not Phase.DUAL:
                return Turn.AGAIN
            self._memory.parses += 1
            judged = await judged_of(progression_id, found, generation)
            verdict = judged.verdict
            code = verdict.code_for(self._store.dialect.capabilities.max_migratable_id_bytes)
            if code is None and verdict.count == state.next_ordinal:
                self._memory.sources.keep(progression_id, generation, verdict.ids)
                return verdict.ids
            code = code or BlockedCode.FOREIGN_WRITE
            stage = await self._block(Finding(judged, code, state.next_ordinal, {"json_count": verdict.count}))
            if stage.outcome is not StageOutcome.TEXT_CHANGED:
                return self._common(stage, progression_id) or Turn.AGAIN
            self.tally.text_retries += 1
        return self._left()

    async def _block(self, finding: Finding) -> Stage:
        progression_id = finding.judged.progression_id
        script = bound(block, finding, actor=self._actor, now=time.time())
        stage: Stage = await self.stage("block", progression_id, script)
        if stage.outcome is StageOutcome.UNPROVED:
            # The rows that are remembered are not those that are there.
            self._memory.prover.forget(progression_id)
        return stage

    async def _finish(self, state: StorageState) -> Turn | StopReason:
        """Prove both representations equal outside the lock, then flip under it."""
        pid = state.progression_id
        waits = await self._waits(pid)
        if waits is not None:
            return await self._hold(state, waits, _WAIT_DETAILS[waits])
        # Nothing is left to copy from it, and the proof has its own.
        self._memory.sources.forget(pid)
        for _ in range(_TEXT_TRIES):
            began = time.monotonic()
            proof = await self._memory.prover.prove(pid, give_up=self._began + self.caps.max_seconds)
            self.tally.proof_seconds += time.monotonic() - began
            if proof is None:
                self._stages += 1
                return Turn.AGAIN
            self.tally.verified["match" if proof.code is None else "mismatch"] += 1
            stage = await self._conclude(state, proof)
            if stage.outcome is StageOutcome.HELD:
                return self._held(stage.held or HeldReason.OPERATOR)
            if stage.outcome is StageOutcome.CUT_OVER:
                self.tally.cut_over += 1
                self.tally.cutover_lock_seconds = max(self.tally.cutover_lock_seconds, stage.lock_seconds)
                self._memory.forget(pid)
                if proof.count >= _LARGE:
                    with suppress(BackendBusyError):
                        statistics = self._store.dialect.refresh_statistics
                        await self._store.maintain("progression_migrate.statistics", statistics)
                self.last = StopReason.DONE
                return Turn.LEAVE
            if stage.outcome is StageOutcome.MISSED:
                return self._left()
            if stage.outcome is StageOutcome.UNPROVED:
                self.tally.lost_races += 1
            elif stage.outcome is StageOutcome.TEXT_CHANGED:
                self.tally.text_retries += 1
            else:
                return self._common(stage, pid) or Turn.LEAVE
        return self._left()

    async def _conclude(self, state: StorageState, proof: Proof) -> Stage:
        if proof.code is not None:
            return await self._block(proof.finding(proof.code))
        allowed = allowed_seconds(proof.count, self._controls.verify_seconds)
        estimate = await self._estimate(proof, allowed)
        stage = await self._cut_over(proof, estimate <= allowed)
        if stage.outcome is StageOutcome.HELD and stage.held is HeldReason.FENCE_MISSING:
            fence = bound(prepare_fence, actor=self._actor, now=time.time())
            if not await self.stage("fence", "", fence):
                return await self._note_hold(state, HeldReason.FENCE_MISSING, _WAIT_DETAILS[HeldReason.FENCE_MISSING])
            stage = await self._cut_over(proof, estimate <= allowed)
        if stage.outcome is StageOutcome.MISSED:
            return await self._miss(proof, estimate, allowed)
        return stage

    async def _cut_over(self, proof: Proof, may_compare: bool) -> Stage:
        pid = proof.judged.progression_id
        script = bound(
            cut_over,
            proof,
            mark=self._memory.marks.get(pid),
            may_compare=may_compare,
            transactions=lambda: self._store.explicit_transactions,
            accept_foreign_writers=self._controls.accept_foreign_writers,
            actor=self._actor,
            now=time.time(),
        )
        stage: Stage = await self.stage("cutover", pid, script)
        return stage

    async def _estimate(self, proof: Proof, allowed: float) -> float:
        """The least of up to three measurements of what a cutover would do under the lock: the rest is noise."""
        estimate = float("inf")
        for _ in range(_MEASUREMENTS):
            seconds: float = await self._store.read(bound(time_comparison, proof.judged))
            estimate = min(estimate, seconds)
            if estimate <= allowed:
                break
        return estimate

    async def _miss(self, proof: Proof, estimate: float, allowed: float) -> Stage:
        script = bound(
            note_miss,
            proof.judged.progression_id,
            generation=proof.state.generation,
            seconds=estimate,
            allowed_seconds=allowed,
            count=proof.count,
            actor=self._actor,
            now=time.time(),
        )
        stage: Stage = await self.stage("hold", proof.judged.progression_id, script)
        return stage

    async def _note_hold(self, state: StorageState, reason: HeldReason, detail: str) -> Stage:
        script = bound(
            hold,
            state.progression_id,
            reason,
            generation=state.generation,
            detail=detail,
            actor=self._actor,
            now=time.time(),
        )
        stage: Stage = await self.stage("hold", state.progression_id, script)
        return stage

    async def _hold(self, state: StorageState, reason: HeldReason, detail: str) -> Turn | StopReason:
        stage = await self._note_hold(state, reason, detail)
        if stage.outcome is StageOutcome.HELD:
            return self._held(reason)
        return self._common(stage, state.progression_id) or Turn.LEAVE
