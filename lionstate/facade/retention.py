"""Removing what is old."""

from __future__ import annotations

from typing import Any

from lionstate.facade.runner import Runner
from lionstate.records import retention

__all__ = ["RetentionFacade"]


class RetentionFacade(Runner):
    """Methods that remove ended sessions and what only they hold."""

    async def prune_sessions(
        self, *, before: float, after_id: str | None = None, limit: int = 50, actor: str = "prune_sessions"
    ) -> dict[str, Any]:
        """Remove a batch of ended sessions that nobody has touched for long, and what only they hold.

        A session goes when its status is terminal, or it has none, and it was created, updated, last written to and
        ended before ``before``. With it go its branches and history, the progressions to which nothing else points,
        and their messages that no other progression holds, in items or in JSON, and no other session or branch points
        at. Artifacts, plays, team messages, dispatches and approvals stay and lose the session. What a progression may
        hold whose value cannot be read stays. A batch that removes something notes one admin event ``prune_sessions``
        in its transaction: ``before``, the counts, and the ids of the sessions.

        Args:
            before: Epoch seconds.
            after_id: ``last_id`` of the batch before.
            limit: Sessions, 1 to 100.
            actor: Who prunes, for the event.
        Returns:
            ``sessions``, ``branches``, ``progressions`` and ``messages`` that went, ``unreadable`` progressions by id,
            and ``last_id``, None when there was nothing left.
        Raises:
            BackendBusyError: Another program kept its rows locked (PostgreSQL); nothing was written.

        Cost: one transaction, in which nobody else appends: what the batch holds, one pass over the index of the
        items and one over every JSON value that still counts. Rows of its progressions are removed afterwards, by
        ``remove_deleted_rows`` or by maintenance.
        Contract: ADR-0117 D1, D4; design decision 18.
        """
        return await self._run(retention.prune_sessions, before=before, after_id=after_id, limit=limit, actor=actor)

    async def preview_prune(self, *, before: float, after_id: str | None = None, limit: int = 50) -> dict[str, Any]:
        """Count what ``prune_sessions`` would remove, batch by batch, and change nothing.

        Args:
            before: Epoch seconds, as in ``prune_sessions``.
            after_id: ``last_id`` of the batch before, whose sessions count as removed.
            limit: Sessions, 1 to 100; the same as in the run that it foretells.
        Returns:
            As ``prune_sessions``.

        Cost: as ``prune_sessions``, without a lock.
        Contract: ADR-0117 D1, D4; design decision 18.
        """
        return await self._run(retention.preview_prune, before=before, after_id=after_id, limit=limit)

    async def remove_deleted_rows(self, *, limit: int = 5000) -> int:
        """Remove rows of progressions whose deletion has begun, the oldest deletion first.

        Maintenance does the same by itself; this is for stores without it.

        Args:
            limit: Item rows, 1 to 10,000.
        Returns:
            Rows and progressions that went; 0 when nothing is left that can go.

        Cost: linear in ``limit``.
        Contract: ADR-0117 D1, D4; design decision 18.
        """
        return await self._run(retention.remove_deleted_rows, limit=limit)
