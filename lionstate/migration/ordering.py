"""The verbs by which an operator orders what migration does next, and commands cutovers."""

from __future__ import annotations

import time
from typing import Any, Protocol

from sqlalchemy import Connection

from lionstate.dialects import dialect_of
from lionstate.errors import NotFoundError, PhaseConflictError, ProgressionBlockedError
from lionstate.migration import control, cutover, orders
from lionstate.migration.acting import Acting
from lionstate.migration.budget import CHUNK_BYTES, CHUNK_ITEMS, check_caps
from lionstate.migration.gate import CUTOVER, Permit
from lionstate.migration.orders import HOLD_ALL_KEY, OrderKind
from lionstate.migration.port import MigrationStore, bound
from lionstate.migration.report import MigrationStep
from lionstate.progression.phases import Phase
from lionstate.progression.storage_state import get_state

__all__ = ["OrderVerbs"]


class _Steps(Protocol):
    """What runs a step that was commanded."""

    _store: MigrationStore

    @property
    def _actor(self) -> str: ...

    async def _commanded(
        self, progression_id: str | None, caps: Any, permit: Permit, *, accept_foreign_writers: bool
    ) -> MigrationStep: ...


class OrderVerbs(Acting):
    """Holds, exclusions and priorities, all persisted with actor, reason, time and an optional end; cutovers."""

    _store: MigrationStore

    async def hold(self, progression_id: str, *, reason: str | None = None, expires_at: float | None = None) -> None:
        """Keep one progression from its cutover until `release`, the expiry, or `cutover`.

        It is admitted, copied and proved all the same, and waits at stage ``ready``.

        Args:
            expires_at: Epoch seconds; None is until it is released.
        Raises:
            NotFoundError: There is no such progression.

        Contract: design decision 26.
        """
        await self._order(progression_id, OrderKind.HOLD, reason, expires_at)

    async def hold_all(self, *, reason: str | None = None, expires_at: float | None = None) -> None:
        """Let cutovers happen by command only; what is proved waits at stage ``ready``. Contract: decision 26."""
        value = {"enabled": True}
        script = bound(
            control.set_value,
            HOLD_ALL_KEY,
            value,
            actor=self._actor,
            reason=reason,
            now=time.time(),
            expires_at=expires_at,
        )
        await self._store.maintain("progression_migrate.hold", script)

    async def release(self, progression_id: str, *, reason: str | None = None) -> bool:
        """Lift the holds of one progression; return whether there was one.

        Raises:
            NotFoundError: There is no such progression.
        """
        script = bound(cutover.release, progression_id, actor=self._actor, reason=reason, now=time.time())
        found: bool = await self._store.maintain("progression_migrate.release", script, progressions=[progression_id])
        return found

    async def release_all(self, *, reason: str | None = None) -> bool:
        """Let cutovers happen by themselves again; return whether they did not.

        Holds of single progressions stay. Contract: design decision 26.
        """
        script = bound(
            control.clear_value,
            HOLD_ALL_KEY,
            action="release_all",
            actor=self._actor,
            reason=reason,
            now=time.time(),
        )
        found: bool = await self._store.maintain("progression_migrate.release", script)
        return found

    async def prioritize(
        self, progression_id: str, *, clear: bool = False, reason: str | None = None, expires_at: float | None = None
    ) -> bool:
        """Have one progression worked on before all others, or take that back; return whether that changed anything.

        Raises:
            NotFoundError: There is no such progression.
        """
        return await self._order_or_clear(progression_id, OrderKind.PRIORITIZE, clear, reason, expires_at)

    async def exclude(
        self, progression_id: str, *, clear: bool = False, reason: str | None = None, expires_at: float | None = None
    ) -> bool:
        """Have automatic work pass over one progression, or take that back; return whether that changed anything.

        ``step`` and ``cutover`` that name it still work on it.

        Raises:
            NotFoundError: There is no such progression.
        """
        return await self._order_or_clear(progression_id, OrderKind.EXCLUDE, clear, reason, expires_at)

    async def _order_or_clear(
        self, progression_id: str, kind: OrderKind, clear: bool, reason: str | None, expires_at: float | None
    ) -> bool:
        if not clear:
            await self._order(progression_id, kind, reason, expires_at)
            return True
        script = bound(orders.clear_order, progression_id, kind, actor=self._actor, reason=reason, now=time.time())
        found: bool = await self._store.maintain(f"progression_migrate.{kind}", script, progressions=[progression_id])
        return found

    async def _order(self, progression_id: str, kind: OrderKind, reason: str | None, expires_at: float | None) -> None:
        script = bound(
            orders.set_order,
            progression_id,
            kind,
            actor=self._actor,
            reason=reason,
            now=time.time(),
            expires_at=expires_at,
        )
        await self._store.maintain(f"progression_migrate.{kind}", script, progressions=[progression_id])

    async def cutover(
        self: _Steps, progression_id: str, *, accept_foreign_writers: bool = False, max_seconds: float = 30.0
    ) -> MigrationStep:
        """Cut over one copied progression, whatever holds it; it is proved anew first, however young its proof.

        A pause still stops it, and so does what is not an order: another program that writes, a missing fence, the
        time budget of a cutover. Its hold and priority are done with then.

        Args:
            accept_foreign_writers: Although another program seems to write this store.
            max_seconds: Looked at between pages of the proof; a cutover that is cut off goes on when called again.
        Raises:
            NotFoundError: There is no such progression.
            PhaseConflictError: It is not copied to its end, or is cut over already.
            ProgressionBlockedError: It is blocked.

        Contract: ADR-0117 D3; design decisions 6, 7, 26, 37.
        """
        await self._store.read(bound(_may_be_cut_over, progression_id))
        caps = check_caps(CHUNK_ITEMS, CHUNK_BYTES, max_seconds)
        return await self._commanded(
            progression_id, caps, Permit(CUTOVER), accept_foreign_writers=accept_foreign_writers
        )

    async def cutover_all_ready(
        self: _Steps, *, accept_foreign_writers: bool = False, max_seconds: float = 30.0
    ) -> MigrationStep:
        """Cut over what is at stage ``ready``, smallest first, each proved anew.

        Progressions that an order of their own holds or excludes are left; `hold_all` is gone over.

        Args:
            accept_foreign_writers: As for `cutover`.
            max_seconds: As for `cutover`.

        Contract: as `cutover`.
        """
        caps = check_caps(CHUNK_ITEMS, CHUNK_BYTES, max_seconds)
        permit = Permit(frozenset((HOLD_ALL_KEY,)))
        return await self._commanded(None, caps, permit, accept_foreign_writers=accept_foreign_writers)


def _may_be_cut_over(conn: Connection, /, progression_id: str) -> None:
    state = get_state(conn, progression_id)
    if not dialect_of(conn).existing_progressions(conn, [progression_id]) or (state and state.is_tombstone):
        raise NotFoundError("there is no such progression")
    if state is None or state.phase is Phase.JSON:
        raise PhaseConflictError("the progression is in json and not copied yet: step it first")
    if state.phase is Phase.ITEMS:
        raise PhaseConflictError("the progression is cut over already")
    if state.phase is Phase.BLOCKED:
        raise ProgressionBlockedError(reason=state.blocked_reason)
    if state.backfill_next != state.source_count:
        raise PhaseConflictError(
            f"the progression is copied to {state.backfill_next} of {state.source_count}: step it first"
        )
