"""Teams, the messages between their members, and who has read them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Unpack

from lionstate.facade.runner import Runner
from lionstate.facade.status import warn_default_reason
from lionstate.records import team_messages, teams
from lionstate.records.team_messages import TeamMessageChanges
from lionstate.records.teams import TeamChanges

__all__ = ["TeamFacade"]


class TeamFacade(Runner):
    """Methods on teams and team messages."""

    async def create_team(self, team: Mapping[str, Any]) -> None:
        """Insert a team; an id that exists stays as it is.

        Args:
            team: Columns by name; ``id`` and ``name`` are required, ``status`` is ``active`` and ``members`` [] unless
                given, ``member_count`` follows ``members``, other keys are left alone.
        Raises:
            MissingKeyError: A required column is missing; nothing was written.
            InvalidInputError: A value is not acceptable; nothing was written.

        Contract: ADR-0055 D1.
        """
        await self._run(teams.create_team, team)

    async def get_team(self, team_id: str) -> dict[str, Any] | None:
        """Read one team; None if it is missing.

        Contract: ADR-0055 D1.
        """
        return await self._run(teams.get_team, team_id)

    async def list_teams(
        self, *, name: str | None = None, status: str | None = None, limit: int = 100, offset: int = 0
    ) -> list[dict[str, Any]]:
        """Read a page of teams, last changed first.

        Args:
            name: Only with this name; names need not be unique.
            status: Only with this status.
            limit: Rows, 1 to 1,000.
            offset: Rows before the page.

        Contract: ADR-0055 D1.
        """
        return await self._run(teams.list_teams, name=name, status=status, limit=limit, offset=offset)

    async def count_teams(self, *, name: str | None = None, status: str | None = None) -> int:
        """Count the teams that ``list_teams`` would page through.

        Contract: ADR-0055 D1.
        """
        return await self._run(teams.count_teams, name=name, status=status)

    async def update_team(self, team_id: str, **changes: Unpack[TeamChanges]) -> None:
        """Change columns of a team, in one transaction; arguments and errors as ``update_invocation``.

        No status has a default reason.

        Contract: ADR-0055 D1; reference §2.8.
        """
        warn_default_reason("update_team", changes)
        await self._run(teams.update_team, team_id, **changes)

    async def delete_team(self, team_id: str) -> bool:
        """Remove a team and its messages; False if it is missing.

        Contract: ADR-0055 D1.
        """
        return await self._run(teams.delete_team, team_id)

    async def create_team_message(self, message: Mapping[str, Any]) -> None:
        """Insert a message that nobody has read; an id that exists stays as it is.

        Args:
            message: Columns by name; ``id``, ``team_id``, ``sender`` and ``content`` are required, ``recipient`` is
                ``all`` unless given, several names are joined by commas; other keys are left alone.
        Raises:
            MissingKeyError: A required column is missing; nothing was written.
            InvalidInputError: A value is not acceptable; nothing was written.
            ForeignKeyError: The team or the session is missing.

        Contract: ADR-0055 D1; reference §2.2.
        """
        await self._run(team_messages.create_team_message, message)

    async def get_team_message(self, message_id: str) -> dict[str, Any] | None:
        """Read one message; None if it is missing.

        Contract: ADR-0055 D1.
        """
        return await self._run(team_messages.get_team_message, message_id)

    async def list_team_messages(
        self,
        team_id: str,
        *,
        sender: str | None = None,
        recipient: str | None = None,
        unread_by: str | None = None,
        limit: int = 100,
        offset: int = 0,
    ) -> list[dict[str, Any]]:
        """Read a page of a team's messages, oldest first.

        Args:
            team_id: A missing team has no messages.
            sender: Only from this member.
            recipient: Only to this member, messages to everybody included.
            unread_by: Only what was sent to this member by others and is not marked as read.
            limit: Rows, 1 to 1,000.
            offset: Rows before the page.

        Cost: the team's messages.
        Contract: ADR-0055 D1.
        """
        return await self._run(
            team_messages.list_team_messages,
            team_id,
            sender=sender,
            recipient=recipient,
            unread_by=unread_by,
            limit=limit,
            offset=offset,
        )

    async def count_team_messages(
        self, team_id: str, *, sender: str | None = None, recipient: str | None = None, unread_by: str | None = None
    ) -> int:
        """Count the messages that ``list_team_messages`` would page through.

        Contract: ADR-0055 D1.
        """
        return await self._run(
            team_messages.count_team_messages, team_id, sender=sender, recipient=recipient, unread_by=unread_by
        )

    async def count_unread_team_messages(self, team_id: str, readers: Sequence[str]) -> dict[str, int]:
        """Count what each reader has not read: sent to them by others and not marked.

        Args:
            team_id: In a missing team nobody has anything to read.
            readers: At most 100 names.

        Cost: one scan of the team's messages.
        Contract: ADR-0055 D1.
        """
        return await self._run(team_messages.count_unread_team_messages, team_id, readers)

    async def mark_team_messages_read(self, team_id: str, reader: str, message_ids: Sequence[str] | None = None) -> int:
        """Add a reader to ``read_by`` of messages that were unread.

        Args:
            team_id: In a missing team there is nothing to mark.
            reader: One name, without a comma.
            message_ids: At most 1,000; None is everything unread, at most 1,000 a call.
        Returns:
            How many were marked; messages to others, own ones and read ones are not.

        Contract: ADR-0055 D1.
        """
        return await self._run(team_messages.mark_team_messages_read, team_id, reader, message_ids)

    async def update_team_message(self, message_id: str, **changes: Unpack[TeamMessageChanges]) -> bool:
        """Change ``content``, ``summary`` or ``session_id`` of a message; False if it is missing or nothing is given.

        Raises:
            InvalidInputError: Another column, or a value that is not acceptable; nothing was written.
            ForeignKeyError: The session is missing.

        Contract: ADR-0055 D1.
        """
        return await self._run(team_messages.update_team_message, message_id, **changes)

    async def delete_team_message(self, message_id: str) -> bool:
        """Remove a message; False if it is missing.

        Contract: ADR-0055 D1.
        """
        return await self._run(team_messages.delete_team_message, message_id)
