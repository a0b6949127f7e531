"""Artifacts and the audit trail."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lionstate.facade.runner import Runner
from lionstate.records import evidence

__all__ = ["EvidenceFacade"]


class EvidenceFacade(Runner):
    """Methods on artifacts and admin events."""

    async def insert_artifact(
        self,
        *,
        kind: str,
        name: str,
        content: Mapping[str, Any],
        invocation_id: str | None = None,
        session_id: str | None = None,
        file_path: str | None = None,
    ) -> str:
        """Store the latest outcome of this name in this context.

        An artifact with the same kind, name and parents keeps its id and ``created_at`` and takes the rest.

        Args:
            kind: Not empty.
            name: Not empty.
            content: Stored as JSON; not derived from the file.
            invocation_id: A parent; its absence is part of the key.
            session_id: The same.
            file_path: Stored as given and never looked at; None clears the stored one.
        Returns:
            The row's id, 12 hex digits for a new one.
        Raises:
            InvalidInputError: ``kind`` or ``name`` is empty, or a value has no stored form; nothing was written.
            ForeignKeyError: A parent does not exist.
            UniqueConflictError: Another process inserted the same key at the same time.

        Cost: two statements.
        Contract: ADR-0055 D4.
        """
        return await self._run(
            evidence.insert_artifact,
            kind=kind,
            name=name,
            content=content,
            invocation_id=invocation_id,
            session_id=session_id,
            file_path=file_path,
        )

    async def get_artifact(self, artifact_id: str) -> dict[str, Any] | None:
        """Read one artifact; None if it is missing.

        Contract: ADR-0055 D4.
        """
        return await self._run(evidence.get_artifact, artifact_id)

    async def list_artifacts_for_invocation(
        self, invocation_id: str, *, limit: int = 1000, offset: int = 0
    ) -> list[dict[str, Any]]:
        """Read one page of the artifacts of an invocation, ordered by ``created_at`` and ``id``; [] if there are none.

        Args:
            invocation_id: The invocation.
            limit: Rows, 1 to 1,000.
            offset: Rows to pass over.
        Raises:
            InvalidInputError: ``limit`` or ``offset`` is out of range.

        Contract: ADR-0055 D4.
        """
        return await self._run(evidence.list_artifacts_for_invocation, invocation_id, limit=limit, offset=offset)

    async def list_artifacts_for_session(
        self, session_id: str, *, limit: int = 1000, offset: int = 0
    ) -> list[dict[str, Any]]:
        """Read one page of the artifacts of a session, ordered by ``created_at`` and ``id``; [] if there are none.

        Args:
            session_id: The session.
            limit: Rows, 1 to 1,000.
            offset: Rows to pass over.
        Raises:
            InvalidInputError: ``limit`` or ``offset`` is out of range.

        Contract: ADR-0055 D4.
        """
        return await self._run(evidence.list_artifacts_for_session, session_id, limit=limit, offset=offset)

    async def insert_admin_event(
        self, *, action: str, details: Mapping[str, Any], target_id: str | None = None, actor: str = "admin"
    ) -> str:
        """Add one event to the audit trail.

        Returns:
            Its id, 12 hex digits.
        Raises:
            InvalidInputError: ``details`` has no JSON form; nothing was written.

        Contract: ADR-0055 D1.
        """
        return await self._run(
            evidence.insert_admin_event, action=action, details=details, target_id=target_id, actor=actor
        )

    async def list_admin_events(
        self, *, action: str | None = None, target_id: str | None = None, limit: int = 100, offset: int = 0
    ) -> list[dict[str, Any]]:
        """Read one page of events of the audit trail, newest first, ``details`` decoded.

        Args:
            action: Only this action.
            target_id: Only events of this target, and those whose details hold the id as a JSON text.
            limit: Rows, 1 to 1,000.
            offset: Rows to pass over.
        Raises:
            InvalidInputError: ``limit`` or ``offset`` is out of range.

        Cost: with a ``target_id`` the whole table.
        Contract: ADR-0055 D1.
        """
        return await self._run(
            evidence.list_admin_events, action=action, target_id=target_id, limit=limit, offset=offset
        )
