"""SQLite's side of ``RecordIntents``: one compiled statement, run once per row on the driver."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Table,
    bindparam,
    case,
    cast,
    func,
    not_,
    select,
    text,
    type_coerce,
    update,
)
from sqlalchemy.dialects.sqlite import insert as sqlite_insert
from sqlalchemy.types import Text, UserDefinedType

from lionstate.dialects.records import MESSAGE_COLUMNS
from lionstate.dialects.statement import Statement
from lionstate.schema.conversation import branches, messages, progressions, sessions
from lionstate.schema.types import numeric_form

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

_PAGE_COUNT, _PAGE_SIZE = Statement(text("PRAGMA page_count")), Statement(text("PRAGMA page_size"))
_FREE_PAGES = Statement(text("PRAGMA freelist_count"))


def _bound_list(name: str) -> Any:
    """The elements of a bound JSON array of texts."""
    return select(func.json_each(bindparam(name, type_=Text)).table_valued("value").c.value)


_stored = type_coerce(progressions.c.collection, Text)
_of_pids = progressions.c.id.in_(_bound_list("pids"))
# JSON that is no array is as unreadable as what is no JSON; the type is asked only of what is valid.
_is_array = case((func.json_valid(_stored) == 1, func.json_type(_stored) == "array"), else_=False)
_UNREADABLE = Statement(select(progressions.c.id).where(_of_pids, not_(_is_array)).limit(1))
_element = func.json_each(case((func.json_type(_stored) == "array", _stored), else_="[]")).table_valued("value", "type")
_HELD = Statement(
    select(_element.c.value)
    .distinct()
    .select_from(progressions, _element)
    .where(_of_pids, _element.c.type == "text", _element.c.value.in_(_bound_list("mids")))
)


class SqliteRecords:
    """See ``RecordIntents``."""

    def upsert_messages(self, conn: Connection, rows: Sequence[tuple[Any, ...]]) -> None:
        # Id and time of creation stand before metadata and content, which are JSON texts.
        given = [(*row[:2], numeric_form(row[2]), numeric_form(row[3]), *row[4:]) for row in rows]
        _UPSERT_MESSAGE.each(conn, given)

    def touch_sessions(self, conn: Connection, activity: Mapping[str, float]) -> None:
        _TOUCH_SESSION.many(conn, [{"session": session, "at": at} for session, at in activity.items()])

    def set_system_messages(self, conn: Connection, messages: Mapping[str, str]) -> None:
        _SET_SYSTEM_MESSAGE.many(conn, [{"branch": branch, "message": mid} for branch, mid in messages.items()])

    def clock(self, conn: Connection) -> float:
        """The machine's: processes of one file run on one machine."""
        return time.time()

    def store_bytes(self, conn: Connection) -> int:
        ((pages,),), ((size,),) = _PAGE_COUNT.rows(conn), _PAGE_SIZE.rows(conn)
        return int(pages * size)

    def used_bytes(self, conn: Connection) -> int:
        ((pages,),), ((free,),), ((size,),) = (pragma.rows(conn) for pragma in (_PAGE_COUNT, _FREE_PAGES, _PAGE_SIZE))
        return int((pages - free) * size)

    def text_holds(self, column: ColumnElement[Any], part: str) -> ColumnElement[bool]:
        return func.instr(cast(column, Text), part) > 0

    def lock_tables(self, conn: Connection, tables: Sequence[Table]) -> None:
        """BEGIN IMMEDIATE lets no other writer in anyway."""

    def held_in_collections(
        self, conn: Connection, progression_ids: Sequence[str], message_ids: Sequence[str]
    ) -> set[str] | None:
        bound = {"pids": json.dumps(list(progression_ids)), "mids": json.dumps(list(message_ids))}
        if _UNREADABLE.rows(conn, bound):
            return None
        return {row[0] for row in _HELD.rows(conn, bound)}
