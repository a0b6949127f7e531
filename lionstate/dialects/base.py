"""What a database must be able to do for lionstate, as intents rather than syntax."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from sqlalchemy import ColumnElement, Connection, Executable, Select, Table

from lionstate.dialects.appends import AppendIntents, ParentRow
from lionstate.dialects.bulk import BulkIntents
from lionstate.dialects.records import RecordIntents
from lionstate.dialects.server import ServerIntents
from lionstate.dialects.statement import Row, Statement
from lionstate.errors import StateError

__all__ = ["Capabilities", "Dialect", "ParentValue"]


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What differs between databases as plain values.

    Attributes:
        name: SQLAlchemy's name of the dialect.
        concurrent_writers: Whether several write transactions can be open at once.
        max_migratable_id_bytes: Longest message id, in UTF-8 bytes, that an item row can hold; None is any.
        json_functions: Names of SQL functions that expand JSON, for plan tests.
        strict_values: A column takes only values of its type, a text no NUL character, JSON nothing else.
    """

    name: str
    concurrent_writers: bool
    max_migratable_id_bytes: int | None
    json_functions: tuple[str, ...]
    strict_values: bool


@dataclass(frozen=True, slots=True)
class ParentValue:
    """The JSON value of a ``progressions`` row as the column holds it, and its version token.

    A text that the driver cannot decode comes as bytes, like any other value that is no text.

    Attributes:
        seal: By what the database knows the text before its closing bracket again; None where it is compared here.
    """

    value: object
    version: int | None
    seal: object | None = None


class Dialect(RecordIntents, BulkIntents, ServerIntents, AppendIntents, Protocol):
    """The seam between the rooms above and one database."""

    capabilities: Capabilities

    def insert_ignore(self, table: Table, keys: Sequence[str] = ()) -> Any:
        """Build an INSERT that leaves a row alone when ``keys`` (without them: any unique key) exist already."""
        ...

    def array_holds(self, column: ColumnElement[Any], value: str) -> ColumnElement[bool]:
        """Build the test whether a JSON column is an array with this text as an element."""
        ...

    def array_has_object(self, column: ColumnElement[Any], key: str, value: str) -> ColumnElement[bool]:
        """Build the test whether a JSON column is an array with an object that has this text under this key."""
        ...

    def array_within(self, column: ColumnElement[Any], values: Sequence[str]) -> ColumnElement[bool]:
        """Build the test whether a JSON column has no element but these texts; what is no array has none."""
        ...

    def whole_part(self, number: ColumnElement[Any]) -> ColumnElement[int]:
        """Build the whole number that is left when the fraction is cut off."""
        ...

    def lock_word(self, conn: Connection, word: str) -> None:
        """Let only one write transaction at a time past this word, until it ends."""
        ...

    def upsert(self, table: Table, keys: Sequence[str], update: Sequence[str]) -> Any:
        """Build an INSERT that overwrites the columns ``update`` when ``keys`` conflict."""
        ...

    def among(self, column: ColumnElement[str], name: str) -> ColumnElement[bool]:
        """Build ``column IN (bind)`` whose text does not depend on how many values there are."""
        ...

    def bind_ids(self, ids: Sequence[str]) -> Any:
        """The value to bind for ``among``."""
        ...

    def lock_progressions(self, conn: Connection, ids: Sequence[str]) -> dict[str, ParentRow]:
        """Lock the parent rows of these progressions in one fixed order; the missing ones are left out."""
        ...

    def lock_states(self, conn: Connection, statement: Select[Any], ids: Sequence[str]) -> list[tuple[Any, ...]]:
        """Run a query of state rows (bind ``ids``) under their row locks, in the same order."""
        ...

    def existing_progressions(self, conn: Connection, ids: Sequence[str]) -> set[str]:
        """Of these ids, those that have a ``progressions`` row; locks nothing."""
        ...

    def free_progressions(self, conn: Connection, ids: Sequence[str]) -> set[str]:
        """Of these parents, those that no other transaction has locked now; absence is not concluded from it."""
        ...

    def collection_of(self, conn: Connection, progression_id: str) -> ParentValue | None:
        """Read the JSON value of one progression, whatever stands there; None when it is missing. Locks nothing."""
        ...

    def text_behind(
        self, conn: Connection, progression_id: str, prefix: str, size_bytes: int, seal: object | None, most_bytes: int
    ) -> str | None:
        """What follows a known beginning of the JSON value, which is not itself transferred if that can be helped.

        Args:
            prefix: The beginning.
            size_bytes: Its UTF-8 length.
            seal: What ``collection_of`` gave for it.
            most_bytes: More than this behind it is not looked at.
        Returns:
            None when the value is missing, no text, begins otherwise, or is longer than that. Locks nothing.
        """
        ...

    def byte_length(self, conn: Connection, column: ColumnElement[Any]) -> ColumnElement[int]:
        """Build the length of a text column in bytes, without reading the whole value where that is possible."""
        ...

    def store_mark(self, conn: Connection) -> object | None:
        """A token that stays equal on one connection while no other connection commits to the store.

        None where rows carry versions of their own.
        """
        ...

    def touch_parent(self, conn: Connection, progression_id: str) -> None:
        """Make writers that wait for the parent row look at it again; nothing where the transaction is the lock."""
        ...

    def parent_version(self, conn: Connection, progression_id: str) -> int | None:
        """The version token of a ``progressions`` row as this transaction sees it; None where rows carry none."""
        ...

    def written_by_others(self, conn: Connection, limit: int) -> list[str]:
        """Dual progressions whose parent row is not the version on the state row, at most ``limit``.

        Empty where rows carry no versions. Cost: one pass over the dual state rows, one seek each.
        """
        ...

    def insert_items(self, conn: Connection, rows: Sequence[tuple[str, int, str]]) -> None:
        """Insert item rows (progression id, ordinal, message id); a conflict raises."""
        ...

    def insert_items_ignore(self, conn: Connection, rows: Sequence[tuple[str, int, str]]) -> None:
        """Insert item rows; a row that exists at its (progression id, ordinal) stays as it is."""
        ...

    def existing_items(self, conn: Connection, pairs: Sequence[tuple[str, str]]) -> set[tuple[str, str]]:
        """Of these (progression id, message id) pairs, those that have an item row; seeks the message index."""
        ...

    def with_items(self, conn: Connection, ids: Sequence[str]) -> set[str]:
        """Of these progression ids, those that have any item row; one seek each."""
        ...

    def advance_states(self, conn: Connection, next_ordinals: Mapping[str, int]) -> None:
        """Set ``next_ordinal``, one row each; in ``dual`` also the parent's version token.

        Not ``updated_at``, which is the state's: it is in an index, whose page every append would write as well, and
        on PostgreSQL the row's new version would need an entry in each index.
        """
        ...

    def has_own_tables(self, conn: Connection) -> bool:
        """Whether lionstate's tables are in this store; one catalogue row, no error where they are not."""
        ...

    def elements(self, array: ColumnElement[Any]) -> Select[Any]:
        """Build the query of a JSON text's elements: ``position`` from 0 and ``value`` as text."""
        ...

    def array_of(self, elements: Select[Any]) -> ColumnElement[str]:
        """Build the JSON text of the ``value`` that a query gives, in the order of its ``position``."""
        ...

    def prefer_indexes(self, conn: Connection) -> None:
        """For the rest of the transaction: no plan reads a whole table, or sorts, where an index serves the query."""
        ...

    def seek_rows(self, conn: Connection, statement: Statement, params: Mapping[str, Any]) -> list[Row]:
        """Run a query under ``prefer_indexes`` whose rows are either the whole answer or not used at all.

        As the first statement of a lone read it may have a snapshot of its own, and needs no transaction then.
        """
        ...

    def refresh_statistics(self, conn: Connection) -> None:
        """Bring the planner's statistics of items and state rows up to date, where it keeps any."""
        ...

    def in_transaction(self, conn: Connection) -> bool:
        """Ask the driver, not SQLAlchemy, whether the transaction is still open."""
        ...

    def explain(self, conn: Connection, statement: Executable, params: Mapping[str, Any]) -> str:
        """The plan of a statement as text."""
        ...

    def classify_error(self, error: BaseException) -> StateError | None:
        """The public exception for a driver's one; None if it is not a driver's."""
        ...

    def is_undecodable(self, error: BaseException) -> bool:
        """Whether a query failed because a stored text is not UTF-8; the transaction goes on."""
        ...

    def is_store_failure(self, error: BaseException) -> bool:
        """Whether the error is the store's (full, I/O, memory, corruption, lost connection), not the statement's."""
        ...

    def is_transient(self, error: BaseException) -> bool:
        """Whether running the same batch again may succeed (deadlock, serialization)."""
        ...
