"""What sessions and branches become: their status, their invocation."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Unpack

from lionstate.facade.runner import Runner
from lionstate.facade.status import warn_default_reason
from lionstate.records import imported_sessions, session_lifecycle
from lionstate.records.session_lifecycle import SessionChanges

__all__ = ["SessionLifecycleFacade"]


class SessionLifecycleFacade(Runner):
    """Methods that change the status or the invocation of sessions and branches."""

    async def update_session(
        self, session_id: str, *, set_if_null: Collection[str] = (), **changes: Unpack[SessionChanges]
    ) -> None:
        """Change columns of a session, in one transaction.

        Args:
            session_id: A missing one is silent unless the status changes.
            set_if_null: Of the given columns, those that are written only where nothing is stored; a stored JSON
                ``null`` is nothing.
            changes: Columns of ``SessionChanges``; ``updated_at`` is always now, ``node_metadata`` may be JSON text.
                ``status`` is changed as ``update_status`` does it, together with ``ended_at``, ``duration_ms``,
                ``node_metadata`` and ``current_phase``, with ``reason_code``, ``reason_summary``, ``evidence_refs``,
                ``reason_source``, ``reason_actor``, ``override``, ``override_actor`` and ``override_justification``;
                without a ``reason_code`` a default one is recorded and a DeprecationWarning given.
        Raises:
            InvalidInputError: A column cannot be written, or a value is not acceptable; nothing was written.
            NotFoundError: The status of a missing session.
            TransitionRejectedError: The status is terminal and there is no override.
            ForeignKeyError: The invocation or a message is missing.

        Cost: one statement, four more for a status, one for ``set_if_null``.
        Contract: ADR-0055 D1; reference §2.1, §2.8.
        """
        warn_default_reason("update_session", changes)
        await self._run(session_lifecycle.update_session, session_id, set_if_null=set_if_null, **changes)

    async def finalize_branch(self, branch_id: str, *, status: str, ended_at: float | None = None) -> bool:
        """End a branch.

        Args:
            branch_id: The branch.
            status: A terminal status of sessions.
            ended_at: Epoch seconds; None is now.
        Returns:
            False, and nothing written, if the branch is missing or has ended, or the status is not terminal.

        Contract: ADR-0055 D1; reference §2.1.
        """
        return await self._run(session_lifecycle.finalize_branch, branch_id, status=status, ended_at=ended_at)

    async def attach_session_invocation(self, session_id: str, invocation_id: str) -> None:
        """Point a session at an invocation; both invocations' ``session_count`` follow, never below 0.

        Args:
            session_id: A missing one is silent, one that points there already is left alone.
            invocation_id: The invocation.
        Raises:
            ForeignKeyError: The invocation is missing.

        Contract: ADR-0055 D1; reference §2.1.
        """
        await self._run(session_lifecycle.attach_session_invocation, session_id, invocation_id)

    async def sessions_by_source_kind(
        self, source_kind: str, *, after_id: str | None = None, limit: int = 1000
    ) -> list[dict[str, Any]]:
        """Read a page of sessions of one kind, for sweeps of importers.

        Args:
            source_kind: ``live``, ``imported_fs``, ``imported_codex``; any other has no sessions.
            after_id: The last id of the page before.
            limit: Rows, 1 to 1,000.
        Returns:
            ``id`` and ``node_metadata``, in the order of ids.

        Contract: ADR-0055 D1; reference §2.1.
        """
        return await self._run(session_lifecycle.sessions_by_source_kind, source_kind, after_id=after_id, limit=limit)

    async def delete_imported_session(self, session_id: str, *, require_source_kind: str) -> bool:
        """Delete a session that an importer wrote, with its branches, history and whatever only it holds.

        Args:
            session_id: The session.
            require_source_kind: Its kind, one that begins with ``imported_``.
        Returns:
            False, and nothing written, if the session is missing or of another kind.
        Raises:
            BackendBusyError: Another program kept its rows locked (PostgreSQL); nothing was written.

        Its progressions, unless another session or branch points at them, answer as missing from now on; maintenance
        removes their rows. Of their messages those go that no other progression holds, in items or JSON, and no
        session or branch points at; the messages of a progression that no read is answered from stay. Artifacts,
        plays, team messages, dispatches and approvals lose the session; an artifact whose name is taken without it
        is renamed ``<name> (detached <session id>)``.

        Cost: one pass over the item rows and JSON collections of the store, in one transaction, during which nobody
        writes. Contract: ADR-0055 D1; reference §2.1; design decision 18.
        """
        return await self._run(
            imported_sessions.delete_imported_session, session_id, require_source_kind=require_source_kind
        )
