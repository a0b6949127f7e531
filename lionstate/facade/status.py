"""Changes of status and their history."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from lionstate.facade.runner import Runner
from lionstate.records import status, transitions

__all__ = ["StatusFacade", "warn_default_reason"]


def warn_default_reason(method: str, changes: Mapping[str, Any]) -> None:
    """Say that a status without a reason takes a default one, at the line that called the method."""
    if changes.get("status") is not None and changes.get("reason_code") is None:
        warnings.warn(
            f"{method}(status=…) without reason_code records a default reason; name the reason",
            DeprecationWarning,
            stacklevel=3,
        )


class StatusFacade(Runner):
    """Methods on statuses.

    A change into a terminal status calls nobody back, as LionAGI does in its process (reference §2.8): here another
    process or a daemon makes it as often, where a listener of yours hears nothing, and what is told after the commit is
    lost with the process. Who must be told gets a dispatch in the same transaction, ``async with state.batch() as b:
    b.update_status(…); b.enqueue_dispatch(…)``: both are there or neither, and a daemon's ``delivery.command`` delivers
    it at least once. A guard that does not hold (False) is no error, and the dispatch is there then too. LionAGI with
    the bridge goes on to announce what it changes.
    """

    async def update_status(
        self,
        entity_type: str,
        entity_id: str,
        *,
        new_status: str,
        reason_code: str,
        reason_summary: str = "",
        evidence_refs: Sequence[Mapping[str, Any]] | None = None,
        source: str = "executor",
        actor: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        expected_statuses: Collection[str | None] | None = None,
        expected_updated_at: float | None = None,
        extra_fields: Mapping[str, Any] | None = None,
        override: bool = False,
        override_actor: str | None = None,
        override_justification: str | None = None,
    ) -> bool:
        """Change the status of one record and write the row of its history.

        Args:
            entity_type: ``session`` (or ``run``), ``invocation``, ``show``, ``play``, ``team``, ``schedule_run``, or
                the name of its table.
            entity_id: The record; a missing one is an error.
            new_status: A word of that record's vocabulary. The status it has already is allowed and adds history.
            reason_code: One of the registered codes; its first word need not be the record's.
            reason_summary: For people.
            evidence_refs: JSON values that the reason rests on.
            source: ``executor``, ``agent``, ``admin`` or ``system``.
            actor: Who changed it.
            metadata: Kept in the history row.
            expected_statuses: The change is made only from one of these; None among them means no status.
            expected_updated_at: The change is made only if the record was last changed at this time.
            extra_fields: Columns that change with the status: of a session ``ended_at``, ``duration_ms``,
                ``ended_at_is_approximate``, ``node_metadata``, ``current_phase``; of an invocation and a play
                ``ended_at``; of a schedule run ``ended_at``, ``error_detail``, ``exit_code``.
            override: Leave a terminal status; an admin event records who and why.
            override_actor: Needed with ``override``.
            override_justification: Needed with ``override``.
        Returns:
            False if a guard did not hold; nothing was written then.
        Raises:
            InvalidInputError: A word is outside its vocabulary; nothing was written.
            NotFoundError: The record is missing.
            TransitionRejectedError: The status is terminal and there is no override; an admin event
                ``status_transition_rejected`` was written.

        A session's first terminal status sets ``ended_at`` when nothing measured it and derives ``duration_ms``.
        Cost: four statements, one more for an override.
        Contract: ADR-0055 D1; reference §2.8.
        """
        return await self._run(
            status.update_status,
            entity_type,
            entity_id,
            new_status=new_status,
            reason_code=reason_code,
            reason_summary=reason_summary,
            evidence_refs=evidence_refs,
            source=source,
            actor=actor,
            metadata=metadata,
            expected_statuses=expected_statuses,
            expected_updated_at=expected_updated_at,
            extra_fields=extra_fields,
            override=override,
            override_actor=override_actor,
            override_justification=override_justification,
        )

    async def list_status_transitions(
        self,
        entity_type: str,
        entity_id: str | None = None,
        *,
        reason_code: str | None = None,
        limit: int = 100,
        offset: int = 0,
    ) -> list[dict[str, Any]]:
        """Read a page of status changes.

        Args:
            entity_type: As for ``update_status``; ``dispatch`` and ``schedule`` too.
            entity_id: One record; None is every record of the type. A missing record has no history left or none yet.
            reason_code: Only changes for this reason.
            limit: Rows, 1 to 1,000.
            offset: Rows before the page.
        Returns:
            Rows of ``status_transitions``, newest first; [] if there are none.
        Raises:
            InvalidInputError: The type is unknown or the page is out of bounds.

        Cost: one index range scan for a given record.
        Contract: ADR-0055 D1; reference §2.6.
        """
        return await self._run(
            transitions.list_status_transitions,
            entity_type,
            entity_id,
            reason_code=reason_code,
            limit=limit,
            offset=offset,
        )
