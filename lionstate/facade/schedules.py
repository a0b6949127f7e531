"""Schedules and sets of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Unpack

from lionstate.facade.runner import Runner
from lionstate.records import schedule_sets, schedules
from lionstate.records.cursor_claims import NO_CURSOR_CLAIM, NoCursorClaim
from lionstate.records.schedules import ScheduleChanges

__all__ = ["NO_CURSOR_CLAIM", "ScheduleFacade"]


class ScheduleFacade(Runner):
    """Methods on schedules.

    Each change of a definition takes two mappings, or LionAGI's objects with the same fields: ``audit_context``, where
    it was observed to come from (``origin``, ``source``, ``actor``, ``submitting_cwd``, ``assurance``,
    ``actor_status``, ``cwd_status``, ``failure_category``), and ``reason`` (``code``, ``summary``, ``evidence_refs``,
    ``metadata``), whose code is a registered ``schedule_definition`` one that fits what becomes of the schedule.
    """

    async def create_schedule(
        self,
        schedule: Mapping[str, Any],
        *,
        audit_context: Mapping[str, Any] | None = None,
        reason: Mapping[str, Any] | None = None,
    ) -> None:
        """Insert a schedule and the first row of its history.

        Args:
            schedule: Columns by name; ``id``, ``name``, ``trigger_type`` and ``action_kind`` are required,
                ``enabled`` is 1 unless given, other keys are left alone.
            audit_context: Where it comes from; None: nothing was observed.
            reason: Why; None records ``schedule_definition.created.observed``.
        Raises:
            MissingKeyError: A required column is missing; nothing was written.
            InvalidInputError: A value is not acceptable, or the id was a schedule's before, deleted or not; nothing
                was written.
            UniqueConflictError: The name is taken.

        Cost: three statements.
        Contract: ADR-0055 D1; reference §2.3.
        """
        await self._run(schedules.create_schedule, schedule, audit_context=audit_context, reason=reason)

    async def get_schedule(self, schedule_id: str) -> dict[str, Any] | None:
        """Read one schedule; None if it is missing.

        Contract: ADR-0055 D1.
        """
        return await self._run(schedules.get_schedule, schedule_id)

    async def get_schedule_by_name(self, name: str) -> dict[str, Any] | None:
        """Read the schedule of a name; None if there is none.

        Contract: ADR-0055 D1; reference §2.3.
        """
        return await self._run(schedules.get_schedule_by_name, name)

    async def get_schedule_history(self, schedule_id: str, *, limit: int = 100, offset: int = 0) -> dict[str, Any]:
        """Read a page of what became of a definition; it survives the definition.

        Args:
            schedule_id: One that never was has no events.
            limit: Rows, 1 to 1,000.
            offset: Rows before the page.
        Returns:
            ``events``, newest first, and ``available``: False when the store has no history at all.
        Raises:
            InvalidInputError: The page is out of bounds.

        Contract: ADR-0055 D1; reference §2.3.
        """
        return await self._run(schedules.get_schedule_history, schedule_id, limit=limit, offset=offset)

    async def list_schedules(
        self,
        *,
        enabled: bool | None = None,
        trigger_type: str | None = None,
        project: str | None = None,
        limit: int | None = 100,
        offset: int = 0,
    ) -> list[dict[str, Any]]:
        """Read a page of schedules, last changed first.

        Args:
            enabled: Only enabled or only disabled ones.
            trigger_type: Only of this kind.
            project: Only of this project.
            limit: Rows, 1 to 1,000; None reads all of them, up to 10,000.
            offset: Rows before the page.
        Raises:
            InvalidInputError: The page is out of bounds, or without a limit there are more than 10,000: read pages.

        Contract: ADR-0055 D1; reference §2.3.
        """
        return await self._run(
            schedules.list_schedules,
            enabled=enabled,
            trigger_type=trigger_type,
            project=project,
            limit=limit,
            offset=offset,
        )

    async def list_schedules_by_owner_key(
        self, owner_key: str, *, after_id: str | None = None, limit: int = 1000
    ) -> list[dict[str, Any]]:
        """Read a page of the schedules of one owner, in the order of their ids.

        Args:
            owner_key: One without schedules gives [].
            after_id: The last id of the page before.
            limit: Rows, 1 to 1,000.

        Cost: a seek of the index on the owner.
        Contract: ADR-0055 D1; reference §2.3.
        """
        return await self._run(schedules.list_schedules_by_owner_key, owner_key, after_id=after_id, limit=limit)

    async def update_schedule(
        self,
        schedule_id: str,
        *,
        guard_cursor_forward: bool = False,
        expect_next_fire_at: float | NoCursorClaim | None = NO_CURSOR_CLAIM,
        expect_github_cursor: str | NoCursorClaim | None = NO_CURSOR_CLAIM,
        expect_owner_key: str | NoCursorClaim | None = NO_CURSOR_CLAIM,
        audit_context: Mapping[str, Any] | None = None,
        reason: Mapping[str, Any] | None = None,
        **fields: Unpack[ScheduleChanges],
    ) -> bool:
        """Change columns of a schedule if it still holds what the caller expects.

        Args:
            schedule_id: The schedule.
            guard_cursor_forward: Keep the larger ``github_cursor``, compared as text; the other columns change.
            expect_next_fire_at: Epoch seconds that the row must hold, None for no value, ``NO_CURSOR_CLAIM`` for any.
            expect_github_cursor: As ``expect_next_fire_at``.
            expect_owner_key: As ``expect_next_fire_at``.
            audit_context: Where the change comes from.
            reason: Why; it must fit whether the schedule is enabled afterwards.
            fields: Columns of ``ScheduleChanges``: all but ``id``, ``created_at`` and ``updated_at``.
        Returns:
            Whether a row changed; False if it is missing or holds something else.
        Raises:
            InvalidInputError: A column cannot be written, or a value is not acceptable; nothing was written.

        An edge of ``enabled`` writes a row of history. ``updated_at`` moves with every change.
        Cost: one statement, three more for ``enabled``.
        Contract: ADR-0055 D1; reference §2.3.
        """
        return await self._run(
            schedules.update_schedule,
            schedule_id,
            guard_cursor_forward=guard_cursor_forward,
            expect_next_fire_at=expect_next_fire_at,
            expect_github_cursor=expect_github_cursor,
            expect_owner_key=expect_owner_key,
            audit_context=audit_context,
            reason=reason,
            **fields,
        )

    async def delete_schedule(
        self,
        schedule_id: str,
        *,
        audit_context: Mapping[str, Any] | None = None,
        reason: Mapping[str, Any] | None = None,
    ) -> bool:
        """Remove a schedule and its runs; its history stays and gets a last row.

        Returns:
            False if it is missing.
        Raises:
            InvalidInputError: The reason is not one of a deletion.
            ForeignKeyError: A dispatch or a worker refers to one of its runs.

        Cost: for each of its runs the database looks for children among all runs; no index serves that.
        Contract: ADR-0055 D1; reference §2.3.
        """
        return await self._run(schedules.delete_schedule, schedule_id, audit_context=audit_context, reason=reason)

    async def apply_schedule_set(
        self,
        *,
        creates: Sequence[Mapping[str, Any]],
        updates: Sequence[tuple[str, Mapping[str, Any]]],
        disables: Sequence[str],
        expect_owner_keys: Mapping[str, str | None] | None = None,
        expect_updated_at: Mapping[str, float | None] | None = None,
        audit_context: Mapping[str, Any] | None = None,
        reason: Mapping[str, Any] | None = None,
    ) -> None:
        """Apply the plan of a declaration: all of it in one transaction, or nothing.

        Args:
            creates: Schedules as for ``create_schedule``.
            updates: Pairs of an id and its changes; a missing one without a claim is silent.
            disables: Ids to disable.
            expect_owner_keys: By id, the owner that a schedule of the plan must have, None for no owner.
            expect_updated_at: By id, when a schedule of the plan must have been changed last, epoch seconds.
            audit_context: Where the plan comes from; None: a declaration.
            reason: Text, evidence and metadata for the history; the codes say what became of each schedule.
        Raises:
            InvalidInputError: A member is not acceptable, an id was used before, or there are more than 1,000.
            OwnershipConflictError: A schedule is not as claimed, or missing.
            UniqueConflictError: A name is taken.

        Contract: ADR-0055 D1; reference §2.3.
        """
        await self._run(
            schedule_sets.apply_schedule_set,
            creates=creates,
            updates=updates,
            disables=disables,
            expect_owner_keys=expect_owner_keys,
            expect_updated_at=expect_updated_at,
            audit_context=audit_context,
            reason=reason,
        )
