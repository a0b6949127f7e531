"""Runs lionstate's scripts inside a transaction that LionAGI opened, on LionAGI's own connection."""

from __future__ import annotations

import functools
import sqlite3
import weakref
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import aiosqlite
from sqlalchemy import Connection, create_engine
from sqlalchemy.pool import StaticPool

from lionstate.dialects import dialect_of
from lionstate.engine.transaction import translate

__all__ = ["Absent", "has_tables", "run_inside", "run_on_driver"]

R = TypeVar("R")


class Absent:
    """What takes the place of a result in a store without lionstate's tables."""


_ABSENT = Absent()

# By driver connection: SQLAlchemy's synchronous Connection around the same one. It never begins and never ends
# anything; LionAGI's does.
_twins: weakref.WeakKeyDictionary[aiosqlite.Connection, Connection] = weakref.WeakKeyDictionary()


async def run_inside(conn: Any, script: Callable[[Connection], R], /) -> R | Absent:
    """Run a script in the open transaction of an AsyncConnection, unless the store has no tables of lionstate.

    Args:
        conn: LionAGI's connection.
        script: May run twice, as every script.
    Raises:
        StateError: What the script says, or the translation of a driver's error.

    Cost: on SQLite one hop to the driver's thread for the whole script, off the event loop; on PostgreSQL a round trip
    for each statement.
    """
    found: R | Absent
    driver = (await conn.get_raw_connection()).driver_connection
    if isinstance(driver, aiosqlite.Connection):
        # The statements of a script one by one would be four hops each. The thread is the one that LionAGI's own
        # statements run on, so that a cancelled caller's ROLLBACK waits for the script's end.
        found = await run_on_driver(driver, script)
    else:
        found = await conn.run_sync(functools.partial(_guarded, script))
    return found


async def run_on_driver(driver: aiosqlite.Connection, script: Callable[[Connection], R], /) -> R | Absent:
    """The same on a connection of aiosqlite, in whatever transaction it is."""
    execute: Callable[..., Awaitable[R | Absent]] = driver._execute
    return await execute(functools.partial(_in_thread, driver, script))


def _in_thread(driver: aiosqlite.Connection, script: Callable[[Connection], R]) -> R | Absent:
    twin = _twins.get(driver)
    if twin is None:
        twin = _twins[driver] = _twin_of(driver._conn)
    return _guarded(script, twin)


def _twin_of(driver: sqlite3.Connection) -> Connection:
    """A Connection around a driver connection in the middle of a transaction, which it must not touch.

    Without ``_initialize=False`` the engine's first use would end in a ROLLBACK, and without the reset the pool's last.
    """
    engine = create_engine(
        "sqlite+pysqlite://",
        creator=lambda: driver,
        poolclass=StaticPool,
        pool_reset_on_return=None,
        module=sqlite3,
        hide_parameters=True,
        _initialize=False,
    )
    engine.dialect.server_version_info = sqlite3.sqlite_version_info
    return engine.connect()


def _guarded(script: Callable[[Connection], R], conn: Connection) -> R | Absent:
    dialect = dialect_of(conn)
    try:
        return script(conn) if dialect.has_own_tables(conn) else _ABSENT
    except Exception as error:
        raise translate(dialect, error) from error


def has_tables(conn: Connection) -> bool:
    """A script that answers True; there is no answer in a store without the tables."""
    return True
