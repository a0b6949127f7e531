"""The verbs that stop migration and let it go on."""

from __future__ import annotations

import time

from lionstate.migration import control
from lionstate.migration.acting import Acting
from lionstate.migration.control import Pause
from lionstate.migration.lease import Lease
from lionstate.migration.port import MigrationStore, bound

__all__ = ["SwitchVerbs"]


class SwitchVerbs(Acting):
    """Pause, stop, resume, and whether a daemon's timer steps at all; persisted in the store."""

    _store: MigrationStore
    _lease: Lease

    async def pause(self, *, reason: str | None = None, expires_at: float | None = None) -> None:
        """Stop migration after at most one more transaction; persisted until `resume` or the expiry.

        Args:
            expires_at: Epoch seconds; None is until `resume`.

        Contract: design decision 26.
        """
        script = bound(control.pause, actor=self._actor, reason=reason, now=time.time(), expires_at=expires_at)
        await self._store.maintain("progression_migrate.pause", script)

    async def stop(self, *, reason: str | None = None, expires_at: float | None = None) -> None:
        """As `pause`, and the lease of maintenance is given back; a later `pause` takes its place.

        Args:
            expires_at: Epoch seconds; None is until `resume`.

        Contract: design decisions 26, 27.
        """
        now = time.time()
        script = bound(control.pause, actor=self._actor, reason=reason, now=now, expires_at=expires_at, stopped=True)
        await self._store.maintain("progression_migrate.stop", script)
        await self._lease.give_back()

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

    async def set_compat_read(
        self, progression_id: str, enabled: bool, *, reason: str | None = None, expires_at: float | None = None
    ) -> None:
        """Switch the compatibility read of one progression that has been cut over; audited if that changes anything.

        Args:
            expires_at: Epoch seconds at which it is off again by itself; None is until it is switched off.
        Raises:
            NotFoundError: There is no such progression.
            PhaseConflictError: It has not been cut over, or the switch is fixed by a block.

        Contract: ADR-0117 D4; design decisions 2, 3.
        """
        script = bound(
            control.set_compat_read,
            progression_id,
            enabled,
            actor=self._actor,
            reason=reason,
            now=time.time(),
            expires_at=expires_at,
        )
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
