"""An explicit transaction: the writer's turn held by one task, served statement by statement."""

from __future__ import annotations

import asyncio
import queue
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from sqlalchemy import Connection, text

from lionstate.engine.script import Script
from lionstate.engine.transaction import Session, translate
from lionstate.errors import ClosedError, DeadlineExceededError, StateError

__all__ = ["Turn", "rows_of"]

R = TypeVar("R")


def rows_of(conn: Connection, sql: str, params: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """Run text SQL with named parameters; its rows as mappings, [] for a statement without rows."""
    result = conn.execute(text(sql), dict(params or {}))
    return [dict(row) for row in result.mappings()] if result.returns_rows else []


class Turn:
    """What ``transaction()`` yields: scripts and SQL inside one write transaction.

    The transaction commits when the block ends normally and rolls back when it raises, when the caller is
    cancelled, and when the time limit passes.
    """

    def __init__(self, session: Session, limit_seconds: float) -> None:
        """Prepare a turn on ``session``, which is used on the serving thread only."""
        self._session = session
        self._limit = limit_seconds
        self._jobs: queue.SimpleQueue[Callable[[], bool]] = queue.SimpleQueue()
        self._loop = asyncio.get_running_loop()
        self._begun: asyncio.Future[None] = self._loop.create_future()
        self._failure: StateError | None = None

    def serve(self) -> None:
        """Hold the transaction and run what the caller sends until it ends or the limit passes."""
        try:
            self._session.begin()
        except Exception as error:
            self._session.rollback()
            self._tell(self._begun, error=translate(self._session.dialect, error))
            return
        self._tell(self._begun)
        give_up = time.monotonic() + self._limit
        going = True
        while going:
            try:
                job = self._jobs.get(timeout=max(0.0, give_up - time.monotonic()))
            except queue.Empty:
                self._failure = DeadlineExceededError(
                    f"the transaction was open for more than {self._limit:g} s and was rolled back"
                )
                self._session.rollback()
                return
            going = job()

    def _tell(self, future: asyncio.Future[Any], result: Any = None, error: BaseException | None = None) -> None:
        def deliver() -> None:
            if not future.done():
                if error is not None:
                    future.set_exception(error)
                else:
                    future.set_result(result)

        try:
            self._loop.call_soon_threadsafe(deliver)
        except RuntimeError:
            return

    @asynccontextmanager
    async def held(self, serving: asyncio.Future[None]) -> AsyncIterator[None]:
        """Keep the turn for the length of the block; the end is shielded from cancellation."""
        self._serving = serving
        try:
            await asyncio.shield(self._begun)
        except asyncio.CancelledError:
            await self._end(commit=False)
            raise
        try:
            yield
        except BaseException:
            await self._end(commit=False)
            raise
        await self._end(commit=True)
        if self._failure is not None:
            raise self._failure

    async def _end(self, *, commit: bool) -> None:
        self._jobs.put(lambda: self._finish(commit=commit))
        ended = asyncio.ensure_future(asyncio.wait([self._serving]))
        try:
            await asyncio.shield(ended)
        finally:
            if not ended.done():
                await ended

    def _finish(self, *, commit: bool) -> bool:
        if not commit:
            self._session.rollback()
            return False
        try:
            self._session.commit()
        except Exception as raised:
            self._failure = self._session.after_failed_commit(raised)
        return False

    async def run(self, script: Script[R]) -> R:
        """Run one script inside the transaction."""
        if self._failure is not None:
            raise self._failure
        future: asyncio.Future[R] = self._loop.create_future()

        def job() -> bool:
            try:
                result = script(self._session.conn)
            except Exception as error:
                self._tell(future, error=translate(self._session.dialect, error))
            else:
                self._tell(future, result)
            return True

        self._jobs.put(job)
        either: list[asyncio.Future[Any]] = [future, self._serving]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not future.done():
            raise self._failure or ClosedError("the transaction has ended")
        return future.result()

    async def execute(self, sql: str, params: Mapping[str, Any] | None = None) -> None:
        """Run one SQL statement with named parameters."""
        await self.run(lambda conn: rows_of(conn, sql, params))

    async def fetch_all(self, sql: str, params: Mapping[str, Any] | None = None) -> list[dict[str, Any]]:
        """Run one query; its rows as mappings, not decoded."""
        return await self.run(lambda conn: rows_of(conn, sql, params))

    async def fetch_one(self, sql: str, params: Mapping[str, Any] | None = None) -> dict[str, Any] | None:
        """The first row of a query, or None."""
        rows = await self.fetch_all(sql, params)
        return rows[0] if rows else None
