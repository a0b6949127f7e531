"""Invocations and the sessions that belong to them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Unpack

from lionstate.facade.runner import Runner
from lionstate.facade.status import warn_default_reason
from lionstate.records import invocations
from lionstate.records.invocations import InvocationChanges

__all__ = ["InvocationFacade"]


class InvocationFacade(Runner):
    """Methods on invocations."""

    async def create_invocation(self, invocation: Mapping[str, Any]) -> None:
        """Insert an invocation; an id that exists stays as it is.

        Args:
            invocation: Columns by name; ``id``, ``skill`` and ``started_at`` are required, ``status`` is ``running``
                unless given, other keys are left alone. A new running one gets its first history row.
        Raises:
            MissingKeyError: A required column is missing; nothing was written.
            InvalidInputError: A value is not acceptable; nothing was written.

        Cost: one statement for an existing id, three for a new one.
        Contract: ADR-0055 D1; reference §2.2, §2.8.
        """
        await self._run(invocations.create_invocation, invocation)

    async def get_invocation(self, invocation_id: str) -> dict[str, Any] | None:
        """Read one invocation; None if it is missing.

        Contract: ADR-0055 D1.
        """
        return await self._run(invocations.get_invocation, invocation_id)

    async def list_invocations(
        self,
        *,
        skill: str | None = None,
        plugin: str | None = None,
        status: str | None = None,
        limit: int = 100,
        offset: int = 0,
    ) -> list[dict[str, Any]]:
        """Read a page of invocations, last changed first.

        Args:
            skill: Only of this skill.
            plugin: Only of this plugin.
            status: Only with this status.
            limit: Rows, 1 to 1,000.
            offset: Rows before the page.
        Returns:
            The columns, ``project`` and ``project_source`` of the latest session, and ``schedule_run_exit_code``,
            ``schedule_run_error_detail`` and ``action_kind`` of the latest schedule run, None without one.

        Cost: five index seeks for each row of the page.
        Contract: ADR-0055 D1; reference §2.2.
        """
        return await self._run(
            invocations.list_invocations, skill=skill, plugin=plugin, status=status, limit=limit, offset=offset
        )

    async def count_invocations(
        self, *, skill: str | None = None, plugin: str | None = None, status: str | None = None
    ) -> int:
        """Count the invocations that ``list_invocations`` would page through.

        Contract: ADR-0055 D1.
        """
        return await self._run(invocations.count_invocations, skill=skill, plugin=plugin, status=status)

    async def update_invocation(self, invocation_id: str, **changes: Unpack[InvocationChanges]) -> None:
        """Change columns of an invocation, in one transaction.

        Args:
            invocation_id: A missing one is silent unless the status changes.
            changes: Columns of ``InvocationChanges``. ``status`` is changed as ``update_status`` does it, with
                ``reason_code``, ``reason_summary``, ``evidence_refs``, ``reason_source`` and ``reason_actor``; without
                a ``reason_code`` a default one is recorded and a DeprecationWarning given.
        Raises:
            InvalidInputError: A column cannot be written, or a value is not acceptable; nothing was written.
            NotFoundError: The status of a missing invocation.
            TransitionRejectedError: The status is terminal.

        Another cancellation of a cancelled invocation keeps its end and its reason.
        Cost: one statement, four more for a status.
        Contract: ADR-0055 D1; reference §2.2, §2.8.
        """
        warn_default_reason("update_invocation", changes)
        await self._run(invocations.update_invocation, invocation_id, **changes)

    async def merge_invocation_node_metadata(self, invocation_id: str, patch: Mapping[str, Any]) -> None:
        """Merge a JSON merge patch (RFC 7396) into ``node_metadata``.

        Args:
            invocation_id: A missing one is silent.
            patch: None removes a key, a mapping merges, anything else replaces.
        Raises:
            InvalidInputError: The patch is no mapping or no JSON; nothing was written.

        A stored value that is no object is kept under ``_discarded_node_metadata``.
        Contract: ADR-0055 D1; reference §2.1.
        """
        await self._run(invocations.merge_invocation_node_metadata, invocation_id, patch)

    async def list_running_invocations_for_reaping(
        self, *, limit: int = 500, after_started_at: float | None = None, after_id: str | None = None
    ) -> list[dict[str, Any]]:
        """Read a page of running invocations, oldest start first.

        Args:
            limit: Rows, 1 to 1,000.
            after_started_at: With ``after_id`` the last row of the page before; both or neither.
            after_id: See ``after_started_at``.

        Cost: one range scan of the index on status, start and id.
        Contract: ADR-0055 D1; reference §2.2.
        """
        return await self._run(
            invocations.list_running_invocations_for_reaping,
            limit=limit,
            after_started_at=after_started_at,
            after_id=after_id,
        )

    async def list_sessions_for_invocation(
        self, invocation_id: str, *, limit: int = 1000, offset: int = 0
    ) -> list[dict[str, Any]]:
        """Read one page of the sessions of one invocation, oldest first; [] for a missing one.

        Args:
            invocation_id: The invocation.
            limit: Rows, 1 to 1,000.
            offset: Rows to pass over.
        Raises:
            InvalidInputError: ``limit`` or ``offset`` is out of range.

        Contract: ADR-0055 D1; reference §2.2.
        """
        return await self._run(invocations.list_sessions_for_invocation, invocation_id, limit=limit, offset=offset)

    async def list_sessions_for_invocations(
        self, invocation_ids: Sequence[str], *, limit: int = 1000
    ) -> dict[str, list[dict[str, Any]]]:
        """Read the sessions of several invocations.

        Args:
            invocation_ids: At most 1,000.
            limit: Sessions of each invocation, 1 to 1,000; ``list_sessions_for_invocation`` reads further ones.
        Returns:
            An entry for every requested id, sessions oldest first.
        Raises:
            InvalidInputError: They are more than 10,000 in all.

        Cost: one query over the index on the invocation.
        Contract: ADR-0055 D1; reference §2.2.
        """
        return await self._run(invocations.list_sessions_for_invocations, invocation_ids, limit=limit)
