"""The owner of migration: bounded steps, verification, switches and status (ADR-0117 D5)."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from sqlalchemy import Connection, func, select

from lionstate.audit import DEFAULT_ACTOR
from lionstate.errors import (
    BackendBusyError,
    DeadlineExceededError,
    HeldReason,
    NotFoundError,
    OutcomeUnknownError,
    OverloadedError,
)
from lionstate.migration import candidates, control, cutover
from lionstate.migration.budget import CHUNK_BYTES, CHUNK_ITEMS, Caps, check_caps
from lionstate.migration.control import Controls, Pause
from lionstate.migration.governor import Governor
from lionstate.migration.knob_verbs import KnobVerbs
from lionstate.migration.knobs import Knobs
from lionstate.migration.memory import Memory
from lionstate.migration.operator import OperatorVerbs, checked_limit
from lionstate.migration.port import MigrationStore, bound
from lionstate.migration.report import (
    MigrationStatus,
    MigrationStep,
    StopReason,
    VerificationResult,
)
from lionstate.migration.stages import Turn
from lionstate.migration.status import read_status
from lionstate.migration.verify import verify
from lionstate.migration.worker import Worker
from lionstate.progression import sightings
from lionstate.schema.own import progression_storage_state

__all__ = ["ProgressionMigrationService"]

_CANDIDATES = 100
_SIGHTINGS = 100
_SIZES_SHARE = 0.25


class ProgressionMigrationService(OperatorVerbs, KnobVerbs):
    """Moves progressions from JSON to item rows, one short transaction at a time, while others append.

    Everything that decides is in the store: two services may race, and a service that dies leaves nothing to
    clean up. Contract: ADR-0117 D3-D5.
    """

    def __init__(
        self,
        store: MigrationStore,
        *,
        actor: str = DEFAULT_ACTOR,
        accept_foreign_writers: bool = False,
        defaults: Knobs | None = None,
    ) -> None:
        """Make a service on an open store.

        Args:
            actor: Named in the audit rows.
            accept_foreign_writers: Cut over although another program seems to write this store; its appends are
                refused by the fence from then on.
            defaults: Of the knobs that nobody has set in the store; None takes the built-in ones.
        """
        self._store = store
        self._actor = actor
        self._accept = accept_foreign_writers
        self._memory = Memory.of(store)
        self._governor = Governor(store)
        self.defaults = defaults or Knobs()
        self._sizes_after: str | None = ""

    async def step(
        self,
        *,
        progression_id: str | None = None,
        max_items: int = CHUNK_ITEMS,
        max_bytes: int = CHUNK_BYTES,
        max_seconds: float = 1.0,
    ) -> MigrationStep:
        """Do a bounded piece of migration: admit, copy, prove, cut over, remove.

        What is begun is finished first, then the smallest JSON values are taken. One transaction copies at most
        500 elements and 4 MiB whatever the caps, and fewer when it holds the lock for longer than the knobs say.

        Args:
            progression_id: Work on this one only.
            max_items: Elements to copy.
            max_bytes: UTF-8 bytes of ids to copy; one id larger than that is copied alone.
            max_seconds: Looked at between transactions and between pages of a proof.
        Returns:
            What was done and why it ended; a store that stays locked ends it as ``busy``, one under load as
            ``throttled``, and more errors than the budget allows pause the lane. Steps of one service take turns.
        Raises:
            InvalidInputError: A cap is not above zero.
            NotFoundError: There is no such progression.

        Contract: ADR-0117 D3, D5; design decisions 24, 25, 36.
        """
        caps = check_caps(max_items, max_bytes, max_seconds)
        async with self._memory.stepping:
            return await self._step(progression_id, caps)

    async def _step(self, progression_id: str | None, caps: Caps) -> MigrationStep:
        now = time.time()
        controls: Controls = await self._store.read(bound(control.load, now, self.defaults))
        controls = replace(controls, accept_foreign_writers=self._accept or controls.accept_foreign_writers)
        run = _Run(self, controls)
        worker = Worker(
            self._store,
            self._memory,
            caps,
            controls,
            actor=self._actor,
            waits=run.waits,
            governor=self._governor,
        )
        try:
            if controls.pause is not None:
                reason = StopReason.PAUSED
            elif await self._governor.hindered(controls.knobs):
                reason = StopReason.THROTTLED
            elif progression_id is not None:
                reason = await self._step_one(worker, progression_id)
            else:
                reason = await self._step_all(worker, run)
        except (BackendBusyError, OverloadedError, DeadlineExceededError, OutcomeUnknownError):
            # Whatever was not committed, or may not have been, is read again by the next step.
            reason = StopReason.BUSY
        except Exception as error:
            self._governor.note_failure(error)
            raise
        return await self._governor.settle(worker.tally.step(reason, worker.seconds), controls.knobs)

    async def _step_one(self, worker: Worker, progression_id: str) -> StopReason:
        while True:
            turn = await worker.advance(progression_id)
            if isinstance(turn, StopReason):
                return turn
            if turn is Turn.LEAVE:
                if worker.last is None:
                    raise NotFoundError("there is no such progression")
                return worker.last

    async def _step_all(self, worker: Worker, run: _Run) -> StopReason:
        await self._flush_activity(worker)
        await self._fill_sizes(worker, worker.caps.max_seconds * _SIZES_SHARE)
        tried: set[str] = set()
        while found := await run.candidates(worker, tried):
            for progression_id in found:
                turn: Turn | StopReason = Turn.AGAIN
                while turn is Turn.AGAIN:
                    turn = await worker.advance(progression_id)
                if isinstance(turn, StopReason):
                    return turn
                tried.add(progression_id)
        return await self._end(worker)

    async def _end(self, worker: Worker) -> StopReason:
        if worker.unfinished:
            return StopReason.BUSY
        held: dict[str, int] = await self._store.read(_held)
        # Those that this step met are counted already.
        worker.tally.held.update({reason: max(0, n - worker.tally.held[reason]) for reason, n in held.items()})
        return StopReason.HELD if held else StopReason.DONE

    async def _flush_activity(self, worker: Worker) -> None:
        """Write the appends observed since the last flush, and measure those progressions again."""
        counts = self._store.parsed.append_counts
        taken = dict(counts)
        if not taken:
            return
        for progression_id in taken:
            del counts[progression_id]
        try:
            script = bound(candidates.write_activity, taken, now=time.time())
            await worker.housekeep("activity", script)
        except BaseException:
            counts.update(taken)
            raise
        hot = [pid for pid, _ in Counter(taken).most_common(candidates.SIZES_PAGE)]
        sizes = await self._store.read(bound(candidates.measure_these, hot))
        await worker.housekeep("sizes", bound(candidates.write_sizes, sizes, now=time.time()))

    async def _fill_sizes(self, worker: Worker, seconds: float) -> None:
        """Measure pages of progressions that have no size yet, for at most ``seconds`` but at least one page."""
        while self._sizes_after is not None:
            page = await self._store.read(bound(candidates.measure_missing, after=self._sizes_after))
            if page:
                await worker.housekeep("sizes", bound(candidates.write_sizes, page, now=time.time()))
            self._sizes_after = page[-1][0] if len(page) == candidates.SIZES_PAGE else None
            if worker.seconds >= seconds:
                return

    def _measure_again(self) -> None:
        self._sizes_after = ""

    async def verify(self, progression_id: str) -> VerificationResult:
        """Compare the representations of one progression; changes nothing in any phase.

        Raises:
            NotFoundError: There is no such progression.

        Cost: linear in the history, in snapshots of 5,000 rows, no lock.
        Contract: ADR-0117 D3, D5; design decision 6.
        """
        return await verify(self._store, progression_id)

    async def status(self, *, limit: int = 100) -> MigrationStatus:
        """Tell how far migration is; no message ids, no write lock.

        Args:
            limit: Hottest JSON progressions to name, 0 to 10,000.

        Contract: ADR-0117 D5.
        """
        seen, now = dict(self._store.parsed.append_counts), time.time()
        limit = checked_limit(limit, 0)

        def script(conn: Connection) -> tuple[MigrationStatus, Controls]:
            return read_status(conn, limit=limit, seen=seen, now=now), control.load(conn, now, self.defaults)

        found: MigrationStatus
        found, controls = await self._store.read(script)
        return replace(found, throttle=await self._governor.report(controls.knobs))

    async def pause(self, *, reason: str | None = None, expires_at: float | None = None) -> None:
        """Stop migration after at most one more transaction; persisted until `resume` or the expiry.

        Args:
            expires_at: Epoch seconds; None is until `resume`.

        Contract: design decision 26.
        """
        script = bound(control.pause, actor=self._actor, reason=reason, now=time.time(), expires_at=expires_at)
        await self._store.maintain("progression_migrate.pause", script)

    async def resume(self, *, reason: str | None = None) -> bool:
        """Lift the pause; return whether there was one. Contract: design decision 26."""
        script = bound(control.resume, actor=self._actor, reason=reason, now=time.time())
        found: bool = await self._store.maintain("progression_migrate.resume", script)
        return found

    async def paused(self) -> Pause | None:
        """The pause in force; None when migration may run."""
        found: Pause | None = await self._store.read(bound(control.get_pause, time.time()))
        return found

    async def set_maintenance_enabled(self, enabled: bool, *, reason: str | None = None) -> None:
        """Say whether a daemon's timer steps this store, whatever its settings say; persisted (design §8)."""
        await self._set(control.MAINTENANCE_ENABLED_KEY, {"enabled": enabled}, reason)

    async def maintenance_enabled(self) -> bool | None:
        """What `set_maintenance_enabled` has persisted; None leaves it to the daemon's settings."""
        found: bool | None = await self._store.read(control.get_maintenance_enabled)
        return found

    async def set_compat_read(self, progression_id: str, enabled: bool) -> None:
        """Switch the compatibility read of one progression that has been cut over.

        Raises:
            NotFoundError: There is no such progression.
            PhaseConflictError: It has not been cut over, or the switch is fixed by a block.

        Contract: ADR-0117 D4; design decisions 2, 3.
        """
        script = bound(control.set_compat_read, progression_id, enabled, actor=self._actor, now=time.time())
        await self._store.maintain("progression_migrate.compat_read", script, progressions=[progression_id])

    async def set_compat_read_everywhere(
        self, enabled: bool, *, reason: str | None = None, expires_at: float | None = None
    ) -> None:
        """Switch the global compatibility read, which counts beside each progression's own switch."""
        script = bound(
            control.set_compat_read_everywhere,
            enabled,
            actor=self._actor,
            reason=reason,
            now=time.time(),
            expires_at=expires_at,
        )
        await self._store.maintain("progression_migrate.compat_read", script)

    async def set_accept_foreign_writers(self, enabled: bool, *, reason: str | None = None) -> None:
        """Say whether cutovers go on although another program seems to write this store; persisted."""
        await self._set(control.ACCEPT_FOREIGN_KEY, {"enabled": enabled}, reason)

    async def _set(self, key: str, value: object, reason: str | None) -> None:
        script = bound(control.set_value, key, value, actor=self._actor, reason=reason, now=time.time())
        await self._store.maintain("progression_migrate.knob", script)


def _held(conn: Connection) -> dict[str, int]:
    """Progressions that wait, by reason."""
    states = progression_storage_state.c
    waiting = select(states.held_reason, func.count()).where(states.held_reason.is_not(None))
    rows = conn.execute(waiting.where(states.phase != "items").group_by(states.held_reason))
    return {str(reason): int(count) for reason, count in rows}


class _Run:
    """What one automatic step knows of the whole store."""

    def __init__(self, service: ProgressionMigrationService, controls: Controls) -> None:
        self._service = service
        self._accept = controls.accept_foreign_writers
        self._looked = False
        self._reason: HeldReason | None = None
        self._written: Sequence[str] = ()
        self._scanned = False

    async def waits(self, progression_id: str | None = None) -> HeldReason | None:
        """Why no cutover may happen now, which is no progression's own fault; found out once a step.

        One whose own row another program wrote is not told to wait: its proof says what became of it, and its
        cutover is refused under the lock.
        """
        if not self._looked:
            self._looked = True
            store = self._service._store
            if await store.read(cutover.fence_is_missing):
                self._reason = HeldReason.FENCE_MISSING
            elif not self._accept and await self._foreign_writers():
                self._reason = HeldReason.FOREIGN_WRITER
        if self._reason is HeldReason.FOREIGN_WRITER and progression_id in self._written:
            return None
        return self._reason

    async def _foreign_writers(self) -> bool:
        """Whether another program seems to write this store; what rows show of it is noted."""
        service, store = self._service, self._service._store
        found: list[tuple[str, float]] = await store.read(candidates.foreign_sessions)
        seen = store.parsed.append_counts
        if any(progression not in seen for progression, _ in found):
            return True
        now = time.time()
        self._written = await store.read(lambda conn: store.dialect.written_by_others(conn, _SIGHTINGS))
        if self._written:
            note = bound(sightings.note_sighting, self._written[0], actor=service._actor, now=now)
            await store.maintain("progression_migrate.sighting", note)
            return True
        return await store.read(bound(sightings.sighted_at, now)) is not None

    async def candidates(self, worker: Worker, tried: set[str]) -> list[str]:
        """Progressions to work on next, in order; [] when there is nothing left that was not tried."""
        store = self._service._store
        count = _CANDIDATES + len(tried)
        # Complete ones wait together, for a reason that is not theirs.
        queries = (
            bound(candidates.started, count=count, also_complete=await self.waits() is None),
            bound(candidates.cleanups, count=count),
            bound(candidates.next_json, count=count),
        )
        while True:
            for query in queries:
                left = [pid for pid in await store.read(query) if pid not in tried]
                if left:
                    return left
            if self._scanned:
                return []
            # Progressions that were created since the sizes were measured.
            self._scanned = True
            self._service._measure_again()
            await self._service._fill_sizes(worker, float("inf"))
