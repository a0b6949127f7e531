"""The migration service of a daemon: the verbs of ``ProgressionMigrationService`` over HTTP."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, get_type_hints
from urllib.parse import urlencode

import msgspec

from lionstate import wire
from lionstate.client.orders import RemoteOrders
from lionstate.client.transport import Transport
from lionstate.errors import WireError
from lionstate.migration import (
    AuditEvent,
    BlockedProgression,
    Explanation,
    Foreign,
    KnobSetting,
    MigrationStatus,
    MigrationStep,
    Pause,
    Plan,
    Preflight,
    ProgressionMigrationService,
    Rehearsal,
    RehearsalStage,
    Representation,
    ScrubSlice,
    VerificationResult,
)

__all__ = ["RemoteMigration"]

_READS = frozenset(
    {"audit", "status", "verify", "blocked", "preflight", "plan", "explain", "fence/status", "knobs", "rehearsal"}
)
# What reads whole histories takes as long as they are; the daemon answers in the end.
_LONG_SECONDS = 3600.0


class RemoteMigration(RemoteOrders):
    """What ``StateClient.migration`` is; methods, arguments and results as ``ProgressionMigrationService`` has them."""

    def __init__(self, transport: Transport) -> None:
        """Talk through an open transport."""
        self._transport = transport

    async def _verb(
        self, verb: str, method: Callable[..., Any], params: dict[str, Any], *, work_seconds: float = 0.0
    ) -> Any:
        given = {name: value for name, value in params.items() if value is not None}
        path = f"/v1/migration/{verb}"
        reads = verb in _READS
        if reads and given:
            path += "?" + urlencode(given)
        answer = await self._transport.request(
            "GET" if reads else "POST",
            path,
            None if reads else msgspec.json.encode(given),
            deadline=time.monotonic() + self._transport.timeout + work_seconds,
            writes=not reads,
            idempotent=True,
        )
        try:
            return wire.decode_answer(answer, msgspec.json.Decoder(get_type_hints(method)["return"]))
        except (ValueError, RecursionError) as error:
            raise WireError(f"the daemon's answer to {verb} could not be understood") from error

    async def step(
        self,
        *,
        progression_id: str | None = None,
        max_items: int = 500,
        max_bytes: int = 4 * 1024 * 1024,
        max_seconds: float = 1.0,
    ) -> MigrationStep:
        """Do a bounded piece of migration; see ``ProgressionMigrationService.step``."""
        params = {
            "progression_id": progression_id,
            "max_items": max_items,
            "max_bytes": max_bytes,
            "max_seconds": max_seconds,
        }
        step: MigrationStep = await self._verb(
            "step", ProgressionMigrationService.step, params, work_seconds=max_seconds
        )
        return step

    async def verify(
        self, progression_id: str, *, after: str | None = None, max_seconds: float | None = None
    ) -> VerificationResult:
        """Compare both representations without changing anything; see ``ProgressionMigrationService.verify``."""
        params = {"progression_id": progression_id, "after": after, "max_seconds": max_seconds}
        found: VerificationResult = await self._verb(
            "verify", ProgressionMigrationService.verify, params, work_seconds=_LONG_SECONDS
        )
        return found

    async def scrub(
        self,
        *,
        progression_id: str | None = None,
        max_items: int = 100_000,
        max_seconds: float = 1.0,
        may_begin: bool = True,
        restart: bool = False,
    ) -> ScrubSlice:
        """Compare again what was cut over; see ``ProgressionMigrationService.scrub``."""
        params = {
            "progression_id": progression_id,
            "max_items": max_items,
            "max_seconds": max_seconds,
            "may_begin": may_begin,
            "restart": restart,
        }
        found: ScrubSlice = await self._verb(
            "scrub", ProgressionMigrationService.scrub, params, work_seconds=_LONG_SECONDS
        )
        return found

    async def status(self, *, limit: int = 100) -> MigrationStatus:
        """Counts by phase and what waits; no message ids."""
        found: MigrationStatus = await self._verb("status", ProgressionMigrationService.status, {"limit": limit})
        return found

    async def blocked(self, *, limit: int = 100) -> tuple[BlockedProgression, ...]:
        """The blocked progressions, oldest first."""
        found: tuple[BlockedProgression, ...] = await self._verb(
            "blocked", ProgressionMigrationService.blocked, {"limit": limit}
        )
        return found

    async def audit(self, *, progression_id: str | None = None, limit: int = 100) -> tuple[AuditEvent, ...]:
        """Who did what, when and why, newest first."""
        params = {"progression_id": progression_id, "limit": limit}
        found: tuple[AuditEvent, ...] = await self._verb("audit", ProgressionMigrationService.audit, params)
        return found

    async def preflight(self, *, limit: int = 20) -> Preflight:
        """What migration will meet in this store."""
        found: Preflight = await self._verb(
            "preflight", ProgressionMigrationService.preflight, {"limit": limit}, work_seconds=_LONG_SECONDS
        )
        return found

    async def plan(self, *, limit: int = 20) -> Plan:
        """What the next steps will do."""
        found: Plan = await self._verb(
            "plan", ProgressionMigrationService.plan, {"limit": limit}, work_seconds=_LONG_SECONDS
        )
        return found

    async def rehearse(self, *, target: str | None = None) -> Rehearsal:
        """Have the daemon migrate a copy of its store and say what it took.

        Args:
            target: PostgreSQL: the URL of an empty database, as the daemon reaches it; SQLite makes a file beside the
                store and removes it.
        Raises:
            InvalidInputError: PostgreSQL without a target, or a target for a file.
            ConflictError: A rehearsal is running.
            BackendUnavailableError: There is not enough disk.
        """
        found: Rehearsal = await self._verb(
            "rehearse", RemoteMigration.rehearse, {"target": target}, work_seconds=_LONG_SECONDS
        )
        return found

    async def rehearsal(self) -> RehearsalStage | None:
        """How far the rehearsal is that the daemon has under way; None when none is, or it has just begun."""
        found: RehearsalStage | None = await self._verb("rehearsal", RemoteMigration.rehearsal, {})
        return found

    async def explain(self, progression_id: str) -> Explanation:
        """Why one progression is where it is."""
        params = {"progression_id": progression_id}
        found: Explanation = await self._verb("explain", ProgressionMigrationService.explain, params)
        return found

    async def retry(self, progression_id: str, *, reason: str | None = None) -> None:
        """Return a blocked progression to JSON, from where it is admitted anew."""
        params = {"progression_id": progression_id, "reason": reason}
        await self._verb("retry", ProgressionMigrationService.retry, params)

    async def unblock(
        self,
        progression_id: str,
        *,
        use: Representation | None = None,
        foreign: Foreign | None = None,
        rebuild: bool = False,
        reason: str | None = None,
    ) -> str:
        """Let a blocked progression out; see ``ProgressionMigrationService.unblock``."""
        params = {
            "progression_id": progression_id,
            "use": use,
            "foreign": foreign,
            "rebuild": rebuild,
            "reason": reason,
        }
        return str(await self._verb("unblock", ProgressionMigrationService.unblock, params, work_seconds=_LONG_SECONDS))

    async def rollback(self, progression_id: str, *, reason: str | None = None) -> None:
        """Return a dual progression to JSON and hold it."""
        params = {"progression_id": progression_id, "reason": reason}
        await self._verb("rollback", ProgressionMigrationService.rollback, params)

    async def pause(self, *, reason: str | None = None, expires_at: float | None = None) -> None:
        """Stop migrating after the running chunk, until resumed."""
        await self._verb("pause", ProgressionMigrationService.pause, {"reason": reason, "expires_at": expires_at})

    async def stop(self, *, reason: str | None = None, expires_at: float | None = None) -> None:
        """As `pause`, and give the lease of maintenance back."""
        await self._verb("stop", ProgressionMigrationService.stop, {"reason": reason, "expires_at": expires_at})

    async def resume(self, *, reason: str | None = None) -> bool:
        """Lift a pause; False if there was none."""
        return bool(await self._verb("resume", ProgressionMigrationService.resume, {"reason": reason}))

    async def paused(self) -> Pause | None:
        """The pause in force."""
        return (await self.status(limit=0)).pause

    async def knobs(self) -> tuple[KnobSetting, ...]:
        """Every knob: its value, its default, its bounds, and who set it."""
        found: tuple[KnobSetting, ...] = await self._verb("knobs", ProgressionMigrationService.knobs, {})
        return found

    async def set_knob(
        self, name: str, value: float | None = None, *, reason: str | None = None, expires_at: float | None = None
    ) -> KnobSetting:
        """Set one knob, or let its default come back; see ``ProgressionMigrationService.set_knob``."""
        params = {"name": name, "value": value, "reason": reason, "expires_at": expires_at}
        found: KnobSetting = await self._verb("set-knob", ProgressionMigrationService.set_knob, params)
        return found

    async def set_maintenance_enabled(self, enabled: bool, *, reason: str | None = None) -> None:
        """Say whether the daemon's timer steps, whatever its settings say."""
        params = {"enabled": enabled, "reason": reason}
        await self._verb("maintenance-enabled", ProgressionMigrationService.set_maintenance_enabled, params)

    async def maintenance_enabled(self) -> bool | None:
        """What `set_maintenance_enabled` has persisted."""
        return (await self.status(limit=0)).maintenance_enabled

    async def set_compat_read(
        self, progression_id: str, enabled: bool, *, reason: str | None = None, expires_at: float | None = None
    ) -> None:
        """Read a progression from its frozen prefix and relational tail."""
        params = {"progression_id": progression_id, "enabled": enabled, "reason": reason, "expires_at": expires_at}
        await self._verb("compat-read", ProgressionMigrationService.set_compat_read, params)

    async def set_compat_read_everywhere(
        self, enabled: bool, *, expires_at: float | None = None, reason: str | None = None
    ) -> None:
        """The same switch for every progression."""
        params = {"enabled": enabled, "expires_at": expires_at, "reason": reason}
        await self._verb("compat-read-everywhere", ProgressionMigrationService.set_compat_read_everywhere, params)

    async def set_accept_foreign_writers(self, enabled: bool, *, reason: str | None = None) -> None:
        """Cut over although another program seems to write this store."""
        params = {"enabled": enabled, "reason": reason}
        await self._verb("accept-foreign-writers", ProgressionMigrationService.set_accept_foreign_writers, params)
