"""The stages that bring a progression from its JSON to a copied prefix, and that remove rows no phase reads."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from sqlalchemy import Connection

from lionstate.dialects import ParentValue
from lionstate.errors import BlockedCode, HeldReason
from lionstate.migration.admission import Finding, admit
from lionstate.migration.backfill import copy_chunk, remove_shadow_chunk
from lionstate.migration.budget import CHUNK_BYTES, cut_chunk
from lionstate.migration.cutover import Mark
from lionstate.migration.port import bound
from lionstate.migration.report import Stage, StageOutcome, StopReason
from lionstate.migration.stages import TEXT_TRIES, Stages, Turn
from lionstate.migration.verification import judged_of, read_value
from lionstate.progression.phases import Phase, new_generation
from lionstate.progression.storage_state import StorageState

__all__ = ["Copying"]


class Copying(Stages):
    """Admission, chunks, and the removal of rows."""

    async def _before_admission(self, progression_id: str, state: StorageState | None) -> Turn | StopReason:
        if state is not None and state.shadow_rows:
            script = bound(
                remove_shadow_chunk,
                progression_id,
                generation=state.generation,
                limit=self._removal(),
                permit=self._permit,
                now=time.time(),
            )
            return await self._remove(progression_id, script)
        if state is not None and state.held_reason is not None:
            return self._held(HeldReason(state.held_reason))
        for _ in range(TEXT_TRIES):
            found, seen = await self._store.read(bound(read_value, progression_id))
            if found is None or (seen is None) != (state is None):
                return Turn.AGAIN
            stage = await self._admit(progression_id, found, seen)
            if stage.outcome is not StageOutcome.TEXT_CHANGED:
                return self._common(stage, progression_id) or Turn.AGAIN
            self.tally.text_retries += 1
        return self._left()

    def _removal(self) -> int:
        """Rows of the next removal."""
        return self._governor.items(self._governor.removals, self._controls.knobs)

    async def _remove(self, progression_id: str, script: Callable[[Connection], Stage]) -> Turn | StopReason:
        stage: Stage = await self.stage("remove", progression_id, script)
        self.tally.removed_items += stage.count
        self._governor.learn(self._governor.removals, stage.count, self._controls.knobs)
        if stage.outcome is StageOutcome.REFERENCED:
            return Turn.LEAVE
        return self._common(stage, progression_id) or Turn.AGAIN

    async def _admit(self, progression_id: str, found: ParentValue, seen: StorageState | None) -> Stage:
        generation = new_generation()
        before = None if seen is None else seen.generation
        judged = await judged_of(progression_id, found, before)
        verdict = judged.verdict
        script = bound(admit, judged, generation=generation, permit=self._permit, actor=self._actor, now=time.time())
        stage: Stage = await self.stage("admit", progression_id, script)
        if stage.outcome is StageOutcome.ADMITTED:
            self.tally.admitted += 1
            self.tally.admitted_items += stage.count
            if stage.count == verdict.count:
                self._memory.sources.keep(progression_id, generation, verdict.ids)
        return stage

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
            stop = await self.must_stop()
            if stop is not None:
                return stop
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
                permit=self._permit,
                actor=self._actor,
                now=time.time(),
            )
            stage: Stage = await self.stage("chunk", pid, script)
            common = self._common(stage, pid)
            if common is not None:
                return common
            self.tally.add_chunk(stage, time.monotonic() - began)
            self._governor.learn(self._governor.chunks, stage.count, self._controls.knobs)
            self._memory.note_mark(pid, Mark(stage.mark, stage.transactions))
            cursor += stage.count
        # All of them are rows now, and the proof reads the value anew.
        self._memory.sources.forget(pid)
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
            max_items=min(self._governor.items(self._governor.chunks, self._controls.knobs), items),
            max_bytes=min(CHUNK_BYTES, size),
            at_least_one=self.tally.items == 0 or size >= CHUNK_BYTES,
        )
        return chunk, taken, None if chunk else StopReason.CAP_BYTES

    async def _parse(self, progression_id: str, generation: int) -> Sequence[str] | Turn | StopReason:
        """Parse the value for the chunks of this generation; a value of another length was written by others."""
        for _ in range(TEXT_TRIES):
            found, state = await self._store.read(bound(read_value, progression_id))
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
