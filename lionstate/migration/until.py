"""Steps until nothing more can be done, by whoever waits for it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from lionstate.migration.report import MigrationStatus, MigrationStep, StopReason

__all__ = ["Stepping", "step_until_done"]

_BUSY_STEPS: Final = 3
_BUSY_SECONDS: Final = 0.2
_CAPS_MET: Final = (StopReason.CAP_ITEMS, StopReason.CAP_BYTES, StopReason.CAP_SECONDS)


class Stepping(Protocol):
    """A migration service, in this process or a daemon's."""

    async def step(self, *, progression_id: str | None = None) -> MigrationStep:
        """Do a bounded piece."""
        ...

    async def status(self, *, limit: int = 100) -> MigrationStatus:
        """Tell how far it is."""
        ...


async def step_until_done(
    service: Stepping,
    caps: Mapping[str, Any],
    on_status: Callable[[MigrationStatus], None],
    *,
    progression_id: str | None = None,
) -> tuple[list[MigrationStep], MigrationStatus]:
    """Step until a step neither works nor ends at a cap; waits for a store under load, tries a locked one three times.

    Args:
        caps: Of each step, as `step` takes them.
        on_status: Told the status after each step.
    Returns:
        The steps, and the status after the last.
    """
    steps: list[MigrationStep] = []
    busy = 0
    while True:
        steps.append(await service.step(progression_id=progression_id, **caps))
        found = await service.status(limit=0)
        on_status(found)
        if steps[-1].stop_reason in _CAPS_MET or steps[-1].did_work:
            busy = 0
            continue
        if steps[-1].stop_reason is StopReason.THROTTLED:
            # Waiting for the store is no failure, however long it takes (design decision 25).
            await asyncio.sleep(_BUSY_SECONDS)
            continue
        busy += 1
        if steps[-1].stop_reason is not StopReason.BUSY or busy >= _BUSY_STEPS:
            return steps, found
        await asyncio.sleep(_BUSY_SECONDS)
