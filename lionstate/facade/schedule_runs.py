"""Runs of schedules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Unpack

from lionstate.facade.runner import Runner
from lionstate.facade.status import warn_default_reason
from lionstate.records import schedule_runs
from lionstate.records.cursor_claims import NO_CURSOR_CLAIM, NoCursorClaim
from lionstate.records.schedule_runs import ScheduleRunChanges

__all__ = ["ScheduleRunFacade"]


class ScheduleRunFacade(Runner):
    """Methods on the runs of schedules."""

    async def create_schedule_run(self, run: Mapping[str, Any]) -> None:
        """Insert a run and, where its status has one, the first row of its history.

        Args:
            run: Columns by name; ``id``, ``action_kind`` and ``fired_at`` (epoch seconds) are required,
                ``schedule_id``, ``trigger_context`` and ``action_args`` must be there and may be None, ``status`` is
                ``running`` unless given, other keys are left alone. ``queued``, ``running``, ``failed`` and
                ``skipped`` have a first row.
        Raises:
            MissingKeyError: A required column is missing; nothing was written.
            InvalidInputError: A value is not acceptable; nothing was written.
            UniqueConflictError: The id exists.
            ForeignKeyError: The schedule, the invocation or the parent is missing.

        A queued run without a schedule is a task: it enters the queue behind those that wait.
        Cost: three statements.
        Contract: ADR-0055 D1; reference §2.3, §2.8.
        """
        await self._run(schedule_runs.create_schedule_run, run)

    async def create_schedule_run_and_advance(
        self,
        run: Mapping[str, Any],
        *,
        schedule_id: str,
        schedule_fields: Mapping[str, Any],
        expect_next_fire_at: float | NoCursorClaim | None,
        expect_github_cursor: str | NoCursorClaim | None = NO_CURSOR_CLAIM,
        audit_context: Mapping[str, Any] | None = None,
        reason: Mapping[str, Any] | None = None,
    ) -> bool:
        """Insert a run and move its schedule's cursors, in one transaction, if the cursors are as expected.

        Args:
            run: As for ``create_schedule_run``.
            schedule_id: Whose cursors move.
            schedule_fields: Columns as for ``update_schedule``; ``github_cursor`` never moves back.
            expect_next_fire_at: Epoch seconds that the schedule must hold, None for no value, ``NO_CURSOR_CLAIM`` for
                a run that stands for no due instant.
            expect_github_cursor: As ``expect_next_fire_at``; tells apart the events of one poll.
            audit_context: Where the change comes from.
            reason: Why ``enabled`` changes, if it does.
        Returns:
            False if a cursor was not as expected or the schedule is missing; nothing was written then.
        Raises:
            InvalidInputError: A value is not acceptable; nothing was written.
            UniqueConflictError: The run's id exists; nothing was written.

        Cost: five statements.
        Contract: ADR-0055 D1; reference §2.3.
        """
        return await self._run(
            schedule_runs.create_schedule_run_and_advance,
            run,
            schedule_id=schedule_id,
            schedule_fields=schedule_fields,
            expect_next_fire_at=expect_next_fire_at,
            expect_github_cursor=expect_github_cursor,
            audit_context=audit_context,
            reason=reason,
        )

    async def tombstone_and_replace_schedule_run(
        self,
        orphan_id: str,
        replacement_run: Mapping[str, Any],
        *,
        expected_orphan_status: str = "running",
        reason_summary: str = "undispatched schedule run replaced during recovery",
        evidence_refs: Sequence[Mapping[str, Any]] | None = None,
    ) -> bool:
        """Fail a run that was never dispatched and insert another one for it, in one transaction.

        Args:
            orphan_id: The run; it becomes ``failed`` with ``run.failed.never_dispatched``.
            replacement_run: As for ``create_schedule_run``.
            expected_orphan_status: What it must be, no terminal status.
            reason_summary: For people.
            evidence_refs: JSON values that the reason rests on.
        Returns:
            False if it was dispatched, is something else or missing; nothing was written then.
        Raises:
            InvalidInputError: A value is not acceptable; nothing was written.
            UniqueConflictError: The replacement's id exists; nothing was written.

        Cost: six statements.
        Contract: ADR-0055 D1; reference §2.3.
        """
        return await self._run(
            schedule_runs.tombstone_and_replace_schedule_run,
            orphan_id,
            replacement_run,
            expected_orphan_status=expected_orphan_status,
            reason_summary=reason_summary,
            evidence_refs=evidence_refs,
        )

    async def update_schedule_run(self, run_id: str, **changes: Unpack[ScheduleRunChanges]) -> None:
        """Change columns of a run, in one transaction; ``updated_at`` moves with every change.

        Args:
            run_id: A missing one is silent unless the status changes.
            changes: Columns of ``ScheduleRunChanges``. ``status`` is changed as ``update_status`` does it, with
                ``reason_code``, ``reason_summary``, ``evidence_refs``, ``reason_source`` and ``reason_actor``; without
                a ``reason_code`` a default one is recorded and a DeprecationWarning given. A ``resume_packet`` of
                None is no value at all, not the JSON ``null``.
        Raises:
            InvalidInputError: A column cannot be written, or a value is not acceptable; nothing was written.
            NotFoundError: The status of a missing run.
            TransitionRejectedError: The status is terminal.

        Contract: ADR-0055 D1; reference §2.3, §2.8.
        """
        warn_default_reason("update_schedule_run", changes)
        await self._run(schedule_runs.update_schedule_run, run_id, **changes)

    async def get_schedule_run(self, run_id: str) -> dict[str, Any] | None:
        """Read one run, a task too; None if it is missing.

        Contract: ADR-0055 D1.
        """
        return await self._run(schedule_runs.get_schedule_run, run_id)

    async def get_schedule_run_by_invocation(self, invocation_id: str) -> dict[str, Any] | None:
        """Read the run of an invocation that was created last; None if it has none.

        Contract: ADR-0055 D1; reference §2.3.
        """
        return await self._run(schedule_runs.get_schedule_run_by_invocation, invocation_id)

    async def list_schedule_runs(
        self,
        schedule_id: str,
        *,
        status: str | Sequence[str] | None = None,
        limit: int = 50,
        offset: int = 0,
    ) -> list[dict[str, Any]]:
        """Read a page of the runs of a schedule, last fired first.

        Args:
            schedule_id: A missing one has none.
            status: Only with this status, or one of these; None or [] is any.
            limit: Rows, 1 to 1,000.
            offset: Rows before the page.

        Cost: one range scan of the index on schedule and time.
        Contract: ADR-0055 D1; reference §2.3.
        """
        return await self._run(schedule_runs.list_schedule_runs, schedule_id, status=status, limit=limit, offset=offset)

    async def list_running_schedule_runs(
        self, schedule_id: str, *, after_id: str | None = None, limit: int = 1000
    ) -> list[dict[str, Any]]:
        """Read a page of the running runs of a schedule, in the order of their ids.

        Args:
            schedule_id: A missing one has none.
            after_id: The last id of the page before.
            limit: Rows, 1 to 1,000.

        Contract: ADR-0055 D1; reference §2.3.
        """
        return await self._run(schedule_runs.list_running_schedule_runs, schedule_id, after_id=after_id, limit=limit)

    async def list_undispatched_schedule_runs(
        self, *, after_id: str | None = None, limit: int = 1000
    ) -> list[dict[str, Any]]:
        """Read a page of running runs of any schedule whose launch was never confirmed (no ``dispatched_at``).

        Args:
            after_id: The last id of the page before; pages are in the order of ids.
            limit: Rows, 1 to 1,000.

        Contract: ADR-0055 D1; reference §2.3.
        """
        return await self._run(schedule_runs.list_undispatched_schedule_runs, after_id=after_id, limit=limit)

    async def list_dispatched_running_schedule_runs(
        self, *, after_id: str | None = None, limit: int = 1000
    ) -> list[dict[str, Any]]:
        """Read a page of running runs of any schedule that were launched for an invocation.

        Args:
            after_id: The last id of the page before; pages are in the order of ids.
            limit: Rows, 1 to 1,000.

        They are candidates for a look, no verdict that they are dead.
        Contract: ADR-0055 D1; reference §2.3.
        """
        return await self._run(schedule_runs.list_dispatched_running_schedule_runs, after_id=after_id, limit=limit)

    async def schedule_run_exists_since(self, schedule_id: str, since: float) -> bool:
        """Say whether a top-level run of a schedule fired at ``since`` (epoch seconds) or later and was not skipped.

        Contract: ADR-0055 D1; reference §2.3.
        """
        return await self._run(schedule_runs.schedule_run_exists_since, schedule_id, since)
