"""One running step on one progression: read its state, do the next stage, count what was done."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Final

from sqlalchemy import Connection

from lionstate.dialects import dialect_of
from lionstate.errors import BackendBusyError, HeldReason
from lionstate.migration.backfill import remove_deleted_chunk
from lionstate.migration.budget import allowed_seconds
from lionstate.migration.copying import Copying
from lionstate.migration.cutover import (
    STICKY_HOLDS,
    cut_over,
    hold,
    note_miss,
    note_ready,
    prepare_fence,
)
from lionstate.migration.gate import Permit, holds
from lionstate.migration.orders import proof_of
from lionstate.migration.port import bound
from lionstate.migration.report import Stage, StageOutcome, StopReason
from lionstate.migration.stages import TEXT_TRIES, Turn
from lionstate.migration.verification import Proof, time_comparison
from lionstate.progression.phases import Phase
from lionstate.progression.storage_state import StorageState, get_state

__all__ = ["Worker"]


# Ids from which a cutover is worth a new look at the statistics.
_LARGE = 10_000
_MEASUREMENTS = 3
_WAIT_DETAILS: Final = {
    HeldReason.FOREIGN_WRITER: "another program seems to write this store",
    HeldReason.FENCE_MISSING: "the fence was removed: install it again or turn it off",
}


def _look(conn: Connection, /, progression_id: str) -> tuple[bool, StorageState | None]:
    exists = bool(dialect_of(conn).existing_progressions(conn, [progression_id]))
    return exists, get_state(conn, progression_id)


def _orders(conn: Connection, /, state: StorageState, permit: Permit, now: float) -> tuple[bool, bool]:
    """Whether an order holds the cutover, and whether a proof is kept for the command that it waits for."""
    pid = state.progression_id
    return holds(conn, pid, permit, now), proof_of(conn, pid, state.generation) is not None


class Worker(Copying):
    """Does the stages of one step within its caps."""

    async def advance(self, progression_id: str) -> Turn | StopReason:
        """Do the next stage of one progression, several chunks of it when it is being copied."""
        stop = await self.must_stop()
        if stop is not None:
            return stop
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
            script = bound(
                remove_deleted_chunk, progression_id, limit=self._removal(), permit=self._permit, now=time.time()
            )
            return await self._remove(progression_id, script)
        self._memory.forget(progression_id)
        self.last = StopReason.DONE if state.phase is Phase.ITEMS else StopReason.BLOCKED
        return Turn.LEAVE

    async def _finish(self, state: StorageState) -> Turn | StopReason:
        """Prove both representations equal outside the lock, then flip under it, or keep it ready for a command."""
        pid = state.progression_id
        held, proved = await self._store.read(bound(_orders, state, self._permit, time.time()))
        if held and proved:
            return self._held(HeldReason.OPERATOR)
        waits = None if held else await self._waits(pid)
        if waits is not None:
            return await self._hold(state, waits, _WAIT_DETAILS[waits])
        # Nothing is left to copy from it, and the proof has its own.
        self._memory.sources.forget(pid)
        for _ in range(TEXT_TRIES):
            began = time.monotonic()
            proof = await self._memory.prover.prove(pid, give_up=self._began + self.caps.max_seconds)
            self.tally.proof_seconds += time.monotonic() - began
            if proof is None:
                self._stages += 1
                return Turn.AGAIN
            self.tally.verified["match" if proof.code is None else "mismatch"] += 1
            stage = await self._conclude(state, proof, held)
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

    async def _conclude(self, state: StorageState, proof: Proof, held: bool) -> Stage:
        if proof.code is not None:
            return await self._block(proof.finding(proof.code))
        if held:
            ready: Stage = await self.stage(
                "ready", state.progression_id, bound(note_ready, proof, permit=self._permit, now=time.time())
            )
            return ready
        allowed = allowed_seconds(proof.count, self._controls.knobs.verify_budget_seconds)
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
            permit=self._permit,
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
