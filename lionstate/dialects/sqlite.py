"""SQLite: the writer's BEGIN IMMEDIATE is the lock, so locking intents are plain reads."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from sqlalchemy import (
    ColumnElement,
    Connection,
    Executable,
    Integer,
    LargeBinary,
    Select,
    Table,
    and_,
    bindparam,
    case,
    exists,
    func,
    literal_column,
    not_,
    or_,
    select,
    table,
    type_coerce,
)
from sqlalchemy import cast as sql_cast
from sqlalchemy.dialects import sqlite as sqlite_dialect
from sqlalchemy.dialects.sqlite import insert as sqlite_insert
from sqlalchemy.sql import ClauseElement
from sqlalchemy.types import Text

from lionstate.dialects.appends import ParentRow
from lionstate.dialects.appends_sqlite import ADVANCE, INSERT_ITEM, SqliteAppends
from lionstate.dialects.base import Capabilities, ParentValue
from lionstate.dialects.bulk_sqlite import SqliteBulk
from lionstate.dialects.records_sqlite import SqliteRecords
from lionstate.dialects.server import NoServer
from lionstate.dialects.sqlite_words import driver_error, forget_text, said, undecodable_column
from lionstate.dialects.statement import Row, Statement, compiled_once
from lionstate.errors import (
    BackendBusyError,
    BackendError,
    BackendUnavailableError,
    ConflictError,
    DamagedTextError,
    ForeignKeyError,
    InvalidInputError,
    StateError,
    UniqueConflictError,
)
from lionstate.schema.conversation import progressions
from lionstate.schema.own import progression_items, progression_storage_state

__all__ = ["SqliteDialect"]

# Primary result codes: PERM, NOMEM, READONLY, IOERR, CORRUPT, FULL, CANTOPEN, NOLFS, NOTADB.
_STORE_FAILURES = frozenset({3, 7, 8, 10, 11, 13, 14, 22, 26})
_FULL = 13
# BUSY, LOCKED, PROTOCOL.
_BUSY = frozenset({5, 6, 15})


def _among(column: ColumnElement[str], name: str) -> ColumnElement[bool]:
    values = func.json_each(bindparam(name, type_=Text)).table_valued("value")
    return column.in_(select(values.c.value))


def _elements(column: ColumnElement[Any]) -> Any:
    """The elements of a JSON column that is an array; none of any other."""
    stored = type_coerce(column, Text)
    array = case((and_(func.json_valid(stored), func.json_type(stored) == "array"), stored), else_="[]")
    return func.json_each(array).table_valued("value", "type")


_PRESENT = Statement(select(progressions.c.id).where(_among(progressions.c.id, "ids")))
_COLLECTION = Statement(select(progressions.c.collection).where(progressions.c.id == bindparam("pid")))
_COLLECTION_BYTES = Statement(
    select(sql_cast(progressions.c.collection, LargeBinary)).where(progressions.c.id == bindparam("pid"))
)
_INSERT_ITEM_IGNORE = Statement(
    sqlite_insert(progression_items).on_conflict_do_nothing(index_elements=["progression_id", "ordinal"])
)
_ITEM_EXISTS = Statement(
    select(progression_items.c.ordinal)
    .where(progression_items.c.progression_id == bindparam("pid"))
    .where(progression_items.c.message_id == bindparam("mid"))
)
_given = func.json_each(bindparam("ids", type_=Text)).table_valued("value")
_WITH_ITEMS = Statement(
    select(_given.c.value).where(
        exists(select(1).where(progression_items.c.progression_id == _given.c.value).correlate(_given))
    )
)
_OWN_TABLE = Statement(
    select(literal_column("1"))
    .select_from(table("sqlite_master"))
    .where(literal_column("type") == "table", literal_column("name") == progression_storage_state.name)
)


# octet_length() came with this version; before it, the length in bytes costs a read of the value.
_OCTET_LENGTH_SINCE = (3, 43)


@dataclass(frozen=True, slots=True)
class _Mark:
    """A connection, kept so that its identity is not given to another one, and its ``data_version``."""

    driver: Any
    version: int


def _code(error: BaseException) -> int:
    """SQLite's primary result code; 0 for what is not an error of SQLite itself."""
    found = getattr(error, "sqlite_errorcode", 0)
    return found & 0xFF if isinstance(found, int) else 0


class SqliteDialect(SqliteRecords, SqliteBulk, NoServer, SqliteAppends):
    """The SQLite side of the seam; see ``Dialect``."""

    capabilities = Capabilities(
        name="sqlite",
        concurrent_writers=False,
        max_migratable_id_bytes=None,
        json_functions=("json_each", "json_tree", "json_array_length", "json_extract"),
        strict_values=False,
    )

    def insert_ignore(self, table: Table, keys: Sequence[str] = ()) -> Any:
        return sqlite_insert(table).on_conflict_do_nothing(index_elements=list(keys) or None)

    def array_holds(self, column: ColumnElement[Any], value: str) -> ColumnElement[bool]:
        element = _elements(column)
        return exists().where(element.c.type == "text", element.c.value == value)

    def array_has_object(self, column: ColumnElement[Any], key: str, value: str) -> ColumnElement[bool]:
        element = _elements(column)
        # An element that is no object is not JSON text here: it must not reach the function.
        member = func.json_each(case((element.c.type == "object", element.c.value), else_="{}")).table_valued(
            "key", "type", "value"
        )
        held = exists().where(member.c.key == key, member.c.type == "text", member.c.value == value)
        return exists().select_from(element).where(held.correlate(element))

    def array_within(self, column: ColumnElement[Any], values: Sequence[str]) -> ColumnElement[bool]:
        element = _elements(column)
        foreign = or_(element.c.type != "text", element.c.value.not_in(values))
        return not_(exists().select_from(element).where(foreign))

    def whole_part(self, number: ColumnElement[Any]) -> ColumnElement[int]:
        return sql_cast(number, Integer)

    def lock_word(self, conn: Connection, word: str) -> None:
        """BEGIN IMMEDIATE lets only one writer in anyway."""

    def upsert(self, table: Table, keys: Sequence[str], update: Sequence[str]) -> Any:
        statement = sqlite_insert(table)
        return statement.on_conflict_do_update(
            index_elements=list(keys), set_={name: statement.excluded[name] for name in update}
        )

    def among(self, column: ColumnElement[str], name: str) -> ColumnElement[bool]:
        return _among(column, name)

    def bind_ids(self, ids: Sequence[str]) -> Any:
        return json.dumps(list(ids))

    def lock_progressions(self, conn: Connection, ids: Sequence[str]) -> dict[str, ParentRow]:
        rows = _PRESENT.rows(conn, {"ids": self.bind_ids(ids)})
        return {row[0]: ParentRow(row[0], None) for row in rows}

    def lock_states(self, conn: Connection, statement: Select[Any], ids: Sequence[str]) -> list[tuple[Any, ...]]:
        return compiled_once(statement).rows(conn, {"ids": self.bind_ids(ids)})

    def existing_progressions(self, conn: Connection, ids: Sequence[str]) -> set[str]:
        return {row[0] for row in _PRESENT.rows(conn, {"ids": self.bind_ids(ids)})}

    def free_progressions(self, conn: Connection, ids: Sequence[str]) -> set[str]:
        return set(ids)

    def collection_of(self, conn: Connection, progression_id: str) -> ParentValue | None:
        try:
            rows = _COLLECTION.rows(conn, {"pid": progression_id})
        except Exception as error:
            if not self.is_undecodable(error):
                raise
            rows = _COLLECTION_BYTES.rows(conn, {"pid": progression_id})
        return ParentValue(rows[0][0], None) if rows else None

    def text_behind(
        self, conn: Connection, progression_id: str, prefix: str, size_bytes: int, seal: object | None, most_bytes: int
    ) -> str | None:
        # The value is in this process anyway.
        found = self.collection_of(conn, progression_id)
        if found is None or not isinstance(found.value, str) or not found.value.startswith(prefix):
            return None
        rest = found.value[len(prefix) :]
        return rest if len(rest) <= most_bytes else None

    def byte_length(self, conn: Connection, column: ColumnElement[Any]) -> ColumnElement[int]:
        library: Any = conn.dialect.dbapi
        if library.sqlite_version_info >= _OCTET_LENGTH_SINCE:
            return func.octet_length(column)
        return func.length(sql_cast(column, LargeBinary))

    def store_mark(self, conn: Connection) -> object | None:
        driver: Any = conn.connection.dbapi_connection
        return _Mark(driver, driver.execute("PRAGMA data_version").fetchone()[0])

    def touch_parent(self, conn: Connection, progression_id: str) -> None:
        return None

    def parent_version(self, conn: Connection, progression_id: str) -> int | None:
        return None

    def written_by_others(self, conn: Connection, limit: int) -> list[str]:
        return []

    def insert_items(self, conn: Connection, rows: Sequence[tuple[str, int, str]]) -> None:
        INSERT_ITEM.each(conn, rows)

    def insert_items_ignore(self, conn: Connection, rows: Sequence[tuple[str, int, str]]) -> None:
        _INSERT_ITEM_IGNORE.each(conn, rows)

    def existing_items(self, conn: Connection, pairs: Sequence[tuple[str, str]]) -> set[tuple[str, str]]:
        driver, sql = _ITEM_EXISTS.on_driver(conn)
        return {pair for pair in pairs if driver.execute(sql, pair).fetchone() is not None}

    def with_items(self, conn: Connection, ids: Sequence[str]) -> set[str]:
        return {row[0] for row in _WITH_ITEMS.rows(conn, {"ids": self.bind_ids(ids)})} if ids else set()

    def advance_states(self, conn: Connection, next_ordinals: Mapping[str, int]) -> None:
        ADVANCE.each(conn, [(following, progression) for progression, following in next_ordinals.items()])

    def has_own_tables(self, conn: Connection) -> bool:
        return bool(_OWN_TABLE.rows(conn))

    def elements(self, array: ColumnElement[Any]) -> Select[Any]:
        found = func.json_each(array).table_valued("key", "value")
        return select(found.c.key.label("position"), found.c.value.label("value"))

    def array_of(self, elements: Select[Any]) -> ColumnElement[str]:
        # An aggregate keeps the order of a subquery that it reads from.
        ordered = elements.order_by("position").subquery()
        return select(func.json_group_array(ordered.c.value)).scalar_subquery()

    def prefer_indexes(self, conn: Connection) -> None:
        """Nothing to do: the planner prefers them by rule."""

    def seek_rows(self, conn: Connection, statement: Statement, params: Mapping[str, Any]) -> list[Row]:
        return statement.rows(conn, params)

    def refresh_statistics(self, conn: Connection) -> None:
        """Nothing to do: no plan of ours depends on them."""

    def in_transaction(self, conn: Connection) -> bool:
        driver = conn.connection.dbapi_connection
        return bool(driver is not None and driver.in_transaction)

    def explain(self, conn: Connection, statement: Executable, params: Mapping[str, Any]) -> str:
        compiled: Any = cast(ClauseElement, statement).compile(
            dialect=sqlite_dialect.dialect(), compile_kwargs={"render_postcompile": True}
        )
        values = tuple(compiled.construct_params(dict(params))[name] for name in compiled.positiontup)
        rows = conn.exec_driver_sql(f"EXPLAIN QUERY PLAN {compiled}", values)
        return "\n".join(str(row[3]) for row in rows)

    def classify_error(self, error: BaseException) -> StateError | None:
        driver = driver_error(error)
        if isinstance(driver, StateError):
            return driver
        column = undecodable_column(driver)
        if column is not None:
            forget_text(error, column)
            what = f"column {column}" if column else "a column"
            return DamagedTextError(f"the stored text of {what} is not UTF-8; nothing was changed: write it anew")
        kinds = {cls.__name__ for cls in type(driver).__mro__}
        if "Error" not in kinds and type(error).__module__.split(".")[0] != "sqlalchemy":
            return None
        text = str(driver).lower()
        if "foreign key constraint" in text:
            return ForeignKeyError()
        if "unique constraint" in text:
            return UniqueConflictError()
        if "IntegrityError" in kinds:
            return ConflictError(f"the database refused the row: {said(driver)}")
        if _code(driver) in _BUSY:
            return BackendBusyError()
        if _code(driver) == _FULL:
            full = f"the disk of the store is full ({said(driver)}): make room"
            return BackendUnavailableError(full, reason="disk_full")
        if self.is_store_failure(driver) or "closed database" in text:
            return BackendUnavailableError(f"the store cannot be used: {said(driver)}")
        if kinds & {"DataError", "InterfaceError", "ProgrammingError"} or isinstance(
            driver, (ValueError, OverflowError)
        ):
            return InvalidInputError(f"the database cannot store a value: {type(driver).__name__}")
        return BackendError(f"the database failed: {said(driver)}")

    def is_undecodable(self, error: BaseException) -> bool:
        return undecodable_column(error) is not None

    def is_store_failure(self, error: BaseException) -> bool:
        found: BaseException | None = error
        while found is not None:
            driver = driver_error(found)
            if isinstance(driver, MemoryError) or _code(driver) in _STORE_FAILURES:
                return True
            # An error of the driver that was translated already keeps it as its cause.
            found = driver.__cause__ if isinstance(driver, StateError) else None
        return False

    def is_transient(self, error: BaseException) -> bool:
        return False
