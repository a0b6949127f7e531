"""Teams and their members.

Contract: ADR-0055 D1; reference §2.2 (LionAGI has the tables and no methods).
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Unpack

from sqlalchemy import Connection

from lionstate.engine import Refused
from lionstate.errors import InvalidInputError
from lionstate.records.arguments import optional, page_limit, page_offset, row_of, saying, takes
from lionstate.records.rows import (
    all_rows,
    count_rows,
    delete_rows,
    get_row,
    insert_ignore_row,
    newest_first,
    page,
)
from lionstate.records.schemas import ANY, described, list_of, merged, nullable, schema_of
from lionstate.records.shows import status_of
from lionstate.records.status import StatusReason, change_record, record_changes
from lionstate.records.values import CheckedRow, check_text
from lionstate.schema.execution import teams
from lionstate.schema.types import RawJson

__all__ = [
    "TeamChanges",
    "count_teams",
    "create_team",
    "delete_team",
    "get_team",
    "list_teams",
    "update_team",
]


class TeamChanges(StatusReason, total=False):
    """What ``update_team`` may change; a status takes its reason along, ``member_count`` follows ``members``."""

    name: str
    members: Sequence[Any]
    node_metadata: Mapping[str, Any] | None
    status: str
    updated_at: float


_COLUMNS = TeamChanges.__annotations__.keys() - StatusReason.__annotations__.keys()
_row = row_of(teams, _COLUMNS | {"id", "created_at"}, ("id", "name"))


def _members(value: object) -> list[Any]:
    if not isinstance(value, (list, tuple)):
        raise InvalidInputError("members must be a list")
    return list(value)


@described(merged(schema_of(_row) or {}, {"properties": {"members": nullable(list_of(ANY))}}))
def _team(name: str, value: Any) -> CheckedRow:
    if isinstance(value, CheckedRow):
        return value
    row: CheckedRow = _row(name, value)
    if "members" in row:
        row["member_count"] = len(_members(value["members"]))
    return row


@saying({"members": list_of(ANY), "member_count": {"not": {}}})
def _count_members(params: dict[str, Any]) -> dict[str, Any]:
    members = params.get("members")
    if isinstance(members, RawJson):
        return params
    if "member_count" in params:
        raise InvalidInputError("member_count follows members")
    return params if "members" not in params else {**params, "member_count": len(_members(members))}


@takes(status_of("team"), team=_team)
def create_team(conn: Connection, /, team: Mapping[str, Any]) -> None:
    """Insert a team; an id that exists stays as it is."""
    now = time.time()
    insert_ignore_row(conn, teams, {"created_at": now, "updated_at": now, **team})


@takes(team_id=check_text)
def get_team(conn: Connection, /, team_id: str) -> dict[str, Any] | None:
    """The row or None."""
    return get_row(conn, teams, id=team_id)


_filters = {name: optional(check_text) for name in ("name", "status")}


@takes(**_filters, limit=page_limit, offset=page_offset)
def list_teams(
    conn: Connection, /, *, name: str | None = None, status: str | None = None, limit: int = 100, offset: int = 0
) -> list[dict[str, Any]]:
    """A page of teams, last changed first."""
    return all_rows(conn, page(newest_first(teams, "updated_at", name=name, status=status), limit, offset))


@takes(**_filters)
def count_teams(conn: Connection, /, *, name: str | None = None, status: str | None = None) -> int:
    """How many teams match."""
    return count_rows(conn, teams, name=name, status=status)


@takes(_count_members, record_changes("team", "team_id", _COLUMNS | {"member_count"}), team_id=check_text)
def update_team(conn: Connection, /, team_id: str, **changes: Unpack[TeamChanges]) -> Refused | None:
    """Change columns; a status goes through ``update_status``."""
    return change_record(conn, "team", team_id, changes)


@takes(team_id=check_text)
def delete_team(conn: Connection, /, team_id: str) -> bool:
    """Remove a team and its messages; False if it is missing."""
    return bool(delete_rows(conn, teams, id=team_id))
