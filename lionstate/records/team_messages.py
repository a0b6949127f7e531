"""Messages between the members of a team, and who has read them.

Contract: ADR-0055 D1; reference §2.2 (LionAGI has the table and no methods).
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict, Unpack

from sqlalchemy import ColumnElement, Connection, bindparam, func, literal, not_, or_, select, update

from lionstate.dialects import dialect_of
from lionstate.errors import InvalidInputError
from lionstate.records.arguments import changes_of, optional, page_limit, page_offset, row_of, takes, texts
from lionstate.records.rows import (
    all_rows,
    count_rows,
    delete_rows,
    filtered,
    get_row,
    insert_ignore_row,
    page,
    update_rows,
)
from lionstate.records.schemas import described, list_of
from lionstate.records.values import check_text
from lionstate.schema.execution import team_messages

__all__ = [
    "TeamMessageChanges",
    "count_team_messages",
    "count_unread_team_messages",
    "create_team_message",
    "delete_team_message",
    "get_team_message",
    "list_team_messages",
    "mark_team_messages_read",
    "update_team_message",
]

EVERYBODY = "all"
_READERS_AT_ONCE = 100
_MARKED_AT_ONCE = 1_000
_SET_READ_BY = (
    update(team_messages)
    .where(team_messages.c.id == bindparam("message"))
    .values(read_by=bindparam("names", type_=team_messages.c.read_by.type))
)


class TeamMessageChanges(TypedDict, total=False):
    """What ``update_team_message`` may change."""

    content: str
    summary: str | None
    session_id: str | None


_WRITABLE = TeamMessageChanges.__annotations__.keys()
_COLUMNS = _WRITABLE | {"id", "team_id", "created_at", "sender", "recipient"}


_READER = {"type": "string", "pattern": r"^[^\u0000,]+$"}


@described(_READER)
def _reader(name: str, value: object) -> str:
    """One member's name: the separator of recipients cannot be part of it."""
    found = check_text(name, value)
    if not found or "," in found:
        raise InvalidInputError(f"{name} must be one name without a comma")
    return found


@takes(message=row_of(team_messages, _COLUMNS, ("id", "team_id", "sender", "content")))
def create_team_message(conn: Connection, /, message: Mapping[str, Any]) -> None:
    """Insert a message that nobody has read; an id that exists stays as it is."""
    insert_ignore_row(conn, team_messages, {"created_at": time.time(), **message})


@takes(message_id=check_text)
def get_team_message(conn: Connection, /, message_id: str) -> dict[str, Any] | None:
    """The row or None."""
    return get_row(conn, team_messages, id=message_id)


def _addressed(conn: Connection, reader: str) -> ColumnElement[bool]:
    """Messages to everybody or to a list of names that holds the reader's."""
    names = literal(",") + func.replace(team_messages.c.recipient, ", ", ",") + ","
    return or_(team_messages.c.recipient == EVERYBODY, dialect_of(conn).text_holds(names, f",{reader},"))


def _unread(conn: Connection, reader: str) -> list[ColumnElement[bool]]:
    return [
        _addressed(conn, reader),
        team_messages.c.sender != reader,
        not_(dialect_of(conn).array_holds(team_messages.c.read_by, reader)),
    ]


_filters = {"sender": optional(check_text), "recipient": optional(_reader), "unread_by": optional(_reader)}


def _conditions(conn: Connection, recipient: str | None, unread_by: str | None) -> list[ColumnElement[bool]]:
    addressed = [] if recipient is None else [_addressed(conn, recipient)]
    return addressed + ([] if unread_by is None else _unread(conn, unread_by))


@takes(team_id=check_text, **_filters, limit=page_limit, offset=page_offset)
def list_team_messages(
    conn: Connection,
    /,
    team_id: str,
    *,
    sender: str | None = None,
    recipient: str | None = None,
    unread_by: str | None = None,
    limit: int = 100,
    offset: int = 0,
) -> list[dict[str, Any]]:
    """A page of a team's messages, oldest first."""
    order = (team_messages.c.created_at, team_messages.c.id)
    found = filtered(select(team_messages), team_messages, team_id=team_id, sender=sender).order_by(*order)
    return all_rows(conn, page(found.where(*_conditions(conn, recipient, unread_by)), limit, offset))


@takes(team_id=check_text, **_filters)
def count_team_messages(
    conn: Connection,
    /,
    team_id: str,
    *,
    sender: str | None = None,
    recipient: str | None = None,
    unread_by: str | None = None,
) -> int:
    """How many messages ``list_team_messages`` would page through."""
    conditions = _conditions(conn, recipient, unread_by)
    return count_rows(conn, team_messages, *conditions, team_id=team_id, sender=sender)


@described(list_of(_READER, _READERS_AT_ONCE))
def _readers(name: str, value: object) -> list[str]:
    readers = texts(name, value)
    if len(readers) > _READERS_AT_ONCE:
        raise InvalidInputError(f"{name} holds more than {_READERS_AT_ONCE} names")
    return [_reader(name, reader) for reader in readers]


@takes(team_id=check_text, readers=_readers)
def count_unread_team_messages(conn: Connection, /, team_id: str, readers: Sequence[str]) -> dict[str, int]:
    """How many messages each reader has not read."""
    counts = {reader: func.count().filter(*_unread(conn, reader)) for reader in readers}
    if not counts:
        return {}
    statement = select(*counts.values()).where(team_messages.c.team_id == team_id)
    return dict(zip(counts, conn.execute(statement).one(), strict=True))


@takes(team_id=check_text, reader=_reader, message_ids=optional(texts))
def mark_team_messages_read(
    conn: Connection, /, team_id: str, reader: str, message_ids: Sequence[str] | None = None
) -> int:
    """Add a reader to ``read_by``, kept sorted, of the messages that were unread; how many they were."""
    dialect = dialect_of(conn)
    found = select(team_messages.c.id, team_messages.c.read_by).where(
        team_messages.c.team_id == team_id, *_unread(conn, reader)
    )
    if message_ids is not None:
        found = found.where(dialect.among(team_messages.c.id, "ids")).params(ids=dialect.bind_ids(message_ids))
    rows = all_rows(conn, found.order_by(team_messages.c.id).limit(_MARKED_AT_ONCE).with_for_update(key_share=True))
    if rows:
        conn.execute(_SET_READ_BY, [{"message": row["id"], "names": _with(row["read_by"], reader)} for row in rows])
    return len(rows)


def _with(read_by: object, reader: str) -> list[Any]:
    names = read_by if isinstance(read_by, list) else []
    return [
        *(name for name in names if not isinstance(name, str)),
        *sorted({reader, *(name for name in names if isinstance(name, str))}),
    ]


@takes(changes_of(team_messages, _WRITABLE, {"message_id"}), message_id=check_text)
def update_team_message(conn: Connection, /, message_id: str, **changes: Unpack[TeamMessageChanges]) -> bool:
    """Change columns; False if the message is missing or nothing is given."""
    return bool(changes) and bool(update_rows(conn, team_messages, {"id": message_id}, changes))


@takes(message_id=check_text)
def delete_team_message(conn: Connection, /, message_id: str) -> bool:
    """Remove a message; False if it is missing."""
    return bool(delete_rows(conn, team_messages, id=message_id))
