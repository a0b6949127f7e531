"""Which tables and columns are copied, in which order, and how a page of one is read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, TypeAlias

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    ColumnElement,
    Connection,
    Integer,
    LargeBinary,
    Select,
    Table,
    Text,
    and_,
    bindparam,
    cast,
    func,
    inspect,
    literal,
    literal_column,
    not_,
    or_,
    select,
    tuple_,
)
from sqlalchemy.sql.ddl import sort_tables

from lionstate.dialects import Statement, dialect_of
from lionstate.errors import UnrecognizedStoreError
from lionstate.schema import OWN_TABLES, RECORD_TABLES, Json
from lionstate.schema.control import schema_meta
from lionstate.schema.own import (
    migration_control,
    migration_lease,
    progression_items,
    progression_storage_state,
    request_receipts,
    writer_batches,
)

__all__ = [
    "COPIED",
    "LASTING",
    "PAGE_BYTES",
    "PROGRESS_KEY",
    "CopiedTable",
    "Key",
    "Kind",
    "Page",
    "Reading",
    "left_out",
]

Key: TypeAlias = tuple[Any, ...]

PROGRESS_KEY: Final = "copy.progress"
PAGE_BYTES: Final = 4 * 1024 * 1024
_PAGE_ROWS: Final = 5_000

# A lease and receipts are of processes that talk to the source; metadata comes last, by itself.
_NOT_COPIED = (schema_meta, migration_lease, request_receipts, writer_batches)
# The row version is the source's own; a sighting is of programs that write the source.
_NO_COLUMNS = {progression_storage_state.name: frozenset(("last_xact",))}
_NO_KEYS = {migration_control.name: (PROGRESS_KEY, "foreign.sighted")}
# Rows are small by nature: their sizes need not be asked for.
_NARROW = frozenset((progression_items.name,))


class Kind(Enum):
    """What a column holds."""

    TEXT = "text"
    INTEGER = "integer"
    FLOAT = "float"
    JSON = "JSON"
    BYTES = "bytes"


def _kind(column: Column[Any]) -> Kind:
    if isinstance(column.type, Json):
        return Kind.JSON
    if isinstance(column.type, Text):
        return Kind.TEXT
    if isinstance(column.type, LargeBinary):
        return Kind.BYTES
    return Kind.INTEGER if isinstance(column.type, Integer) else Kind.FLOAT


@dataclass(frozen=True, slots=True)
class CopiedTable:
    """A table as it is copied.

    Attributes:
        table: The table.
        columns: The columns that are copied, in the table's order.
        kinds: What they hold.
        key: Positions of the primary key among ``columns``.
        links: Positions of references to the table itself, which are set when all of its rows are there.
        indexed: Positions of texts that an index holds.
        wide: Positions of integers of 64 bits.
    """

    table: Table
    columns: tuple[Column[Any], ...]
    kinds: tuple[Kind, ...]
    key: tuple[int, ...]
    links: tuple[int, ...]
    indexed: frozenset[int]
    wide: frozenset[int]

    @property
    def name(self) -> str:
        """The table's name."""
        return str(self.table.name)

    @property
    def names(self) -> list[str]:
        """The columns' names."""
        return [column.name for column in self.columns]

    def key_of(self, row: Sequence[Any]) -> Key:
        """The primary key of a row."""
        return tuple(row[place] for place in self.key)


def _copied(table: Table) -> CopiedTable:
    columns = tuple(column for column in table.columns if column.name not in _NO_COLUMNS.get(table.name, ()))
    links = [
        column.name for column in columns if any(reference.column.table is table for reference in column.foreign_keys)
    ]
    indexed = {column.name for index in table.indexes for column in index.columns}
    indexed |= {column.name for column in columns if column.primary_key or column.unique}

    def places(wanted: Any) -> tuple[int, ...]:
        return tuple(place for place, column in enumerate(columns) if wanted(column))

    return CopiedTable(
        table,
        columns,
        tuple(map(_kind, columns)),
        places(lambda column: column.primary_key),
        places(lambda column: column.name in links),
        frozenset(places(lambda column: column.name in indexed and _kind(column) is Kind.TEXT)),
        frozenset(places(lambda column: isinstance(column.type, BigInteger))),
    )


COPIED: Final[tuple[CopiedTable, ...]] = tuple(
    _copied(table) for table in sort_tables([*RECORD_TABLES, *OWN_TABLES]) if table not in _NOT_COPIED
)
"""Every table that is copied, referenced ones first."""

LASTING: Final = tuple(
    copied for copied in COPIED if copied.table in RECORD_TABLES or copied.table is progression_items
)
"""Those that hold what callers wrote; the others change as soon as a daemon looks after a store."""


@dataclass(frozen=True, slots=True)
class Page:
    """Rows of one table in key order, as they are stored.

    Attributes:
        rows: Values in the order of the table's ``columns``; empty at the end of the table.
        size_bytes: Size of texts and bytes that are no key.
    """

    rows: Sequence[Sequence[Any]]
    size_bytes: int


class Reading:
    """How one table is read on one database: by primary key, in pages bounded in rows and bytes.

    Text keys are walked in the database's own order, which on PostgreSQL is that of its collation: only the index
    serves a page in time that does not grow.
    """

    def __init__(self, copied: CopiedTable, conn: Connection, *, exists: bool) -> None:
        """Build the statements for the database of ``conn``; a table that does not exist there has no rows."""
        self.copied = copied
        self.exists = exists
        dialect = dialect_of(conn)
        raw = [dialect.raw_column(column) for column in copied.columns]
        keys = [copied.columns[place] for place in copied.key]
        heavy = [
            func.coalesce(dialect.byte_length(conn, raw[place]), 0)
            for place, kind in enumerate(copied.kinds)
            if kind in (Kind.TEXT, Kind.JSON, Kind.BYTES) and place not in copied.key
        ]
        size: ColumnElement[Any] = sum(heavy[1:], start=heavy[0]) if heavy else literal(0)
        excluded = _NO_KEYS.get(copied.name, ())
        kept = and_(True, *(keys[0] != name for name in excluded))
        after, last = _beyond(keys, "after"), ~_beyond(keys, "last")
        ordered = [select(*columns).where(kept).order_by(*keys) for columns in ([*keys, size], raw)]
        self._sizes = _both(ordered[0].limit(bindparam("count")), after)
        self._rows = _both(ordered[1], last, after)
        self._many = _both(ordered[1].limit(bindparam("count")), after)
        self._count = Statement(select(func.count()).select_from(copied.table).where(kept))
        self._refused = _refused(copied)

    def count(self, conn: Connection, /) -> int:
        """Rows of the table. Cost: one pass over its smallest index."""
        return int(self._count.rows(conn)[0][0]) if self.exists else 0

    def page(self, conn: Connection, /, after: Key | None) -> Page:
        """The rows behind a key: at most 5,000, and at least one but no more than about 4 MiB.

        Cost: one or two primary-key range scans.
        """
        if not self.exists:
            return Page([], 0)
        dialect_of(conn).prefer_indexes(conn)
        bounds = _named("after", after)
        if self.copied.name in _NARROW:
            rows = self._many[after is None].rows(conn, {**bounds, "count": _PAGE_ROWS})
            return Page(rows, sum(len(row[-1]) for row in rows))
        size = 0
        last: Key | None = None
        for *key, row_size in self._sizes[after is None].rows(conn, {**bounds, "count": _PAGE_ROWS}):
            if last is not None and size + row_size > PAGE_BYTES:
                break
            size, last = size + row_size, tuple(key)
        if last is None:
            return Page([], 0)
        return Page(self._rows[after is None].rows(conn, {**bounds, **_named("last", last)}), size)

    def undecodable(self, conn: Connection, /, *, after: Key | None) -> tuple[str, Key] | None:
        """The first text behind a key that is not UTF-8, by column and key; None if there is none near.

        For when ``page`` has failed. Cost: the rows of a page, column by column.
        """
        keys = [self.copied.columns[place] for place in self.copied.key]
        for column, kind in zip(self.copied.columns, self.copied.kinds, strict=True):
            if kind not in (Kind.TEXT, Kind.JSON):
                continue
            found = select(*keys, cast(column, LargeBinary)).order_by(*keys).limit(_PAGE_ROWS)
            if after is not None:
                found = found.where(_beyond(keys, "after"))
            for *key, value in Statement(found).rows(conn, _named("after", after)):
                if isinstance(value, bytes) and not _is_utf8(value):
                    return column.name, tuple(key)
        return None

    def refused(self, conn: Connection, /) -> int:
        """Rows that have no value where one is needed, or one that no row may have. Cost: one pass."""
        if not self.exists or self._refused is None:
            return 0
        return int(self._refused.rows(conn)[0][0])


def _is_utf8(value: bytes) -> bool:
    try:
        value.decode()
    except UnicodeDecodeError:
        return False
    return True


def _named(name: str, key: Key | None) -> dict[str, Any]:
    return {f"{name}{place}": value for place, value in enumerate(key or ())}


def _beyond(keys: Sequence[Column[Any]], name: str) -> ColumnElement[bool]:
    binds = [bindparam(f"{name}{place}", type_=key.type) for place, key in enumerate(keys)]
    if len(keys) == 1:
        return keys[0] > binds[0]
    return tuple_(*keys) > tuple_(*binds)


def _both(statement: Select[Any], *conditions: ColumnElement[bool]) -> dict[bool, Statement]:
    """A statement with all conditions, and (True) one without the last of them, for the first page."""
    return {first: Statement(statement.where(*conditions[: len(conditions) - first])) for first in (False, True)}


def _refused(copied: CopiedTable) -> Statement | None:
    missing: list[ColumnElement[bool]] = [column.is_(None) for column in copied.columns if not column.nullable]
    rules = [check for check in copied.table.constraints if isinstance(check, CheckConstraint)]
    checks = [not_(literal_column(f"({rule.sqltext})", Boolean)) for rule in rules]
    if not missing and not checks:
        return None
    return Statement(select(func.count()).select_from(copied.table).where(or_(*missing, *checks)))


def left_out(conn: Connection, /) -> tuple[list[str], frozenset[str]]:
    """What the source has beyond the tables and columns that are copied, and the tables it does have.

    Contract: design decision 32 (a store may carry tables and columns of others).
    """
    seen = inspect(conn)
    names = set(seen.get_table_names())
    known = {table.name for table in (*RECORD_TABLES, *OWN_TABLES)}
    found = sorted(names - known)
    for copied in COPIED:
        if copied.name in names:
            stored = {column["name"] for column in seen.get_columns(copied.name)}
            ours = {column.name for column in copied.table.columns}
            if missing := sorted(ours - stored):
                raise UnrecognizedStoreError(f"table {copied.name} has no columns {', '.join(missing)}")
            found += [f"{copied.name}.{name}" for name in sorted(stored - ours)]
    return found, frozenset(names)
