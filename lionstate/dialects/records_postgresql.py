"""PostgreSQL's side of ``RecordIntents``: one statement for all rows, handed over as arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import (
    ARRAY,
    JSON,
    ColumnElement,
    Connection,
    Double,
    Integer,
    LargeBinary,
    Table,
    Text,
    any_,
    bindparam,
    cast,
    func,
    select,
    text,
    update,
)
from sqlalchemy.dialects.postgresql import insert as postgresql_insert
from sqlalchemy.exc import DBAPIError

from lionstate.dialects.records import MESSAGE_COLUMNS
from lionstate.dialects.statement import Statement
from lionstate.schema.conversation import branches, messages, sessions

__all__ = ["PostgresqlRecords"]

_TYPES: Mapping[str, Any] = {"created_at": Double(), "embedding": LargeBinary(), "lion_class": Integer()}
_JSON = ("node_metadata", "content")


def _arrays(**types: Any) -> Any:
    """A table of the given columns, made of one bound array each."""
    binds = [bindparam(name, type_=ARRAY(kind)) for name, kind in types.items()]
    return func.unnest(*binds).table_valued(*types).render_derived()


_rows = _arrays(**{name: _TYPES.get(name, Text()) for name in MESSAGE_COLUMNS})
_values = [cast(_rows.c[name], JSON) if name in _JSON else _rows.c[name] for name in MESSAGE_COLUMNS]
_insert = postgresql_insert(messages).from_select(list(MESSAGE_COLUMNS), select(*_values))
_UPSERT_MESSAGES = Statement(
    _insert.on_conflict_do_update(
        index_elements=["id"],
        set_={name: _insert.excluded[name] for name in MESSAGE_COLUMNS if name not in ("id", "created_at")},
    )
)

# `= ANY` beside the join: on tables without statistics the join alone was seen to scan them whole.
_activity = _arrays(ids=Text(), ats=Double())
_TOUCH_SESSIONS = Statement(
    update(sessions)
    .where(sessions.c.id == _activity.c.ids, sessions.c.id == any_(bindparam("ids", type_=ARRAY(Text))))
    .values(
        last_message_at=func.greatest(sessions.c.last_message_at, _activity.c.ats),
        updated_at=func.greatest(sessions.c.updated_at, _activity.c.ats),
    )
)
_system = _arrays(ids=Text(), mids=Text())
_SET_SYSTEM_MESSAGES = Statement(
    update(branches)
    .where(branches.c.id == _system.c.ids, branches.c.id == any_(bindparam("ids", type_=ARRAY(Text))))
    .values(system_msg_id=_system.c.mids)
)
_HELD = text(
    "SELECT DISTINCT e.value FROM progressions p"
    " CROSS JOIN LATERAL json_array_elements_text(CAST(p.collection AS json)) AS e(value)"
    " WHERE p.id = ANY(CAST(:pids AS text[])) AND e.value = ANY(CAST(:mids AS text[]))"
)
# What a text that is no JSON array raises: a malformed or untranslatable text, a value that is no array.
_NOT_READABLE = ("22P02", "22P05", "22023", "54001")

_DATABASE_SIZE = select(func.pg_database_size(func.current_database()))
# The table itself holds nothing where an operator has partitioned it.
_ITEMS_SIZE = text(
    "SELECT coalesce(sum(pg_total_relation_size(t.relid)), pg_total_relation_size(to_regclass('progression_items')))"
    " FROM pg_partition_tree(to_regclass('progression_items')) AS t WHERE t.isleaf"
)


_CLOCK = text("SELECT extract(epoch FROM pg_catalog.clock_timestamp())::float8")


class PostgresqlRecords:
    """See ``RecordIntents``."""

    def upsert_messages(self, conn: Connection, rows: Sequence[tuple[Any, ...]]) -> None:
        if rows:
            columns = map(list, zip(*rows, strict=True))
            _UPSERT_MESSAGES.run(conn, dict(zip(MESSAGE_COLUMNS, columns, strict=True)))

    def touch_sessions(self, conn: Connection, activity: Mapping[str, float]) -> None:
        if activity:
            ids = sorted(activity)
            _TOUCH_SESSIONS.run(conn, {"ids": ids, "ats": [activity[found] for found in ids]})

    def set_system_messages(self, conn: Connection, messages: Mapping[str, str]) -> None:
        if messages:
            ids = sorted(messages)
            _SET_SYSTEM_MESSAGES.run(conn, {"ids": ids, "mids": [messages[found] for found in ids]})

    def clock(self, conn: Connection) -> float:
        return float(conn.execute(_CLOCK).scalar_one())

    def store_bytes(self, conn: Connection) -> int:
        found: int = conn.execute(_DATABASE_SIZE).scalar_one()
        return found

    def used_bytes(self, conn: Connection) -> int:
        return int(conn.execute(_ITEMS_SIZE).scalar_one() or 0)

    def text_holds(self, column: ColumnElement[Any], part: str) -> ColumnElement[bool]:
        return func.strpos(cast(column, Text), part) > 0

    def lock_tables(self, conn: Connection, tables: Sequence[Table]) -> None:
        names = ", ".join(conn.dialect.identifier_preparer.format_table(table) for table in tables)
        # Also against those who only lock rows to change them later.
        conn.execute(text(f"LOCK TABLE {names} IN EXCLUSIVE MODE"))

    def held_in_collections(
        self, conn: Connection, progression_ids: Sequence[str], message_ids: Sequence[str]
    ) -> set[str] | None:
        savepoint = conn.begin_nested()
        try:
            found = conn.execute(_HELD, {"pids": list(progression_ids), "mids": list(message_ids)})
            held = set(found.scalars())
        except DBAPIError as error:
            if getattr(error.orig, "sqlstate", None) not in _NOT_READABLE:
                raise
            savepoint.rollback()
            return None
        savepoint.commit()
        return held
