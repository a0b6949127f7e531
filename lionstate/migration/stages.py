"""What every stage of a step shares: the caps, the tally, the transaction and the outcomes."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from enum import Enum
from typing import Any, Final

from sqlalchemy import Connection

from lionstate.codes import CONTENT_CODES
from lionstate.errors import HeldReason
from lionstate.migration.admission import Finding, block
from lionstate.migration.budget import Caps
from lionstate.migration.control import Controls
from lionstate.migration.gate import Permit
from lionstate.migration.governor import Governor
from lionstate.migration.memory import Memory
from lionstate.migration.port import MigrationStore, bound
from lionstate.migration.report import Stage, StageOutcome, StepTally, StopReason

__all__ = ["TEXT_TRIES", "Stages", "Turn"]

TEXT_TRIES: Final = 3


class Turn(Enum):
    """What comes after one advance: the same progression again, or another one."""

    AGAIN = "again"
    LEAVE = "leave"


class Stages:
    """One step, and what its stages need.

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
        permit: Permit,
        renew: Callable[[], Awaitable[None]],
        waits: Callable[[str], Awaitable[HeldReason | None]],
        governor: Governor,
    ) -> None:
        """Prepare; ``waits`` tells why no cutover may happen now."""
        self._store = store
        self._memory = memory
        self.caps = caps
        self._controls = controls
        self._actor = actor
        self._permit = permit
        self._renew = renew
        self._waits = waits
        self._governor = governor
        self._began = time.monotonic()
        self._stages = 0
        self.tally = StepTally()
        self.unfinished = False
        self.last: StopReason | None = None

    def own(self, owner: str, epoch: int) -> None:
        """Let every stage look whether the lease is still this one."""
        self._permit = replace(self._permit, owner=owner, epoch=epoch)

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
        await self._governor.turn()
        await self._renew()
        result: Any = None
        try:
            result = await self._store.maintain(
                f"progression_migrate.{name}", script, progressions=[progression_id] if progression_id else ()
            )
        finally:
            self._governor.ended(result, self._controls.knobs)
        return result

    async def must_stop(self) -> StopReason | None:
        """Why no other transaction may begin: the time is over, or the store is under load."""
        if self.over_time:
            return StopReason.CAP_SECONDS
        return StopReason.THROTTLED if await self._governor.hindered(self._controls.knobs) else None

    async def housekeep(self, name: str, script: Callable[[Connection], Any]) -> None:
        """Run a short transaction that is no progress of a progression."""
        await self._store.maintain(f"progression_migrate.{name}", script)

    def _held(self, reason: HeldReason) -> Turn:
        self.tally.held[reason.value] += 1
        self.last = StopReason.HELD
        return Turn.LEAVE

    def _common(self, stage: Stage, progression_id: str) -> Turn | StopReason | None:
        """The outcomes that every stage shares; None for the others."""
        if stage.outcome is StageOutcome.PAUSED:
            return StopReason.PAUSED
        if stage.outcome is StageOutcome.LOST:
            return StopReason.NOT_OWNER
        if stage.outcome is StageOutcome.HELD:
            return self._held(stage.held or HeldReason.OPERATOR)
        if stage.outcome is StageOutcome.MOVED:
            self.tally.lost_races += 1
            return Turn.AGAIN
        if stage.outcome is StageOutcome.TEXT_CHANGED:
            self.tally.text_retries += 1
            return Turn.AGAIN
        if stage.outcome is StageOutcome.BLOCKED:
            assert stage.code is not None
            self.tally.blocked[stage.code.value] += 1
            if stage.code not in CONTENT_CODES:
                self._governor.errors.note(self._governor.clock())
            self._memory.forget(progression_id)
            self.last = StopReason.BLOCKED
            return Turn.LEAVE
        return None

    def _left(self) -> Turn:
        self.unfinished = True
        self.last = StopReason.BUSY
        return Turn.LEAVE

    async def _block(self, finding: Finding) -> Stage:
        progression_id = finding.judged.progression_id
        script = bound(block, finding, permit=self._permit, actor=self._actor, now=time.time())
        stage: Stage = await self.stage("block", progression_id, script)
        if stage.outcome is StageOutcome.UNPROVED:
            # The rows that are remembered are not those that are there.
            self._memory.prover.forget(progression_id)
        return stage
