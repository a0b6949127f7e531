"""SQLite's side of ``RecordIntents``: one compiled statement, run once per row on the driver."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, bindparam, cast, func, text, update
from sqlalchemy.dialects.sqlite import insert as sqlite_insert
from sqlalchemy.types import Text, UserDefinedType

from lionstate.dialects.records import MESSAGE_COLUMNS
from lionstate.dialects.statement import Statement
from lionstate.schema.conversation import branches, messages, sessions

__all__ = ["SqliteRecords"]


class _AsGiven(UserDefinedType[Any]):
    """A value that is in its stored form already: the column's type would encode JSON once more."""

    cache_ok = True


_insert = sqlite_insert(messages).values({name: bindparam(name, type_=_AsGiven()) for name in MESSAGE_COLUMNS})
_UPSERT_MESSAGE = Statement(
    _insert.on_conflict_do_update(
        index_elements=["id"],
        set_={name: _insert.excluded[name] for name in MESSAGE_COLUMNS if name not in ("id", "created_at")},
    )
)
_at = bindparam("at", type_=_AsGiven())
_TOUCH_SESSION = Statement(
    update(sessions)
    .where(sessions.c.id == bindparam("session"))
    .values(
        last_message_at=func.max(func.coalesce(sessions.c.last_message_at, _at), _at),
        updated_at=func.max(sessions.c.updated_at, _at),
    )
)
_SET_SYSTEM_MESSAGE = Statement(
    update(branches).where(branches.c.id == bindparam("branch")).values(system_msg_id=bindparam("message"))
)

_PAGE_COUNT, _PAGE_SIZE = text("PRAGMA page_count"), text("PRAGMA page_size")


class SqliteRecords:
    """See ``RecordIntents``."""

    def upsert_messages(self, conn: Connection, rows: Sequence[tuple[Any, ...]]) -> None:
        _UPSERT_MESSAGE.each(conn, rows)

    def touch_sessions(self, conn: Connection, activity: Mapping[str, float]) -> None:
        _TOUCH_SESSION.many(conn, [{"session": session, "at": at} for session, at in activity.items()])

    def set_system_messages(self, conn: Connection, messages: Mapping[str, str]) -> None:
        _SET_SYSTEM_MESSAGE.many(conn, [{"branch": branch, "message": mid} for branch, mid in messages.items()])

    def store_bytes(self, conn: Connection) -> int:
        pages: int = conn.execute(_PAGE_COUNT).scalar_one()
        size: int = conn.execute(_PAGE_SIZE).scalar_one()
        return pages * size

    def text_holds(self, column: ColumnElement[Any], part: str) -> ColumnElement[bool]:
        return func.instr(cast(column, Text), part) > 0
