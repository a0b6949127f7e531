"""Takes lionstate off a store that nobody has open: the counterpart of an open."""

from __future__ import annotations

import dataclasses
import functools
import time
from pathlib import Path

from lionstate.audit import DEFAULT_ACTOR
from lionstate.engine import EngineSettings, SilentObserver, StoreURL
from lionstate.errors import OutcomeUnknownError
from lionstate.migration.detach import Detached, detach
from lionstate.opening import Parts, require_asyncio, write_alone

__all__ = ["detach_store"]


async def detach_store(
    target: str | Path | StoreURL,
    settings: EngineSettings | None = None,
    *,
    actor: str = DEFAULT_ACTOR,
    reason: str | None = None,
) -> Detached:
    """Take lionstate off a store, in one transaction; the store is then as it was before lionstate, rows aside.

    Processes that have the store open meanwhile fail with missing tables: stop them first.

    Args:
        target: Path or URL.
        settings: How connections behave.
        actor: Named in the audit row, which stays in ``admin_events``.
        reason: Why; in the audit row.
    Raises:
        OwnershipConflictError: A daemon owns the file, or another process migrates the store.
        PhaseConflictError: Progressions have left their JSON, which the message names; or there is nothing to do.
        SchemaError: The store is newer, foreign or unrecognized.
        OutcomeUnknownError: It may be off or on: run it again.

    Contract: design decisions 21, 27, 32.
    """
    require_asyncio()
    url = StoreURL.of(target)
    given = dataclasses.replace(settings or EngineSettings(), readers=1, lanes=1, must_exist=True)
    parts = Parts(url, given, SilentObserver())
    try:
        # Without the schema step, which would put on what is taken off here.
        await parts.connect(own=url.path is not None)
        assert parts.writer is not None
        script = functools.partial(detach, actor=actor, reason=reason, now=time.time())
        found: Detached
        try:
            found = await write_alone(parts.writer, script)
        except OutcomeUnknownError as error:
            raise OutcomeUnknownError(
                "lionstate is off this store or wholly on it, which is not known: see to the database (is its disk"
                " full? make room), then run detach again: it says so if there is nothing left to take off"
            ) from error
        return found
    finally:
        await parts.close()
