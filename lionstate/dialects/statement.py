"""Statements of the hot path: compiled once per dialect, executed as close to the driver as each database allows."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from sqlalchemy import Connection, Executable
from sqlalchemy.sql import ClauseElement
from sqlalchemy.util import await_only

__all__ = ["Row", "Statement", "compiled_once"]

Row: TypeAlias = tuple[Any, ...]
_Binder: TypeAlias = Callable[[Mapping[str, Any]], Sequence[Any]]


class Statement:
    """One Core statement that is run many times.

    It runs on the driver's own connection under ``conn``: a Core execution costs several times the statement itself
    on SQLite, and 90 us more than it on PostgreSQL. There the first statement of a transaction still goes through
    Core, which begins it. Only plain types belong here: result processors are not applied, bind processors are.
    """

    def __init__(self, statement: Executable) -> None:
        """Keep the statement; it is compiled at its first use on each dialect."""
        self.statement = statement
        self._compiled: dict[str, tuple[str, _Binder]] = {}

    def _compiled_for(self, conn: Connection) -> tuple[str, _Binder]:
        try:
            return self._compiled[conn.dialect.name]
        except KeyError:
            assert isinstance(self.statement, ClauseElement)
            compiled: Any = self.statement.compile(dialect=conn.dialect)
            found = self._compiled[conn.dialect.name] = (str(compiled), _binder(compiled))
            return found

    def _on_driver(self, conn: Connection) -> tuple[Any, str, _Binder]:
        sql, bind = self._compiled_for(conn)
        return conn.connection.dbapi_connection, sql, bind

    def on_driver(self, conn: Connection) -> tuple[Any, str]:
        """The driver's connection and the text that it takes, for values that are bound by position (SQLite)."""
        driver, sql, _ = self._on_driver(conn)
        return driver, sql

    def text(self, conn: Connection) -> str:
        """The text that the driver takes."""
        return self._compiled_for(conn)[0]

    def each(self, conn: Connection, rows: Sequence[Row]) -> None:
        """Run a statement once per tuple of values, which stand in the order of its placeholders (SQLite)."""
        if not rows:
            return
        driver, sql, _ = self._on_driver(conn)
        if len(rows) == 1:
            driver.execute(sql, rows[0])
        else:
            driver.executemany(sql, rows)

    def rows(self, conn: Connection, params: Mapping[str, Any] | None = None) -> list[Row]:
        """Run a query and return all of its rows as tuples."""
        driver, sql, bind = self._on_driver(conn)
        if conn.dialect.name == "sqlite":
            rows: list[Row] = driver.execute(sql, bind(params or {})).fetchall()
            return rows
        if not (raw := driver.driver_connection).is_in_transaction():
            return [tuple(row) for row in conn.execute(self.statement, params or {})]
        return list(map(tuple, await_only(raw.fetch(sql, *bind(params or {})))))

    def rows_alone(self, conn: Connection, params: Mapping[str, Any]) -> list[Row]:
        """``rows`` of a query that is its own transaction, in one round trip (PostgreSQL)."""
        driver, sql, bind = self._on_driver(conn)
        # By its text the driver knows what is prepared: in a transaction it may have been planned under other settings.
        return list(map(tuple, await_only(driver.driver_connection.fetch(f"{sql} -- alone", *bind(params)))))

    def run(self, conn: Connection, params: Mapping[str, Any] | None = None) -> int:
        """Run a statement that returns no rows; return the number of rows it matched."""
        driver, sql, bind = self._on_driver(conn)
        if conn.dialect.name == "sqlite":
            count: int = driver.execute(sql, bind(params or {})).rowcount
            return count
        if not (raw := driver.driver_connection).is_in_transaction():
            return conn.execute(self.statement, params or {}).rowcount
        # The server's word for what it did ends in the number of rows: `UPDATE 3`, `INSERT 0 3`.
        return int(await_only(raw.execute(sql, *bind(params or {}))).rpartition(" ")[2])

    def many(self, conn: Connection, rows: Sequence[Mapping[str, Any]]) -> None:
        """Run a statement once per mapping; nothing for an empty sequence."""
        if not rows:
            return
        if conn.dialect.name != "sqlite":
            conn.execute(self.statement, list(rows))
            return
        driver, sql, bind = self._on_driver(conn)
        if len(rows) == 1:
            driver.execute(sql, bind(rows[0]))
        else:
            driver.executemany(sql, map(bind, rows))


def _binder(compiled: Any) -> _Binder:
    """What makes the driver's positional arguments of named ones, as cheaply as the statement allows."""
    names = tuple(compiled.positiontup or ())
    processors = {key: process for key, process in compiled._bind_processors.items() if process}
    defaults = {key: bind.value for key, bind in compiled.binds.items() if not bind.required}
    # Values that are part of the statement (a LIMIT) stand at its end and are nobody's to override.
    fixed = [name for name in names if name in defaults and compiled.binds[name].unique]
    given = names[: len(names) - len(fixed)]
    if not processors and defaults.keys().isdisjoint(given) and given and names[len(given) :] == tuple(fixed):
        get: Callable[[Any], tuple[Any, ...]] = _picker(given)
        tail = tuple(defaults[name] for name in fixed)
        return (lambda params: get(params) + tail) if tail else get

    def bind(params: Mapping[str, Any]) -> Sequence[Any]:
        values = []
        for name in names:
            value = params[name] if name in params else defaults[name]
            process = processors.get(name)
            values.append(process(value) if process else value)
        return values

    return bind


def _picker(names: Sequence[str]) -> Callable[[Any], tuple[Any, ...]]:
    if len(names) > 1:
        return operator.itemgetter(*names)
    (name,) = names
    return lambda params: (params[name],)


_by_identity: dict[int, tuple[Executable, Statement]] = {}


def compiled_once(statement: Executable) -> Statement:
    """The ``Statement`` of a module-level Core object, found by identity (the entry keeps the object alive)."""
    found = _by_identity.get(id(statement))
    if found is None:
        found = _by_identity[id(statement)] = (statement, Statement(statement))
    return found[1]
