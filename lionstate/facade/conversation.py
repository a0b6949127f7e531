"""Messages and sessions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lionstate.facade.runner import Runner
from lionstate.records import live, messages, session_changes, sessions

__all__ = ["MessageFacade", "SessionFacade"]


class MessageFacade(Runner):
    """Methods on messages."""

    async def record_message(
        self,
        msg: Mapping[str, Any],
        session_id: str,
        branch_progression_id: str | None = None,
        session_progression_id: str | None = None,
        system_branch_id: str | None = None,
        system_branch_update_before_activity: bool = False,
        activity_at: float | None = None,
    ) -> None:
        """Record a live message: its row, its place on branch and session, the session's activity; all or nothing.

        Missing progressions, sessions and branches are no-ops. Repeating a call leaves what one call leaves.

        Args:
            msg: As for ``insert_message``.
            session_id: Whose ``last_message_at`` and ``updated_at`` move forward, never back.
            branch_progression_id: Gets the message's id at its end unless it has it.
            session_progression_id: The same.
            system_branch_id: A branch whose ``system_msg_id`` becomes this message.
            system_branch_update_before_activity: Accepted for callers that pass it; both happen in one transaction.
            activity_at: Epoch seconds; None is now.
        Raises:
            InvalidInputError: The message or an argument is not acceptable; nothing was written.
            ProgressionBlockedError: A progression is blocked with no trustworthy authority; nothing was written.
            MalformedCollectionError: A progression's JSON is the authority and no array; nothing was written.

        Cost: at most nine statements, shared with the calls that wait at the same time; before cutover a JSON value
            is rewritten per progression.
        Contract: ADR-0055 D1, D3; ADR-0117 D2; design decision 29.
        """
        await self._run(
            live.record_message,
            msg,
            session_id,
            branch_progression_id,
            session_progression_id,
            system_branch_id,
            system_branch_update_before_activity,
            activity_at,
        )

    async def insert_message(self, msg: Mapping[str, Any]) -> None:
        """Store a message; the same id again overwrites everything but ``created_at``.

        Args:
            msg: Needs ``id``, ``created_at`` (epoch seconds), ``role`` and ``content`` (any JSON value but null); may
                have ``node_metadata``, ``sender``, ``recipient``, ``channel`` and ``embedding`` (finite numbers that
                become float32, or packed little-endian float32). ``node_metadata["lion_class"]`` names the class.
                Other keys are left alone.
        Raises:
            MissingKeyError: A required key is missing; nothing was written.
            InvalidInputError: ``content`` is None, ``role`` is blank, or a value has no stored form
                (inf, nan, NUL or a lone surrogate in a text); nothing was written.

        Cost: one statement, two more for a class that was not seen before.
        Contract: ADR-0055 D1.
        """
        await self._run(live.insert_message, msg)

    async def insert_messages(
        self,
        msgs: Sequence[Mapping[str, Any]],
        *,
        progression_ids: Sequence[str] = (),
        session_id: str | None = None,
        activity_at: float | None = None,
    ) -> None:
        """Store messages and append them, in their order, to each progression; all or nothing.

        Args:
            msgs: As for ``insert_message``; none at all is a no-op.
            progression_ids: Ids that a progression has already keep their position; a missing one is left out.
            session_id: Whose activity moves forward; a missing one is left out.
            activity_at: Epoch seconds; None is now.
        Raises:
            InvalidInputError: Any message is not acceptable; nothing was written.
            ProgressionBlockedError, MalformedCollectionError: As ``record_message``.

        Cost: as one ``record_message``; on SQLite one execution per message and per append.
        Contract: ADR-0055 D1, D3; ADR-0117 D2.
        """
        await self._run(
            live.insert_messages,
            msgs,
            progression_ids=progression_ids,
            session_id=session_id,
            activity_at=activity_at,
        )

    async def get_message(self, message_id: str) -> dict[str, Any] | None:
        """Read one message.

        Returns:
            Every column, JSON decoded, ``embedding`` as a list of floats, and ``lion_class_str``, the class's name;
            None if the message is missing.

        Contract: ADR-0055 D1.
        """
        return await self._read(messages.get_message, message_id)

    async def get_messages(self, ids: Sequence[str]) -> dict[str, dict[str, Any]]:
        """Read messages by id.

        Returns:
            Rows as ``get_message`` gives them; ids without a row are left out.

        Cost: one query per 500 ids.
        Contract: ADR-0055 D1.
        """
        return await self._read(messages.get_messages, ids)


class SessionFacade(Runner):
    """Methods on sessions."""

    async def create_session(self, session: Mapping[str, Any]) -> None:
        """Create a session; an existing id is left untouched, without an error.

        A row that is created counts for its invocation and registers its project; a running one gets its first history
        row. One that is born terminal without ``ended_at`` gets the latest time that is known of it, marked
        approximate; with a measured start and end ``duration_ms`` is derived.

        Args:
            session: Needs ``id`` and ``progression_id``; other columns by name. ``created_at``, ``updated_at`` are
                now, ``source_kind`` is ``live``, ``last_message_at`` is ``started_at`` or now unless given.
        Raises:
            MissingKeyError: A required key is missing; nothing was written.
            InvalidInputError: ``status``, ``invocation_kind`` or ``source_kind`` is outside its
                vocabulary, or a value has no stored form; nothing was written.
            ForeignKeyError: The progression, the invocation or a message does not exist.
            ConflictError: The progression is being deleted.

        Contract: ADR-0055 D1; design decision 18.
        """
        await self._run(sessions.create_session, session)

    async def get_session(self, session_id: str) -> dict[str, Any] | None:
        """Read one session.

        Returns:
            Every column, JSON decoded, ``ended_at_is_approximate`` as a bool; None if it is missing.

        Contract: ADR-0055 D1.
        """
        return await self._run(sessions.get_session, session_id)

    async def get_session_by_cc_id(self, cc_session_id: str) -> dict[str, Any] | None:
        """Read the session with this ``cc_session_id``, the oldest of several; None if there is none.

        Contract: ADR-0055 D1.
        """
        return await self._run(sessions.get_session_by_cc_id, cc_session_id)

    async def get_sessions_for_run(self, run_id: str, *, limit: int = 1000, offset: int = 0) -> list[dict[str, Any]]:
        """Read one page of the sessions of a run, ordered by ``created_at`` and ``id``; [] if there are none.

        Args:
            run_id: The run.
            limit: Rows, 1 to 1,000.
            offset: Rows to pass over.
        Raises:
            InvalidInputError: ``limit`` or ``offset`` is out of range.

        Contract: ADR-0055 D1.
        """
        return await self._run(sessions.get_sessions_for_run, run_id, limit=limit, offset=offset)

    async def list_sessions(
        self, *, status: str | None = None, limit: int = 100, offset: int = 0
    ) -> list[dict[str, Any]]:
        """Read one page of sessions, the most recently updated first.

        Args:
            status: Only those in this status.
            limit: Rows, 1 to 1,000.
            offset: Rows to pass over.
        Raises:
            InvalidInputError: ``limit`` or ``offset`` is out of range.

        Contract: ADR-0055 D1.
        """
        return await self._run(sessions.list_sessions, status=status, limit=limit, offset=offset)

    async def count_sessions(self, *, status: str | None = None) -> int:
        """Count the sessions, in one status or all.

        Contract: ADR-0055 D1.
        """
        return await self._run(sessions.count_sessions, status=status)

    async def touch_session_activity(self, session_id: str, *, at: float | None = None) -> None:
        """Move ``last_message_at`` and ``updated_at`` to the larger of stored and given, never back.

        Args:
            session_id: A missing session is a no-op.
            at: Epoch seconds; None is now.

        Contract: ADR-0055 D1.
        """
        await self._run(session_changes.touch_session_activity, session_id, at=at)

    async def merge_session_node_metadata(self, session_id: str, patch: Mapping[str, Any]) -> None:
        """Merge a patch into ``node_metadata`` as RFC 7396 says and set ``updated_at``.

        A stored value that is no object is kept under ``_discarded_node_metadata`` with ``_discarded_at``.

        Args:
            session_id: A missing session is a no-op.
            patch: None as a value removes the key.
        Raises:
            InvalidInputError: The patch is no mapping or has no JSON form.

        Contract: ADR-0055 D1.
        """
        await self._run(session_changes.merge_session_node_metadata, session_id, patch)

    async def set_session_user_label(self, session_id: str, label: str | None) -> bool:
        """Set a session's label, or clear it; ``updated_at`` stays.

        Args:
            session_id: The session.
            label: Trimmed; blank and None clear it.
        Returns:
            False if the session is missing.
        Raises:
            InvalidInputError: Over 160 characters, or with control characters.

        Contract: ADR-0055 D1.
        """
        return await self._run(session_changes.set_session_user_label, session_id, label)

    async def set_session_provenance(
        self,
        session_id: str,
        *,
        node_metadata: Any = None,
        project: str | None = None,
        project_source: str | None = None,
        cc_session_id: str | None = None,
        artifacts_path: str | None = None,
    ) -> None:
        """Write where a session came from; None leaves a value as it is, and ``updated_at`` stays.

        Args:
            session_id: A missing session is a no-op.
            node_metadata: Replaces the stored value.
            project: Also registered as a project, with ``project_source`` or ``git_remote``.
            project_source: How the project was found.
            cc_session_id: Id of the transcript outside.
            artifacts_path: Fills an empty one only.

        Contract: ADR-0055 D1.
        """
        await self._run(
            session_changes.set_session_provenance,
            session_id,
            node_metadata=node_metadata,
            project=project,
            project_source=project_source,
            cc_session_id=cc_session_id,
            artifacts_path=artifacts_path,
        )

    async def update_artifact_verification(self, session_id: str, verification: Mapping[str, Any] | None) -> None:
        """Store what a check of the expected files found, and set ``updated_at``.

        Args:
            session_id: A missing session is a no-op.
            verification: As ``lionstate.artifacts.verify_artifact_contract`` returns it.

        Contract: ADR-0055 D5.
        """
        await self._run(session_changes.update_artifact_verification, session_id, verification)

    async def repair_session_progression(self, session_id: str, new: str) -> str | None:
        """Give a session without a ``progression_id`` one; a session that has one keeps it.

        Returns:
            The id in effect; None if the session is missing.
        Raises:
            ForeignKeyError: The progression does not exist.
            ConflictError: The progression is being deleted.

        Contract: ADR-0055 D1; design decision 18.
        """
        return await self._run(session_changes.repair_session_progression, session_id, new)
