"""Operations on teams and their messages."""

from __future__ import annotations

from lionstate.operations.table import Operation, operation, touching
from lionstate.records import team_messages, teams

__all__ = ["TABLE"]

_team = touching("team:team_id")
_message = touching("tm:message_id", "s:session_id")

TABLE: tuple[Operation, ...] = (
    operation(teams.create_team, writes=True, keys=touching("team:team.id")),
    operation(teams.update_team, writes=True, idempotent=False, keys=_team),
    # Its messages have keys of their own, which it does not know.
    operation(teams.delete_team, writes=True),
    operation(teams.get_team),
    operation(teams.list_teams),
    operation(teams.count_teams),
    operation(
        team_messages.create_team_message,
        writes=True,
        keys=touching("tm:message.id", "team:message.team_id", "s:message.session_id"),
    ),
    operation(team_messages.update_team_message, writes=True, keys=_message),
    operation(team_messages.delete_team_message, writes=True, keys=_message),
    operation(team_messages.mark_team_messages_read, writes=True, keys=_team),
    operation(team_messages.get_team_message),
    operation(team_messages.list_team_messages),
    operation(team_messages.count_team_messages),
    operation(team_messages.count_unread_team_messages),
)
