"""PostgreSQL: parent rows first, in id order, then state rows, then the work (design decision 10)."""

from __future__ import annotations

import functools
import secrets
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from typing import cast as as_type

from sqlalchemy import (
    ARRAY,
    BigInteger,
    ColumnElement,
    Connection,
    Executable,
    Integer,
    Select,
    Table,
    Text,
    any_,
    bindparam,
    case,
    cast,
    func,
    literal,
    literal_column,
    select,
    text,
    update,
)
from sqlalchemy.dialects.postgresql import JSON, JSONB, aggregate_order_by
from sqlalchemy.dialects.postgresql import insert as postgresql_insert
from sqlalchemy.sql import ClauseElement

from lionstate.dialects.appends import ParentRow
from lionstate.dialects.appends_postgresql import PostgresqlAppends
from lionstate.dialects.base import Capabilities, ParentValue
from lionstate.dialects.bulk_postgresql import PostgresqlBulk
from lionstate.dialects.records_postgresql import PostgresqlRecords
from lionstate.dialects.server import SEEKS, PostgresqlServer
from lionstate.dialects.sqlstates import error_of_state
from lionstate.dialects.statement import Row, Statement
from lionstate.errors import (
    BackendUnavailableError,
    InvalidInputError,
    StateError,
)
from lionstate.schema.conversation import progressions
from lionstate.schema.own import progression_items, progression_storage_state

__all__ = ["PostgresqlDialect"]

_texts = ARRAY(Text)
_bigints = ARRAY(BigInteger)


def _among(column: ColumnElement[str], name: str) -> ColumnElement[bool]:
    return column == any_(bindparam(name, type_=_texts))


_version: ColumnElement[int] = literal_column("progressions.xmin::text::bigint")

_LOCK_PARENTS = Statement(
    select(progressions.c.id, _version)
    .where(_among(progressions.c.id, "ids"))
    .order_by(progressions.c.id.collate("C"))
    .with_for_update(key_share=True)
)
_PRESENT = Statement(select(progressions.c.id).where(_among(progressions.c.id, "ids")))
_FREE_PARENTS = Statement(
    select(progressions.c.id)
    .where(_among(progressions.c.id, "ids"))
    .order_by(progressions.c.id.collate("C"))
    .with_for_update(key_share=True, skip_locked=True)
)
# A text is known again by two hashes under seeds that were drawn when it was read, over its bytes before the closing
# bracket: the history is neither sent nor, on servers built without OpenSSL, put through a SHA-256 of 15 ms. The inner
# queries, kept apart by OFFSET 0, take the value out of its storage once.
_VALUE = text(
    'SELECT v.collection, v.version, hashtextextended(v.prefix COLLATE "C", :first), '
    'hashtextextended(v.prefix COLLATE "C", :second) FROM ('
    "SELECT w.collection, w.version, CASE WHEN substring(w.b FROM octet_length(w.b)) = convert_to(']', 'UTF8') "
    "THEN convert_from(substring(w.b FROM 1 FOR octet_length(w.b) - 1), 'UTF8') END AS prefix FROM ("
    "SELECT collection, xmin::text::bigint AS version, convert_to(rtrim(collection, :white), 'UTF8') AS b "
    "FROM progressions WHERE id = :pid OFFSET 0) AS w OFFSET 0) AS v"
).bindparams(bindparam("first", type_=BigInteger), bindparam("second", type_=BigInteger))
_TEXT_BEHIND = text(
    'SELECT CASE WHEN hashtextextended(u.prefix COLLATE "C", :first) = :first_hash '
    'AND hashtextextended(u.prefix COLLATE "C", :second) = :second_hash '
    "THEN convert_from(substring(u.b FROM :size + 1), 'UTF8') END FROM ("
    "SELECT v.b, convert_from(substring(v.b FROM 1 FOR :size), 'UTF8') AS prefix FROM ("
    "SELECT convert_to(collection, 'UTF8') AS b FROM progressions WHERE id = :pid OFFSET 0) AS v "
    # Of another length, or cut within a character: another prefix.
    "WHERE CASE WHEN octet_length(v.b) - :size BETWEEN 1 AND :most "
    "THEN get_byte(v.b, :size) NOT BETWEEN 128 AND 191 ELSE false END OFFSET 0) AS u"
).bindparams(
    *(bindparam(name, type_=BigInteger) for name in ("first", "first_hash", "second", "second_hash")),
    *(bindparam(name, type_=Integer) for name in ("size", "most")),
)
_PARENT_VERSION = select(_version).where(progressions.c.id == bindparam("pid"))
_version_of_parent = select(_version).where(progressions.c.id == progression_storage_state.c.progression_id)
_WRITTEN_BY_OTHERS = (
    select(progressions.c.id)
    .select_from(
        progressions.join(progression_storage_state, progression_storage_state.c.progression_id == progressions.c.id)
    )
    .where(progression_storage_state.c.phase == "dual")
    .where(progression_storage_state.c.last_xact != _version)
    .limit(bindparam("limit"))
)
_TOUCH = update(progressions).where(progressions.c.id == bindparam("pid")).values(created_at=progressions.c.created_at)
_given = (
    func.unnest(
        bindparam("pids", type_=_texts),
        bindparam("ordinals", type_=_bigints),
        bindparam("mids", type_=_texts),
    )
    .table_valued("pid", "ordinal", "mid")
    .render_derived()
)
_insert_items = postgresql_insert(progression_items).from_select(
    ["progression_id", "ordinal", "message_id"], select(_given.c.pid, _given.c.ordinal, _given.c.mid)
)
_INSERT_ITEMS = Statement(_insert_items)
_INSERT_ITEMS_IGNORE = Statement(_insert_items.on_conflict_do_nothing(index_elements=["progression_id", "ordinal"]))

# A LATERAL seek per pair: on tables without statistics a plain join was seen to scan the whole table.
_EXISTING_ITEMS = Statement(
    text(
        "SELECT g.pid, g.mid FROM unnest(CAST(:pids AS text[]), CAST(:mids AS text[])) AS g(pid, mid) "
        "CROSS JOIN LATERAL (SELECT 1 FROM progression_items i "
        "WHERE i.progression_id = g.pid AND i.message_id = g.mid ORDER BY i.progression_id, i.message_id LIMIT 1) "
        "AS hit"
    )
)
_WITH_ITEMS = Statement(
    text(
        "SELECT g.pid FROM unnest(CAST(:pids AS text[])) AS g(pid) "
        "CROSS JOIN LATERAL (SELECT 1 FROM progression_items i "
        "WHERE i.progression_id = g.pid ORDER BY i.progression_id, i.ordinal LIMIT 1) AS hit"
    )
)
_following = (
    func.unnest(bindparam("pids", type_=_texts), bindparam("following", type_=_bigints))
    .table_valued("pid", "following")
    .render_derived()
)
_ADVANCE = Statement(
    update(progression_storage_state)
    .where(progression_storage_state.c.progression_id == _following.c.pid)
    .values(
        next_ordinal=_following.c.following,
        # Not pg_current_xact_id(): a row that a savepoint wrote carries the id of the savepoint.
        last_xact=case(
            (progression_storage_state.c.phase == "dual", _version_of_parent.scalar_subquery()),
            else_=progression_storage_state.c.last_xact,
        ),
    )
)
# LionAGI locks a session's signals by the same key.
_LOCK_WORD = select(func.pg_advisory_xact_lock(func.hashtextextended(bindparam("word", type_=Text), 0)))
_OWN_TABLE = select(cast(func.to_regclass(progression_storage_state.name), Text))
_ANALYZE = text(f"ANALYZE {progression_items.name}, {progression_storage_state.name}")

# The transaction's own settings, like SET LOCAL, which work behind a transaction pooler too. Without a sort the key of
# the order is the only one left: with statistics from before a progression grew, the message index and a sort of all
# its rows were seen to be chosen for a page. Without a copy kept in memory or hashed a join seeks each row: with
# statistics from when there were few messages, all of them were seen to be read for a page.
_PREFER_INDEXES = text(
    "SELECT set_config('enable_seqscan', 'off', true), set_config('enable_sort', 'off', true),"
    " set_config('enable_material', 'off', true), set_config('enable_hashjoin', 'off', true)"
)

_JSON_WHITESPACE = " \t\n\r"


class _Seal(NamedTuple):
    """Two seeds and the hashes of a text under them."""

    first: int
    first_hash: int
    second: int
    second_hash: int


@functools.lru_cache(maxsize=16)
def _locking(statement: Select[Any]) -> Statement:
    """A query of state rows under their row locks, in one order; made once for each query."""
    return Statement(statement.order_by(progression_storage_state.c.progression_id.collate("C")).with_for_update())


def _sqlstate(error: BaseException) -> str:
    for found in (getattr(error, "orig", None), error):
        for name in ("sqlstate", "pgcode"):
            value = getattr(found, name, None)
            if isinstance(value, str):
                return value
    return ""


def _jsonb(column: ColumnElement[Any]) -> ColumnElement[Any]:
    """A JSON column in the form that has operators; NULL where that form has none, for an escaped NUL."""
    return case((func.strpos(cast(column, Text), "\\u0000") == 0, cast(column, JSONB)))


class PostgresqlDialect(PostgresqlRecords, PostgresqlBulk, PostgresqlServer, PostgresqlAppends):
    """The PostgreSQL side of the seam; see ``Dialect``."""

    capabilities = Capabilities(
        name="postgresql",
        concurrent_writers=True,
        max_migratable_id_bytes=2_000,
        json_functions=("jsonb_array_elements", "json_array_elements", "jsonb_array_length"),
        strict_values=True,
    )

    def insert_ignore(self, table: Table, keys: Sequence[str] = ()) -> Any:
        return postgresql_insert(table).on_conflict_do_nothing(index_elements=list(keys) or None)

    def array_holds(self, column: ColumnElement[Any], value: str) -> ColumnElement[bool]:
        return _jsonb(column).bool_op("@>")(func.jsonb_build_array(cast(value, Text)))

    def array_has_object(self, column: ColumnElement[Any], key: str, value: str) -> ColumnElement[bool]:
        wanted = func.jsonb_build_array(func.jsonb_build_object(cast(key, Text), cast(value, Text)))
        return func.coalesce(_jsonb(column).bool_op("@>")(wanted), False)

    def array_within(self, column: ColumnElement[Any], values: Sequence[str]) -> ColumnElement[bool]:
        stored = _jsonb(column)
        within = stored.bool_op("<@")(literal(list(values), JSONB))
        return case((func.jsonb_typeof(stored) == "array", within), else_=True)

    def whole_part(self, number: ColumnElement[Any]) -> ColumnElement[int]:
        return cast(func.trunc(number), BigInteger)

    def lock_word(self, conn: Connection, word: str) -> None:
        conn.execute(_LOCK_WORD, {"word": word})

    def upsert(self, table: Table, keys: Sequence[str], update: Sequence[str]) -> Any:
        statement = postgresql_insert(table)
        return statement.on_conflict_do_update(
            index_elements=list(keys), set_={name: statement.excluded[name] for name in update}
        )

    def among(self, column: ColumnElement[str], name: str) -> ColumnElement[bool]:
        return _among(column, name)

    def bind_ids(self, ids: Sequence[str]) -> Any:
        return list(ids)

    def lock_progressions(self, conn: Connection, ids: Sequence[str]) -> dict[str, ParentRow]:
        return {row[0]: ParentRow(row[0], row[1]) for row in _LOCK_PARENTS.rows(conn, {"ids": list(ids)})}

    def lock_states(self, conn: Connection, statement: Select[Any], ids: Sequence[str]) -> list[tuple[Any, ...]]:
        return _locking(statement).rows(conn, {"ids": list(ids)})

    def existing_progressions(self, conn: Connection, ids: Sequence[str]) -> set[str]:
        return {row[0] for row in _PRESENT.rows(conn, {"ids": list(ids)})}

    def free_progressions(self, conn: Connection, ids: Sequence[str]) -> set[str]:
        return {row[0] for row in _FREE_PARENTS.rows(conn, {"ids": list(ids)})}

    def collection_of(self, conn: Connection, progression_id: str) -> ParentValue | None:
        first, second = secrets.randbits(63), secrets.randbits(63)
        values = {"pid": progression_id, "first": first, "second": second, "white": _JSON_WHITESPACE}
        row = conn.execute(_VALUE, values).first()
        if row is None:
            return None
        seal = None if row[2] is None else _Seal(first, row[2], second, row[3])
        return ParentValue(row[0], row[1], seal)

    def text_behind(
        self, conn: Connection, progression_id: str, prefix: str, size_bytes: int, seal: object | None, most_bytes: int
    ) -> str | None:
        if not isinstance(seal, _Seal):
            return None
        values = {**seal._asdict(), "pid": progression_id, "size": size_bytes, "most": most_bytes}
        found: str | None = conn.execute(_TEXT_BEHIND, values).scalar()
        return found

    def byte_length(self, conn: Connection, column: ColumnElement[Any]) -> ColumnElement[int]:
        return func.octet_length(column)

    def store_mark(self, conn: Connection) -> object | None:
        return None

    def touch_parent(self, conn: Connection, progression_id: str) -> None:
        conn.execute(_TOUCH, {"pid": progression_id})

    def parent_version(self, conn: Connection, progression_id: str) -> int | None:
        found: int | None = conn.execute(_PARENT_VERSION, {"pid": progression_id}).scalar_one_or_none()
        return found

    def written_by_others(self, conn: Connection, limit: int) -> list[str]:
        return list(conn.execute(_WRITTEN_BY_OTHERS, {"limit": limit}).scalars())

    def insert_items(self, conn: Connection, rows: Sequence[tuple[str, int, str]]) -> None:
        self._insert(conn, _INSERT_ITEMS, rows)

    def insert_items_ignore(self, conn: Connection, rows: Sequence[tuple[str, int, str]]) -> None:
        self._insert(conn, _INSERT_ITEMS_IGNORE, rows)

    @staticmethod
    def _insert(conn: Connection, statement: Statement, rows: Sequence[tuple[str, int, str]]) -> None:
        if rows:
            pids, ordinals, mids = zip(*rows, strict=True)
            statement.run(conn, {"pids": pids, "ordinals": ordinals, "mids": mids})

    def existing_items(self, conn: Connection, pairs: Sequence[tuple[str, str]]) -> set[tuple[str, str]]:
        if not pairs:
            return set()
        pids, mids = zip(*pairs, strict=True)
        return {(row[0], row[1]) for row in _EXISTING_ITEMS.rows(conn, {"pids": pids, "mids": mids})}

    def with_items(self, conn: Connection, ids: Sequence[str]) -> set[str]:
        return {row[0] for row in _WITH_ITEMS.rows(conn, {"pids": list(ids)})} if ids else set()

    def advance_states(self, conn: Connection, next_ordinals: Mapping[str, int]) -> None:
        if next_ordinals:
            _ADVANCE.run(conn, {"pids": list(next_ordinals), "following": list(next_ordinals.values())})

    def has_own_tables(self, conn: Connection) -> bool:
        return conn.execute(_OWN_TABLE).scalar_one() is not None

    def elements(self, array: ColumnElement[Any]) -> Select[Any]:
        expanded = func.json_array_elements_text(cast(array, JSON)).table_valued("value", with_ordinality="position")
        found = expanded.render_derived()
        return select((found.c.position - 1).label("position"), found.c.value.label("value"))

    def array_of(self, elements: Select[Any]) -> ColumnElement[str]:
        found = elements.subquery()
        array = func.json_agg(aggregate_order_by(found.c.value, found.c.position))
        return select(func.coalesce(cast(array, Text), "[]")).scalar_subquery()

    def prefer_indexes(self, conn: Connection) -> None:
        conn.execute(_PREFER_INDEXES)

    def seek_rows(self, conn: Connection, statement: Statement, params: Mapping[str, Any]) -> list[Row]:
        if not conn.in_transaction() and SEEKS in conn.info:
            return statement.rows_alone(conn, params)
        self.prefer_indexes(conn)
        return statement.rows(conn, params)

    def refresh_statistics(self, conn: Connection) -> None:
        conn.execute(_ANALYZE)

    def in_transaction(self, conn: Connection) -> bool:
        driver: Any = conn.connection.dbapi_connection
        raw = getattr(driver, "driver_connection", None)
        # The adapter begins with the first statement: where none was sent, none can be lost.
        begun = getattr(driver, "_transaction", driver) is not None
        return bool(raw is not None and not raw.is_closed() and (raw.is_in_transaction() or not begun))

    def explain(self, conn: Connection, statement: Executable, params: Mapping[str, Any]) -> str:
        compiled: Any = as_type(ClauseElement, statement).compile(dialect=conn.dialect)
        values = tuple(compiled.construct_params(dict(params))[name] for name in compiled.positiontup)
        return "\n".join(str(row[0]) for row in conn.exec_driver_sql(f"EXPLAIN {compiled}", values))

    def classify_error(self, error: BaseException) -> StateError | None:
        driver = getattr(error, "orig", None) or error
        if isinstance(driver, StateError):
            return driver
        module = type(error).__module__.split(".")[0]
        state = _sqlstate(error)
        if not state:
            if isinstance(driver, (OSError, EOFError, TimeoutError)) or "ConnectionDoesNotExist" in str(driver):
                return BackendUnavailableError(f"the database cannot be reached: {type(driver).__name__}")
            if module not in ("sqlalchemy", "asyncpg"):
                return None
            told = f"{type(driver).__name__}: {driver}"  # InternalClientError: it died within a message
            if "InternalClientError" in told or ("InterfaceError" in told and "closed" in told):
                return BackendUnavailableError("the connection to the database was lost")
            return InvalidInputError(f"the database cannot store a value: {type(driver).__name__}")
        return error_of_state(state)

    def is_undecodable(self, error: BaseException) -> bool:
        # The server takes no such text in.
        return False

    def is_store_failure(self, error: BaseException) -> bool:
        return isinstance(self.classify_error(error), BackendUnavailableError)

    def is_transient(self, error: BaseException) -> bool:
        # A cached statement whose plan a schema change made invalid is prepared anew the next time.
        stale = "InvalidCachedStatement" in type(getattr(error, "orig", None) or error).__name__
        return stale or _sqlstate(error) in ("40001", "40P01")
