"""The verbs an operator looks and repairs with: preflight, explain, blocked, retry, unblock, rollback."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from sqlalchemy import Connection

from lionstate.errors import InvalidInputError
from lionstate.migration import control, cutover
from lionstate.migration.acting import Acting
from lionstate.migration.budget import check_caps
from lionstate.migration.control import Controls
from lionstate.migration.explain import Explanation, explain, load_waits, turn_waits
from lionstate.migration.governor import Governor
from lionstate.migration.knobs import Knobs
from lionstate.migration.memory import Memory
from lionstate.migration.port import MigrationStore, bound
from lionstate.migration.preflight import Preflight, preflight
from lionstate.migration.rebuild import rebuild as rebuild_rows
from lionstate.migration.report import BlockedProgression
from lionstate.migration.scrub import Scrubber, ScrubSlice
from lionstate.migration.status import read_blocked
from lionstate.migration.trail import AuditEvent, read_trail
from lionstate.migration.unblock import Foreign, Representation, retry, unblock
from lionstate.progression.phases import Phase, new_generation

__all__ = ["OperatorVerbs", "checked_limit"]

_MAX_LIMIT: Final = 10_000


def checked_limit(limit: int, lowest: int) -> int:
    """A number of rows to name.

    Raises:
        InvalidInputError: Not between ``lowest`` and 10,000.
    """
    if isinstance(limit, bool) or not isinstance(limit, int) or not lowest <= limit <= _MAX_LIMIT:
        raise InvalidInputError(f"limit is not between {lowest} and {_MAX_LIMIT}")
    return limit


class OperatorVerbs(Acting):
    """What a person asks and decides about single progressions and the store as a whole."""

    _store: MigrationStore
    _memory: Memory
    _scrubber: Scrubber
    _governor: Governor
    defaults: Knobs
    automatic: bool | None

    async def scrub(
        self,
        *,
        progression_id: str | None = None,
        max_items: int = 100_000,
        max_seconds: float = 1.0,
        may_begin: bool = True,
        restart: bool = False,
    ) -> ScrubSlice:
        """Compare again what was cut over: items, frozen JSON, recorded digests, allocator; and look for orphans.

        Goes on with the pass under way, which any process may have begun, until a cap is hit. What is found is proved
        again under the lock and then blocked; which representation is trusted then is decided by decision 2.

        Args:
            progression_id: Only this one, to its end; also the copied part of one in ``dual``.
            max_items: Rows to compare in this slice.
            max_seconds: Looked at between pages of 1,000 rows.
            may_begin: Begin a pass when none is under way.
            restart: Begin a new pass whatever is under way.
        Returns:
            What was compared and found. While migration is paused nothing is done.
        Raises:
            InvalidInputError, NotFoundError: A cap is not above zero; there is no such progression.

        Cost: linear in what it compares, in snapshots of 1,000 rows; a lock only to block.
        Contract: design decisions 2, 21, 22.
        """
        caps = check_caps(max_items, 1, max_seconds)
        async with self._memory.scrubbing:
            with self._memory.lane.attempt("scrub"):
                if progression_id is not None:
                    return await self._scrubber.one(progression_id)
                return await self._scrubber.slice(
                    max_items=caps.max_items, max_seconds=caps.max_seconds, may_begin=may_begin, restart=restart
                )

    async def scrub_asked(self, *, max_items: int, max_seconds: float) -> ScrubSlice:
        """Compare only what reads of this process have asked for: the lengths and the pass are another process's."""
        async with self._memory.scrubbing:
            with self._memory.lane.attempt("scrub"):
                return await self._scrubber.asked(max_items=max_items, max_seconds=max_seconds)

    def ask_scrub(self, progression_id: str) -> None:
        """Let the next slice of the scrubber look at one progression first: a read has doubted it."""
        self._memory.ask(progression_id)

    async def preflight(self, *, limit: int = 20) -> Preflight:
        """Read every JSON value once and say what migration will meet; changes nothing.

        Args:
            limit: Progressions to name for each code, 0 to 10,000.

        Cost: the whole column once, in short snapshots; no lock.
        Contract: ADR-0117 D3; design decision 15.
        """
        return await preflight(self._store, limit=checked_limit(limit, 0))

    async def explain(self, progression_id: str) -> Explanation:
        """Tell why one progression is where it is and what would move it.

        Raises:
            NotFoundError: There is no such progression.

        Contract: ADR-0117 D5.
        """
        now = time.time()

        def script(conn: Connection) -> tuple[Explanation, tuple[str, ...], Controls]:
            found = explain(conn, progression_id, now=now, automatic=self.automatic)
            return found, turn_waits(conn, found, now), control.load(conn, now, self.defaults)

        found: Explanation
        found, turn, controls = await self._store.read(script)
        if found.phase not in (Phase.JSON.value, Phase.DUAL.value):
            return found
        throttle = await self._governor.report(controls.knobs)
        return replace(found, waits=(*found.waits, *load_waits(throttle)) or turn)

    async def blocked(self, *, limit: int = 100) -> tuple[BlockedProgression, ...]:
        """Blocked progressions, those blocked longest first.

        Args:
            limit: Rows, 1 to 10,000.
        """
        script = bound(read_blocked, limit=checked_limit(limit, 1))
        found: tuple[BlockedProgression, ...] = await self._store.read(script)
        return found

    async def audit(self, *, progression_id: str | None = None, limit: int = 100) -> tuple[AuditEvent, ...]:
        """The audit trail of migration, newest first: who did what, when and why.

        Args:
            progression_id: Of this one only, also when it was deleted.
            limit: Rows, 1 to 10,000.

        Contract: design decision 26.
        """
        script = bound(read_trail, progression_id=progression_id, limit=checked_limit(limit, 1))
        found: tuple[AuditEvent, ...] = await self._store.read(script)
        return found

    async def retry(self, progression_id: str, *, reason: str | None = None) -> None:
        """Return a blocked progression to ``json``, from where it is admitted anew; its item rows go in chunks.

        Raises:
            NotFoundError: There is no such progression.
            PhaseConflictError: It is not blocked.
            ProgressionBlockedError: Its authority is not the JSON, which lacks what was appended since the cutover.

        Contract: design decision 14.
        """
        script = bound(
            retry,
            progression_id,
            generation=new_generation(),
            actor=self._actor,
            reason=reason,
            now=time.time(),
        )
        await self._store.maintain("progression_migrate.retry", script, progressions=[progression_id])
        self._memory.forget(progression_id)

    async def unblock(
        self,
        progression_id: str,
        *,
        use: Representation | None = None,
        foreign: Foreign | None = None,
        rebuild: bool = False,
        reason: str | None = None,
    ) -> str:
        """Let a blocked progression out; see ``lionstate.migration.unblock.unblock``.

        Args:
            use: ``json`` or ``items``, only where neither representation is trusted.
            foreign: ``adopt`` or ``discard`` the ids that only the JSON has, where there are any.
            rebuild: After the cutover, with rows of the frozen prefix that are wrong or missing: write them anew from
                the JSON first, which must be that of the cutover; the rows behind the prefix stay.
        Returns:
            The phase that it has then: ``json`` or ``items``.
        Raises:
            NotFoundError: There is no such progression.
            PhaseConflictError: It is not blocked, or there is no choice, or nothing to rebuild.
            ProgressionBlockedError: ``use`` or ``foreign`` must be given.
            ParityError: The items are not whole, or cannot be rebuilt; nothing was changed.

        Contract: design decision 14.
        """
        told: Mapping[str, Any] = {"actor": self._actor, "reason": reason, "now": time.time()}
        if rebuild:
            if use is not None:
                raise InvalidInputError("rebuild is for items that are trusted: use goes without it")
            await rebuild_rows(self._store, progression_id, **told)
        phase = await unblock(
            self._store,
            progression_id,
            use=None if use is None else Representation(use),
            foreign=None if foreign is None else Foreign(foreign),
            **told,
        )
        self._memory.forget(progression_id)
        return phase

    async def rollback(self, progression_id: str, *, reason: str | None = None) -> None:
        """Return a dual progression to ``json`` and hold it until `release`; its rows go later, in chunks.

        Raises:
            NotFoundError: There is no such progression.
            PhaseConflictError: It is not in ``dual``; the message says what is possible instead.

        Contract: ADR-0117 D4; design decision 13.
        """
        script = bound(
            cutover.roll_back,
            progression_id,
            generation=new_generation(),
            actor=self._actor,
            reason=reason,
            now=time.time(),
        )
        await self._store.maintain("progression_migrate.rollback", script, progressions=[progression_id])
        self._memory.forget(progression_id)
