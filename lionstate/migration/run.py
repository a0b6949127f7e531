"""What one automatic step knows of the whole store: why cutovers wait, and what comes next."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from sqlalchemy import Connection, func, select

from lionstate.errors import HeldReason
from lionstate.migration import candidates, cutover, orders
from lionstate.migration.control import Controls
from lionstate.migration.port import MigrationStore, bound
from lionstate.migration.worker import Worker
from lionstate.progression import sightings
from lionstate.schema.own import progression_storage_state

__all__ = ["Run", "held_ones"]

_CANDIDATES: Final = 100
_SIGHTINGS: Final = 100


def held_ones(conn: Connection) -> dict[str, int]:
    """Progressions that wait, by reason."""
    states = progression_storage_state.c
    waiting = select(states.held_reason, func.count()).where(states.held_reason.is_not(None))
    rows = conn.execute(waiting.where(states.phase != "items").group_by(states.held_reason))
    found = {str(reason): int(count) for reason, count in rows}
    if ready := orders.read_ready(conn).waiting:
        found[HeldReason.OPERATOR.value] = found.get(HeldReason.OPERATOR.value, 0) + ready
    return found


class Run:
    """What one automatic step knows of the whole store."""

    def __init__(
        self,
        store: MigrationStore,
        controls: Controls,
        *,
        actor: str,
        scan: Callable[[Worker], Awaitable[None]],
        looks_only: bool = False,
    ) -> None:
        """Know nothing yet.

        Args:
            actor: Named in the audit rows.
            scan: Notes the sizes of progressions that have none.
            looks_only: Nothing that is found is noted.
        """
        self._store = store
        self._actor = actor
        self._scan = scan
        self._looks_only = looks_only
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
            store = self._store
            if await store.read(cutover.fence_is_missing):
                self._reason = HeldReason.FENCE_MISSING
            elif not self._accept and await self._foreign_writers():
                self._reason = HeldReason.FOREIGN_WRITER
        if self._reason is HeldReason.FOREIGN_WRITER and progression_id in self._written:
            return None
        return self._reason

    async def _foreign_writers(self) -> bool:
        """Whether another program seems to write this store; what rows show of it is noted."""
        store = self._store
        found: list[tuple[str, float]] = await store.read(candidates.foreign_sessions)
        seen = store.parsed.append_counts
        if any(progression not in seen for progression, _ in found):
            return True
        now = time.time()
        self._written = await store.read(lambda conn: store.dialect.written_by_others(conn, _SIGHTINGS))
        if self._written and self._looks_only:
            return True
        if self._written:
            note = bound(sightings.note_sighting, self._written[0], actor=self._actor, now=now)
            await store.maintain("progression_migrate.sighting", note)
            return True
        return await store.read(bound(sightings.sighted_at, now)) is not None

    async def ready(self, tried: set[str]) -> list[str]:
        """Progressions that wait for a command to be cut over, and were not tried; [] when there is none."""
        query = bound(candidates.ready, count=_CANDIDATES + len(tried), now=time.time())
        return [pid for pid in await self._store.read(query) if pid not in tried]

    async def queries(self, count: int) -> tuple[Callable[[Connection], list[str]], ...]:
        """What gives the next progressions, in the order in which they are taken; the last one those of known size."""
        now = time.time()
        # Complete ones wait together, for a reason that is not theirs.
        also_complete = await self.waits() is None
        return (
            bound(candidates.prioritized, count=count, also_complete=also_complete, now=now),
            bound(candidates.started, count=count, also_complete=also_complete, now=now),
            bound(candidates.cleanups, count=count),
            bound(candidates.next_json, count=count, now=now),
        )

    async def candidates(self, worker: Worker, tried: set[str]) -> list[str]:
        """Progressions to work on next, in order; [] when there is nothing left that was not tried."""
        store = self._store
        queries = await self.queries(_CANDIDATES + len(tried))
        while True:
            for query in queries:
                left = [pid for pid in await store.read(query) if pid not in tried]
                if left:
                    return left
            if self._scanned:
                return []
            # Progressions that were created since the sizes were measured.
            self._scanned = True
            await self._scan(worker)
