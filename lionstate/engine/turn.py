"""An explicit transaction: the writer's turn held by one task, served statement by statement."""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from lionstate.engine.finish import to_the_end
from lionstate.engine.script import Script, answer
from lionstate.engine.surface import SqlWrites
from lionstate.engine.transaction import Session, require_open, translate
from lionstate.errors import ClosedError, DeadlineExceededError, StateError

__all__ = ["Turn"]

R = TypeVar("R")


def _looked_at(future: asyncio.Future[Any]) -> None:
    if not future.cancelled():
        future.exception()


class Turn(SqlWrites):
    """What ``transaction()`` yields: scripts and SQL inside one write transaction.

    The transaction commits when the block ends normally and rolls back when it raises, when the caller is
    cancelled, when the time limit passes, and when the store closes.
    """

    def __init__(self, session: Session, limit_seconds: float) -> None:
        """Prepare a turn on ``session``, which is used on the serving thread only."""
        self._session = session
        self._limit = limit_seconds
        self._jobs: queue.SimpleQueue[Callable[[], bool]] = queue.SimpleQueue()
        self._loop = asyncio.get_running_loop()
        self._begun: asyncio.Future[None] = self._loop.create_future()
        self._begun.add_done_callback(_looked_at)
        self._abandoned = threading.Event()
        self._failure: StateError | None = None

    def wanted(self) -> bool:
        """Whether the caller still waits for the turn; asked on the serving thread while BEGIN waits."""
        return not self._abandoned.is_set()

    def serve(self) -> None:
        """Hold the transaction and run what the caller sends until it ends or the limit passes."""
        try:
            if self._abandoned.is_set():
                raise ClosedError("the caller of the transaction is gone")
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
                self._fail(
                    DeadlineExceededError(
                        f"the transaction was open for more than {self._limit:g} s and was rolled back"
                    )
                )
                return
            going = job()

    def _fail(self, failure: StateError) -> bool:
        self._failure = failure
        self._session.rollback()
        return False

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
        """Keep the turn for the length of the block; begin and end are shielded from cancellation."""
        self._serving = serving
        try:
            await asyncio.shield(self._begun)
        except asyncio.CancelledError:
            self._abandoned.set()
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

    def abort(self) -> None:
        """Roll back as soon as the running statement ends: the store closes."""
        self._abandoned.set()
        self._jobs.put(lambda: self._fail(ClosedError("the store closed; the transaction was rolled back")))

    async def _end(self, *, commit: bool) -> None:
        self._jobs.put(lambda: self._finish(commit=commit))
        await to_the_end(self._served())

    async def _served(self) -> None:
        await asyncio.wait([self._serving])

    def _finish(self, *, commit: bool) -> bool:
        if not commit:
            self._session.rollback()
            return False
        try:
            require_open(self._session)
            self._session.before_commit()
        except Exception as error:
            return self._fail(translate(self._session.dialect, error))
        try:
            self._session.commit()
        except Exception as raised:
            self._failure = self._session.after_failed_commit(raised)
        return False

    async def run(self, script: Script[R], /) -> R:
        """Run one script inside the transaction.

        An error of a statement leaves the transaction open, unless the database ended it: then nothing more runs. A
        refusal is raised, and what the script wrote before it stays in the transaction.
        """
        if self._failure is not None:
            raise self._failure
        future: asyncio.Future[R] = self._loop.create_future()
        future.add_done_callback(_looked_at)

        def job() -> bool:
            going = True
            try:
                result = answer(script(self._session.conn))
                require_open(self._session)
            except Exception as error:
                failure = translate(self._session.dialect, error)
                if not self._session.is_open():
                    # What runs after a silent rollback would commit statement by statement.
                    going = self._fail(failure)
                self._tell(future, error=failure)
            else:
                self._tell(future, result)
            return going

        self._jobs.put(job)
        either: list[asyncio.Future[Any]] = [future, self._serving]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not future.done():
            raise self._failure or ClosedError("the transaction has ended")
        return future.result()
