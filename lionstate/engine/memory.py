"""Reads of a memory store: its only connection is the writer's, so they take their turn there."""

from __future__ import annotations

from contextlib import AbstractAsyncContextManager, suppress
from typing import TypeVar

from sqlalchemy import Connection

from lionstate.engine.connections import Connections
from lionstate.engine.script import Look, Script
from lionstate.engine.sqlite import SqliteWriter
from lionstate.engine.transaction import translate
from lionstate.engine.turn import Turn
from lionstate.errors import StateError

__all__ = ["MemoryReader"]

R = TypeVar("R")


class MemoryReader:
    """Runs each script in one deferred transaction on the writer's connection."""

    def __init__(self, writer: SqliteWriter) -> None:
        """Read through ``writer``."""
        self._writer = writer

    async def run(self, script: Script[R]) -> R:
        """Run one script; statements that write are refused."""
        session = _ReadSession(self._writer)

        def work() -> R:
            try:
                session.begin()
                return script(session.conn)
            except Exception as error:
                raise translate(session.dialect, error) from error
            finally:
                session.rollback()

        return await self._writer.on_thread(work)

    def snapshot(self) -> AbstractAsyncContextManager[Turn]:
        """Hold the connection for one look; everybody else waits meanwhile."""
        return self._writer.turn_on(_ReadSession(self._writer))

    def connections(self) -> Connections:
        """None of its own."""
        return Connections()

    async def close(self) -> None:
        """Nothing of its own to close."""


class _ReadSession:
    """A transaction of the writer's connection that never writes."""

    conn: Connection

    def __init__(self, writer: SqliteWriter) -> None:
        self._writer = writer
        self.dialect = writer.dialect
        self.conn = writer.conn

    def begin(self) -> None:
        self._writer.begin_reading()
        self.conn.exec_driver_sql("PRAGMA query_only = 1")

    def is_open(self) -> bool:
        return self._writer.is_open()

    def before_commit(self, is_there: Look | None = None) -> None:
        """Nothing is committed."""

    def commit(self) -> None:
        self.rollback()

    def rollback(self) -> None:
        self._writer.rollback()
        with suppress(Exception):
            self.conn.exec_driver_sql("PRAGMA query_only = 0")
            self.conn.rollback()

    def after_failed_commit(self, error: BaseException) -> StateError | None:
        """Nothing was written, so nothing is in doubt."""
        return None
