"""The owner of migration: bounded steps, verification, switches and status (ADR-0117 D5)."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TypeAlias

from sqlalchemy import Connection

from lionstate.audit import DEFAULT_ACTOR
from lionstate.codes import ThrottleSignal
from lionstate.errors import (
    BackendBusyError,
    DeadlineExceededError,
    NotFoundError,
    OutcomeUnknownError,
    OverloadedError,
    StateError,
)
from lionstate.migration import candidates, control
from lionstate.migration.budget import CHUNK_BYTES, CHUNK_ITEMS, Caps, check_caps
from lionstate.migration.control import Controls
from lionstate.migration.explain import load_waits
from lionstate.migration.fence import FenceVerbs
from lionstate.migration.footprint import log_bytes
from lionstate.migration.gate import MOVE, Permit
from lionstate.migration.governor import Governor
from lionstate.migration.knob_verbs import KnobVerbs
from lionstate.migration.knobs import Knobs
from lionstate.migration.lane import note_waits
from lionstate.migration.lease import LEASE_SECONDS, Lease, Ownership, process_name
from lionstate.migration.memory import Memory
from lionstate.migration.operator import OperatorVerbs, checked_limit
from lionstate.migration.ordering import OrderVerbs
from lionstate.migration.plan import Plan, make_plan
from lionstate.migration.port import MigrationStore, bound
from lionstate.migration.report import (
    MigrationStatus,
    MigrationStep,
    StopReason,
    VerificationResult,
)
from lionstate.migration.run import Run, held_ones
from lionstate.migration.scrub import Scrubber
from lionstate.migration.shadow import ShadowReads
from lionstate.migration.stages import Turn
from lionstate.migration.status import read_status, with_progress_held
from lionstate.migration.switches import SwitchVerbs
from lionstate.migration.verify import verify
from lionstate.migration.worker import Worker

__all__ = ["ProgressionMigrationService"]

_Walk: TypeAlias = Callable[[Worker, Run], Awaitable[StopReason]]

_SIZES_SHARE = 0.25
_NO_SPEED = (StopReason.PAUSED, StopReason.BUSY, StopReason.THROTTLED, StopReason.NOT_OWNER)


class ProgressionMigrationService(OperatorVerbs, OrderVerbs, KnobVerbs, SwitchVerbs, FenceVerbs):
    """Moves progressions from JSON to item rows, one short transaction at a time, while others append.

    Everything that decides is in the store: two services may race, and a service that dies leaves nothing to
    clean up. Contract: ADR-0117 D3-D5.

    Attributes:
        shadow: Compares answers that were read from a dual JSON with its rows; off until its ratio is set.
        automatic: Whether the daemon that has it steps by itself unless the store says otherwise; None in no daemon.
        not_ready: Why the daemon that has it is not ready now; None when it is, and in no daemon.
    """

    def __init__(
        self,
        store: MigrationStore,
        *,
        actor: str = DEFAULT_ACTOR,
        accept_foreign_writers: bool = False,
        defaults: Knobs | None = None,
        owner: str | None = None,
        sole_owner: bool = False,
    ) -> None:
        """Make a service on an open store.

        Args:
            actor: Named in the audit rows.
            accept_foreign_writers: Cut over although another program seems to write this store; its appends are
                refused by the fence from then on.
            defaults: Of the knobs that nobody has set in the store; None takes the built-in ones.
            owner: The name under which it takes the lease of maintenance; None is this process's.
            sole_owner: It holds the operating system's lock on a SQLite store, so nobody else's lease counts.
        """
        self._store = store
        self.own_actor = actor
        self._accept = accept_foreign_writers
        self._memory = Memory.of(store)
        self._governor = Governor(store)
        self.defaults = defaults or Knobs()
        self._lease = Lease(store, owner or process_name(), sole=sole_owner)
        self._scrubber = Scrubber(store, self._memory, actor=actor)
        self.shadow = ShadowReads(store, self._memory)
        self.automatic: bool | None = None
        self.not_ready: Callable[[], str | None] = lambda: None
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
        if progression_id is None:
            return await self._run(caps, Permit(), self._step_all)
        return await self._run(caps, Permit(MOVE), partial(self._step_one, progression_id))

    async def _commanded(
        self, progression_id: str | None, caps: Caps, permit: Permit, *, accept_foreign_writers: bool
    ) -> MigrationStep:
        walk = self._cut_over_ready if progression_id is None else partial(self._step_one, progression_id)
        return await self._run(caps, permit, walk, accept_foreign_writers=accept_foreign_writers)

    async def _run(
        self, caps: Caps, permit: Permit, walk: _Walk, *, accept_foreign_writers: bool = False
    ) -> MigrationStep:
        async with self._memory.stepping:
            return await self._step(caps, permit, walk, accept_foreign_writers)

    async def _step(self, caps: Caps, permit: Permit, walk: _Walk, accept: bool) -> MigrationStep:
        now = time.time()
        controls: Controls = await self._store.read(bound(control.load, now, self.defaults))
        accept = accept or self._accept or controls.accept_foreign_writers
        controls = replace(controls, accept_foreign_writers=accept)
        run = Run(self._store, controls, actor=self._actor, scan=self._scan_sizes)
        worker = Worker(
            self._store,
            self._memory,
            caps,
            controls,
            actor=self._actor,
            permit=permit,
            renew=self._lease.renew,
            waits=run.waits,
            governor=self._governor,
        )
        try:
            if controls.pause is not None:
                reason = StopReason.PAUSED
            elif await self._governor.hindered(controls.knobs):
                reason = StopReason.THROTTLED
            else:
                reason = await self._owning(worker, run, walk)
            self._memory.lane.worked("step")
        except (BackendBusyError, OverloadedError, DeadlineExceededError, OutcomeUnknownError) as error:
            # Whatever was not committed, or may not have been, is read again by the next step.
            reason = StopReason.BUSY
            self._memory.lane.failed("step", error)
        except Exception as error:
            self._governor.note_failure(error)
            self._memory.lane.failed("step", error)
            raise
        step = await self._governor.settle(worker.tally.step(reason, worker.seconds), controls.knobs)
        if step.stop_reason is StopReason.THROTTLED:
            await self._tell_waits(controls.knobs)
        await self._keep_speed(worker, step)
        return step

    async def _owning(self, worker: Worker, run: Run, walk: _Walk) -> StopReason:
        """Walk with the lease, unless another process has it."""
        owned = await self._lease.take()
        if not owned.is_self:
            return StopReason.NOT_OWNER
        worker.own(self._lease.name, owned.epoch)
        try:
            reason = await walk(worker, run)
        finally:
            if not self._lease.kept:
                await self._lease.give_back()
        if reason is StopReason.NOT_OWNER:
            self._lease.forget()
        return reason

    async def own(self, seconds: float = LEASE_SECONDS) -> Ownership:
        """Take the lease of maintenance and keep it between steps, or see who has it; to be called again and again.

        Args:
            seconds: How long others wait when this process dies.

        Cost: one read, and a write when a third of that has gone by.
        Contract: design decision 27.
        """
        with self._memory.lane.attempt("lease"):
            return await self._lease.own(seconds)

    async def disown(self) -> None:
        """Give the lease back, so that another process may take over at once. Contract: design decision 27."""
        await self._lease.give_back()

    async def _tell_waits(self, knobs: Knobs) -> None:
        """Let the status of other processes name what this one waits for; never on a disk that is about to be full."""
        signals = (await self._governor.report(knobs)).tripped
        if any(one.signal == ThrottleSignal.FREE_DISK for one in signals):
            return
        if signals and self._memory.lane.is_news(signals, time.monotonic()):
            with suppress(StateError):
                script = bound(note_waits, self._lease.name, signals, now=time.time())
                await self._store.maintain("progression_migrate.waits", script)

    async def _keep_speed(self, worker: Worker, step: MigrationStep) -> None:
        """Note what the step measured; written now and then, and never by one that was told to stop."""
        self._memory.speed.note(step, log_bytes(self._store.url))
        if step.stop_reason in _NO_SPEED:
            return
        script = self._memory.speed.due(self._actor, time.time())
        if script is not None:
            with suppress(BackendBusyError, OverloadedError, DeadlineExceededError, OutcomeUnknownError):
                await worker.housekeep("speed", script)

    async def _step_one(self, progression_id: str, worker: Worker, run: Run) -> StopReason:
        while True:
            turn = await worker.advance(progression_id)
            if isinstance(turn, StopReason):
                return turn
            if turn is Turn.LEAVE:
                if worker.last is None:
                    raise NotFoundError("there is no such progression")
                return worker.last

    async def _step_all(self, worker: Worker, run: Run) -> StopReason:
        await self._flush_activity(worker)
        await self._fill_sizes(worker, worker.caps.max_seconds * _SIZES_SHARE)
        return await self._advance_each(worker, partial(run.candidates, worker))

    async def _cut_over_ready(self, worker: Worker, run: Run) -> StopReason:
        return await self._advance_each(worker, run.ready)

    async def _advance_each(self, worker: Worker, next_of: Callable[[set[str]], Awaitable[list[str]]]) -> StopReason:
        tried: set[str] = set()
        while found := await next_of(tried):
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
        met = bool(worker.tally.held)
        held: dict[str, int] = await self._store.read(held_ones)
        # Those that this step met are counted already.
        worker.tally.held.update({reason: max(0, n - worker.tally.held[reason]) for reason, n in held.items()})
        return StopReason.HELD if held or met else StopReason.DONE

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
        began = worker.seconds
        while self._sizes_after is not None:
            page = await self._store.read(bound(candidates.measure_missing, after=self._sizes_after))
            if page:
                await worker.housekeep("sizes", bound(candidates.write_sizes, page, now=time.time()))
            self._sizes_after = page[-1][0] if len(page) == candidates.SIZES_PAGE else None
            if worker.seconds >= seconds:
                break
        worker.tally.sizing_seconds += worker.seconds - began

    async def _scan_sizes(self, worker: Worker) -> None:
        self._sizes_after = ""
        await self._fill_sizes(worker, float("inf"))

    async def verify(
        self, progression_id: str, *, after: str | None = None, max_seconds: float | None = None
    ) -> VerificationResult:
        """Compare the representations of one progression; changes nothing in any phase.

        Args:
            after: The token of one that was cut short; it goes on there unless the progression was replaced.
            max_seconds: After the cutover: where to cut the walk over the rows short.
        Raises:
            InvalidInputError, NotFoundError: The token is none; there is no such progression.

        Cost: linear in the history, in snapshots of at most 5,000 rows, no lock.
        Contract: ADR-0117 D3, D5; design decision 6.
        """
        return await verify(self._store, progression_id, after=after, max_seconds=max_seconds)

    async def status(self, *, limit: int = 100) -> MigrationStatus:
        """Tell how far migration is; no message ids, no write lock.

        Args:
            limit: Hottest JSON progressions to name, 0 to 10,000.

        Contract: ADR-0117 D5.
        """
        seen, now = dict(self._store.parsed.append_counts), time.time()
        limit, name = checked_limit(limit, 0), self._lease.name

        def script(conn: Connection) -> tuple[MigrationStatus, Controls]:
            return read_status(conn, limit=limit, seen=seen, process=name, now=now), control.load(
                conn, now, self.defaults
            )

        found: MigrationStatus
        found, controls = await self._store.read(script)
        throttle = await self._governor.report(controls.knobs)
        persisted = found.maintenance_enabled
        own = replace(
            found,
            throttle=throttle,
            proof=self._scrubber.with_own(found.proof),
            failing=self._memory.lane.failing(),
            automatic=self.automatic if None in (self.automatic, persisted) else persisted,
            not_ready=self.not_ready(),
        )
        return with_progress_held(own, keeps_lease=self._lease.kept)

    async def plan(self, *, limit: int = 20) -> Plan:
        """Tell what the next steps will do, in their order; changes nothing and takes no write lock.

        Args:
            limit: Progressions to name and to look into, 0 to 10,000.

        Cost: one pass over the lengths of the values that were not measured yet, in short reads, and the values of
        the named ones up to 64 MiB.
        Contract: design §5, decisions 19, 38.
        """
        controls: Controls = await self._store.read(bound(control.load, time.time(), self.defaults))
        accept = self._accept or controls.accept_foreign_writers
        run = Run(
            self._store,
            replace(controls, accept_foreign_writers=accept),
            actor=self._actor,
            scan=self._scan_sizes,
            looks_only=True,
        )
        knobs = controls.knobs
        return await make_plan(
            self._store,
            run.queries,
            limit=checked_limit(limit, 0),
            held=await run.waits(),
            sizes=await self._governor.bounds(knobs),
            load=load_waits(await self._governor.report(knobs)),
        )
