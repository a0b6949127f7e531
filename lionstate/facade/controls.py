"""What is told to running sessions and what they tell: controls, signals, tags."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lionstate.facade.runner import Runner
from lionstate.records import controls, run_tags, signals

__all__ = ["ControlFacade"]


class ControlFacade(Runner):
    """Methods on session signals, session controls and run tags."""

    async def insert_session_signal(
        self, *, session_id: str, kind: str, op_id: str = "", ts: float, payload: Mapping[str, Any]
    ) -> int:
        """Insert a signal and return its number: one more than the session's last, from 1, without gaps.

        Raises:
            ForeignKeyError: The session is missing.
            InvalidInputError: The payload is no JSON object; nothing was written.

        Contract: ADR-0055 D1; reference §2.5.
        """
        return await self._run(
            signals.insert_session_signal, session_id=session_id, kind=kind, op_id=op_id, ts=ts, payload=payload
        )

    async def get_session_signals_after(
        self, session_id: str, after_seq: int, *, limit: int = 500
    ) -> list[dict[str, Any]]:
        """Read a page of a session's signals, ascending.

        Args:
            session_id: A missing session has no signals.
            after_seq: The last number of the page before; 0 starts at the first signal.
            limit: Rows, 1 to 1,000.
        Returns:
            Rows; a payload that is not readable as an object is {}.

        Cost: one index range scan.
        Contract: ADR-0055 D1; reference §2.5.
        """
        return await self._run(signals.get_session_signals_after, session_id, after_seq, limit=limit)

    async def insert_session_control(
        self,
        *,
        session_id: str,
        verb: str,
        payload: Mapping[str, Any] | None = None,
        created_at: float | None = None,
        project: str | None = None,
        require_live_flow_poller: bool = False,
    ) -> str | None:
        """Ask a running session for something.

        Args:
            session_id: The session.
            verb: ``pause``, ``resume``, ``message`` or ``stop``.
            payload: A JSON object.
            created_at: Epoch seconds; None is now.
            project: The session must belong to it.
            require_live_flow_poller: A session of kind ``flow`` or ``play`` must say in
                ``node_metadata.flow_control_poller`` that it looks for controls (``pending`` or ``active``).
        Returns:
            The control's id; None, and nothing written, if the session is missing, not running, or fails a
            condition.
        Raises:
            InvalidInputError: The verb or payload; nothing was written.

        Contract: ADR-0055 D1; reference §2.5.
        """
        return await self._run(
            controls.insert_session_control,
            session_id=session_id,
            verb=verb,
            payload=payload,
            created_at=created_at,
            project=project,
            require_live_flow_poller=require_live_flow_poller,
        )

    async def get_session_control(self, control_id: str) -> dict[str, Any] | None:
        """Read one control; None if it is missing.

        Contract: ADR-0055 D1.
        """
        return await self._run(controls.get_session_control, control_id)

    async def list_pending_session_controls(
        self, session_id: str, *, limit: int = 1000, offset: int = 0
    ) -> list[dict[str, Any]]:
        """Read one page of the controls of a session that are not settled, oldest first, claimed ones too.

        Args:
            session_id: The session; a missing one has none.
            limit: Rows, 1 to 1,000.
            offset: Rows to pass over; those that are settled meanwhile no longer count.
        Raises:
            InvalidInputError: ``limit`` or ``offset`` is out of range.

        Contract: ADR-0055 D1; reference §2.5.
        """
        return await self._run(controls.list_pending_session_controls, session_id, limit=limit, offset=offset)

    async def mark_session_control_applying(self, control_id: str, *, owner: str | None = None) -> str | None:
        """Claim a control.

        Returns:
            The claim, to give to ``finalize_session_control``; None if the control is missing, claimed or settled.

        Contract: ADR-0055 D1; reference §2.5.
        """
        return await self._run(controls.mark_session_control_applying, control_id, owner=owner)

    async def finalize_session_control(
        self, control_id: str, *, result: str, expect_claim: str | None = None, only_if_unclaimed: bool = False
    ) -> bool:
        """Settle a control with its result.

        Args:
            control_id: The control.
            result: What came of it.
            expect_claim: It must hold this claim.
            only_if_unclaimed: It must be neither claimed nor settled.
        Returns:
            False if it is missing or the guard does not hold; nothing was written then.
        Raises:
            InvalidInputError: Both guards.

        Contract: ADR-0055 D1; reference §2.5.
        """
        return await self._run(
            controls.finalize_session_control,
            control_id,
            result=result,
            expect_claim=expect_claim,
            only_if_unclaimed=only_if_unclaimed,
        )

    async def resolve_claimed_session_control(
        self, control_id: str, *, outcome: str, actor: str | None = None
    ) -> str | None:
        """Settle a control whose claimant never reported back.

        Returns:
            The stored result, which names outcome, actor and claim; None if the control is not claimed.

        Contract: ADR-0055 D1; reference §2.5.
        """
        return await self._run(controls.resolve_claimed_session_control, control_id, outcome=outcome, actor=actor)

    async def create_run_tag(self, session_id: str, tag: str) -> bool:
        """Tag a session; False if it has the tag.

        Args:
            session_id: The session.
            tag: Spaces around it are cut off; not blank.
        Raises:
            ForeignKeyError: The session is missing.

        Contract: ADR-0055 D1; reference §2.5.
        """
        return await self._run(run_tags.create_run_tag, session_id, tag)

    async def delete_run_tag(self, session_id: str, tag: str) -> bool:
        """Take a tag off a session; False if it does not have it.

        Contract: ADR-0055 D1; reference §2.5.
        """
        return await self._run(run_tags.delete_run_tag, session_id, tag)

    async def list_run_tags(self, session_id: str, *, limit: int = 1000, offset: int = 0) -> list[str]:
        """Read one page of the tags of a session; [] for a missing session.

        Args:
            session_id: The session.
            limit: Tags, 1 to 1,000.
            offset: Tags to pass over, in the order of the database's collation.
        Returns:
            The tags in the order of their text.
        Raises:
            InvalidInputError: ``limit`` or ``offset`` is out of range.

        Contract: ADR-0055 D1; reference §2.5.
        """
        return await self._run(run_tags.list_run_tags, session_id, limit=limit, offset=offset)

    async def count_run_tags(self, *, limit: int = 100, offset: int = 0) -> list[dict[str, Any]]:
        """Read a page of tags with their ``session_count``, most used first, 1 to 1,000 rows.

        Contract: ADR-0055 D1.
        """
        return await self._run(run_tags.count_run_tags, limit=limit, offset=offset)

    async def list_sessions_with_tags(self, tags: Sequence[str], *, limit: int = 100, offset: int = 0) -> list[str]:
        """Read a page of the ids of sessions that carry every one of the tags, last tagged first.

        Args:
            tags: 1 to 100.
            limit: Rows, 1 to 1,000.
            offset: Rows before the page.

        Contract: ADR-0055 D1; reference §2.5.
        """
        return await self._run(run_tags.list_sessions_with_tags, tags, limit=limit, offset=offset)
