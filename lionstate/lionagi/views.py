"""LionAGI's own statements, made to see a progression where its authority is instead of in its JSON column.

Its prune, its absorption of imported sessions and Studio's pages expand ``progressions.collection`` inside large
statements. They run as they are; only the expression that names the column is exchanged, for one that gives the same
JSON text from the rows. Which texts those are is pinned (`fingerprints`).
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from sqlalchemy import Text, case, func, literal, literal_column, select, text
from sqlalchemy.engine import Dialect as Compiler
from sqlalchemy.sql import ColumnElement, TextClause

from lionstate.dialects import Dialect, dialect_named
from lionstate.lionagi.connection import Absent, has_tables, run_on_driver
from lionstate.schema.own import progression_items as items
from lionstate.schema.own import progression_storage_state as states

__all__ = ["AsyncConnectionView", "DriverView", "View", "grafted_delete", "grafted_read"]

Rules: TypeAlias = Mapping[str, str]

_READ: Final = "read"
_DELETE: Final = "delete"
# Ids that only the JSON names stand behind all rows.
_BEHIND: Final = 2**40


class _Row:
    """A row of ``progressions`` under the name that a statement gives it, and its two representations."""

    def __init__(self, name: str, dialect: Dialect) -> None:
        self._dialect = dialect
        self._id: ColumnElement[str] = literal_column(f"{name}.id", Text)
        self.collection: ColumnElement[str] = literal_column(f"{name}.collection", Text)

    def state(self, name: str) -> ColumnElement[Any]:
        """A column of the state row; NULL without one."""
        return select(states.c[name]).where(states.c.progression_id == self._id).scalar_subquery()

    def _rows(self) -> Any:
        columns = items.c.ordinal.label("position"), items.c.message_id.label("value")
        return select(*columns).where(items.c.progression_id == self._id)

    def shown(self) -> ColumnElement[str]:
        """What a reader is shown: items, JSON, or in compat read the frozen prefix and the rows behind it.

        A progression with no trustworthy representation is shown empty. The row's own switch counts, which a block
        sets; the operator's global one changes the source and not what is read.
        """
        frozen = self.state("frozen_count")
        prefix = self._dialect.elements(self.collection).subquery()
        kept = select(prefix.c.position, prefix.c.value).where(prefix.c.position < frozen)
        both = _both(kept, self._rows().where(items.c.ordinal >= frozen))
        authority = self.state("authority")
        return case(
            (authority == "none", literal("[]")),
            (authority != "items", self.collection),
            (self.state("compat_read") == 1, self._dialect.array_of(both)),
            (authority == "items", self._dialect.array_of(self._rows())),
            else_=self.collection,
        )

    def counted(self) -> ColumnElement[int]:
        """The length of what is shown, without making it where the rows can be counted."""
        of_rows = select(func.count()).where(items.c.progression_id == self._id).scalar_subquery()
        authority = self.state("authority")
        return case(
            (authority == "none", literal(0)),
            (authority == "items", of_rows),
            else_=func.json_array_length(self.collection),
        )

    def held(self, *, once: bool = False) -> ColumnElement[str]:
        """Every id that either representation names, once the JSON is not the authority: a delete spares them all.

        Args:
            once: In the order of the rows, then what only the JSON names; else an id may come twice.
        """
        elements = self._dialect.elements(self.collection).subquery()
        named = select((elements.c.position + _BEHIND).label("position"), elements.c.value)
        if once:
            same = items.c.progression_id == self._id, items.c.message_id == elements.c.value
            named = named.where(~select(items.c.ordinal).where(*same).correlate(elements).exists())
        return case(
            (func.coalesce(self.state("authority"), "json") == "json", self.collection),
            else_=self._dialect.array_of(_both(self._rows(), named)),
        )


def _both(first: Any, second: Any) -> Any:
    joined = first.union_all(second).subquery()
    return select(joined.c.position.label("position"), joined.c.value.label("value"))


def _text_of(expression: ColumnElement[Any], compiler: Compiler) -> str:
    return f"({expression.compile(dialect=compiler, compile_kwargs={'literal_binds': True})})"


@functools.cache
def _rules(kind: str, name: str) -> Rules:
    """What takes the place of which words, for one database."""
    dialect, compiler = dialect_named(name), _compiler(name)
    inner, outer = (_Row(alias, dialect) for alias in ("p", "progressions"))

    def sql(expression: ColumnElement[Any]) -> str:
        return _text_of(expression, compiler)

    if kind == _READ:
        return {
            "json_array_length(p.collection)": sql(inner.counted()),
            "p.collection": sql(inner.shown()),
            "SELECT collection FROM progressions": f"SELECT {sql(outer.shown())} AS collection FROM progressions",
        }
    columns = f"progressions.id, progressions.created_at, {sql(outer.held(once=True))} AS collection"
    return {
        "p.collection": sql(inner.held()),
        "progressions.collection": sql(outer.held()),
        "SELECT collection FROM progressions": f"SELECT {sql(outer.held())} AS collection FROM progressions",
        "SELECT * FROM progressions": f"SELECT {columns} FROM progressions",
    }


def _compiler(name: str) -> Compiler:
    from sqlalchemy.dialects import registry

    found: Compiler = registry.load(name)()
    return found


def _graft(kind: str, name: str, statement: str) -> str:
    rules = _rules(kind, name)
    words = "|".join(rf"(?<![\w.]){re.escape(word)}(?!\w)" for word in sorted(rules, key=len, reverse=True))
    return re.sub(words, lambda found: rules[found.group()], statement)


def grafted_read(name: str, statement: str) -> str:
    """A reading statement that sees what readers are shown; unchanged if it does not name the column."""
    return _graft(_READ, name, statement)


def grafted_delete(name: str, statement: str) -> str:
    """A deleting statement that sees everything that any representation names."""
    return _graft(_DELETE, name, statement)


class View:
    """An object with some of its methods exchanged; everything else is the original's."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class AsyncConnectionView(View):
    """SQLAlchemy's connection as a deleting function of LionAGI gets it."""

    async def execute(self, statement: Any, *args: Any, **kwargs: Any) -> Any:
        """Run a statement with the column's expression exchanged."""
        if isinstance(statement, TextClause):
            grafted = grafted_delete(self._inner.dialect.name, statement.text)
            if grafted != statement.text:
                statement = text(grafted)
        return await self._inner.execute(statement, *args, **kwargs)


class DriverView(View):
    """An aiosqlite connection as a page of Studio gets it."""

    @classmethod
    async def of(cls, db: Any) -> Any:
        """The view of a connection; the connection itself when the store has no tables of lionstate."""
        return db if isinstance(await run_on_driver(db, has_tables), Absent) else cls(db)

    def execute(self, sql: str, *args: Any, **kwargs: Any) -> Any:
        """Run a query with the column's expression exchanged; awaitable and context manager like the original's."""
        return self._inner.execute(grafted_read("sqlite", sql), *args, **kwargs)
