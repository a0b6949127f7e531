"""The orders of an operator over HTTP: holds, exclusions, priorities, cutovers by command, and the fence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from lionstate.migration import FenceStatus, MigrationStep, ProgressionMigrationService

__all__ = ["RemoteOrders", "Verbs"]


class Verbs(Protocol):
    """What sends a verb to the daemon."""

    async def _verb(
        self, verb: str, method: Callable[..., Any], params: dict[str, Any], *, work_seconds: float = 0.0
    ) -> Any: ...


class RemoteOrders:
    """Methods, arguments and results as ``ProgressionMigrationService`` has them."""

    async def hold(
        self: Verbs, progression_id: str, *, reason: str | None = None, expires_at: float | None = None
    ) -> None:
        """Keep one progression from its cutover."""
        params = {"progression_id": progression_id, "reason": reason, "expires_at": expires_at}
        await self._verb("hold", ProgressionMigrationService.hold, params)

    async def hold_all(self: Verbs, *, reason: str | None = None, expires_at: float | None = None) -> None:
        """Let cutovers happen by command only."""
        params = {"reason": reason, "expires_at": expires_at}
        await self._verb("hold-all", ProgressionMigrationService.hold_all, params)

    async def release(self: Verbs, progression_id: str, *, reason: str | None = None) -> bool:
        """Let a held progression migrate again; False if it was not held."""
        params = {"progression_id": progression_id, "reason": reason}
        return bool(await self._verb("release", ProgressionMigrationService.release, params))

    async def release_all(self: Verbs, *, reason: str | None = None) -> bool:
        """Let cutovers happen by themselves again; False if they did."""
        return bool(await self._verb("release-all", ProgressionMigrationService.release_all, {"reason": reason}))

    async def prioritize(
        self: Verbs,
        progression_id: str,
        *,
        clear: bool = False,
        reason: str | None = None,
        expires_at: float | None = None,
    ) -> bool:
        """Have one progression worked on before all others, or take that back."""
        params = {"progression_id": progression_id, "clear": clear, "reason": reason, "expires_at": expires_at}
        return bool(await self._verb("prioritize", ProgressionMigrationService.prioritize, params))

    async def exclude(
        self: Verbs,
        progression_id: str,
        *,
        clear: bool = False,
        reason: str | None = None,
        expires_at: float | None = None,
    ) -> bool:
        """Have automatic work pass over one progression, or take that back."""
        params = {"progression_id": progression_id, "clear": clear, "reason": reason, "expires_at": expires_at}
        return bool(await self._verb("exclude", ProgressionMigrationService.exclude, params))

    async def cutover(
        self: Verbs, progression_id: str, *, accept_foreign_writers: bool = False, max_seconds: float = 30.0
    ) -> MigrationStep:
        """Cut over one copied progression, whatever holds it."""
        params = {
            "progression_id": progression_id,
            "accept_foreign_writers": accept_foreign_writers,
            "max_seconds": max_seconds,
        }
        step: MigrationStep = await self._verb(
            "cutover", ProgressionMigrationService.cutover, params, work_seconds=max_seconds
        )
        return step

    async def cutover_all_ready(
        self: Verbs, *, accept_foreign_writers: bool = False, max_seconds: float = 30.0
    ) -> MigrationStep:
        """Cut over what is at stage ``ready``."""
        params = {"accept_foreign_writers": accept_foreign_writers, "max_seconds": max_seconds}
        step: MigrationStep = await self._verb(
            "cutover-all-ready", ProgressionMigrationService.cutover_all_ready, params, work_seconds=max_seconds
        )
        return step

    async def fence_status(self: Verbs) -> FenceStatus:
        """Whether the fence is installed, who turned it off, and what follows from that."""
        found: FenceStatus = await self._verb("fence/status", ProgressionMigrationService.fence_status, {})
        return found

    async def install_fence(self: Verbs, *, reason: str | None = None) -> FenceStatus:
        """Install the fence."""
        found: FenceStatus = await self._verb(
            "fence/install", ProgressionMigrationService.install_fence, {"reason": reason}
        )
        return found

    async def remove_fence(self: Verbs, *, reason: str) -> FenceStatus:
        """Remove the fence and have cutovers go on without one."""
        found: FenceStatus = await self._verb(
            "fence/remove", ProgressionMigrationService.remove_fence, {"reason": reason}
        )
        return found
