"""Read replicas of a PostgreSQL store, for reads whose caller allows them to be old."""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import TypeVar

from lionstate.engine.connections import Connections
from lionstate.engine.reader import PostgresqlReader, Reader
from lionstate.engine.settings import EngineSettings
from lionstate.engine.url import StoreURL
from lionstate.errors import InvalidInputError, StateError

__all__ = ["Replicas", "require_lag"]

R = TypeVar("R")
_LOOK_SECONDS = 0.25
_PATIENCE_SECONDS = 1.0
_UNUSED_SECONDS = 10.0
_MARKS = 256
_SMALLEST_LAG = 1.0
_LARGEST_LAG = 86_400.0


def require_lag(max_lag_seconds: float) -> float:
    """The lag that a caller allows, as a number of seconds.

    Raises:
        InvalidInputError: It is none, below 1 or above 86,400.
    """
    given: object = max_lag_seconds
    if isinstance(given, bool) or not isinstance(given, int | float) or not math.isfinite(given):
        raise InvalidInputError("max_lag_seconds is a number of seconds")
    if not _SMALLEST_LAG <= given <= _LARGEST_LAG:
        raise InvalidInputError("max_lag_seconds is 1 to 86400")
    return float(given)


class _Replica:
    """One replica, and the moment up to which it is known to hold what the primary had committed."""

    def __init__(self, reader: PostgresqlReader) -> None:
        self.reader = reader
        self.as_of = -math.inf

    async def look(self, marks: Sequence[tuple[float, int]]) -> None:
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                position = await self.reader.run(self.reader.dialect.replayed_position)
        except (StateError, TimeoutError):
            self.as_of = -math.inf
            return
        if position is None:
            # Promoted, or never a replica: what it holds is no longer the primary's.
            self.as_of = -math.inf
            return
        passed = [moment for moment, written in marks if written <= position]
        self.as_of = max(passed, default=-math.inf)


class Replicas:
    """Sends reads to a replica that is known to be recent enough, and to the primary otherwise.

    How old a replica is needs no clock of a server: the primary's position in its write-ahead log is noted with the
    time here, and a replica that has replayed as far holds everything committed until then. Looked at four times a
    second while such reads are made, and not at all otherwise.
    """

    def __init__(self, urls: Sequence[str], settings: EngineSettings, primary: Reader) -> None:
        """Prepare the pools; a replica that is away is no error.

        Raises:
            InvalidInputError: A URL that is not of PostgreSQL.
        """
        found = [StoreURL.of(url) for url in urls]
        if any(url.dialect != "postgresql" for url in found):
            raise InvalidInputError("a replica is a PostgreSQL server: its URL begins with postgresql://")
        self._primary = primary
        self._replicas = [_Replica(PostgresqlReader(url, settings)) for url in found]
        self._marks: deque[tuple[float, int]] = deque(maxlen=_MARKS)
        self._turn = 0
        self._used = -math.inf
        self._looking: asyncio.Task[None] | None = None
        self._first_look = asyncio.Event()
        self._closing = asyncio.Event()

    async def run(self, read: Callable[[Reader, bool], Awaitable[R]], max_lag_seconds: float) -> R:
        """Run a whole read on a replica; on the primary when none is recent enough or the replica fails.

        Args:
            read: Given the reader, and whether that is a replica's.
            max_lag_seconds: How old the answer may be.

        Cost: nothing beyond the read itself; the first after a pause of 10 s waits for a look, 1 s at most.
        """
        self._used = time.monotonic()
        if self._looking is None or self._looking.done():
            self._first_look.clear()
            self._looking = asyncio.get_running_loop().create_task(self._keep_looking())
        with suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE_SECONDS):
                await self._first_look.wait()
        oldest = time.monotonic() - max_lag_seconds
        recent = [replica for replica in self._replicas if replica.as_of >= oldest]
        if recent:
            self._turn += 1
            replica = recent[self._turn % len(recent)]
            try:
                return await read(replica.reader, True)
            except InvalidInputError:
                raise
            except StateError:
                # Away, cancelled by a conflict with replay, or a state that a replica cannot judge.
                replica.as_of = -math.inf
        return await read(self._primary, False)

    async def _keep_looking(self) -> None:
        try:
            while time.monotonic() - self._used < _UNUSED_SECONDS and not self._closing.is_set():
                await self._look()
                self._first_look.set()
                with suppress(TimeoutError):
                    async with asyncio.timeout(_LOOK_SECONDS):
                        await self._closing.wait()
        finally:
            self._first_look.set()

    async def _look(self) -> None:
        began = time.monotonic()
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                self._marks.append((began, await self._primary.run(self._replicas[0].reader.dialect.written_position)))
        except (StateError, TimeoutError):
            # Without the primary nothing newer can be proved: its replicas serve on until they count as too old.
            pass
        await asyncio.gather(*(replica.look(self._marks) for replica in self._replicas))

    def connections(self) -> Connections:
        """Those to the replicas."""
        found = Connections()
        for replica in self._replicas:
            found = found.and_(replica.reader.connections())
        return found

    async def close(self) -> None:
        """End the looks and dispose the pools."""
        self._closing.set()
        if self._looking is not None:
            # Not cancelled: an attempt to connect would outlive the pool. A look takes 2 s at most.
            await asyncio.wait([self._looking])
        for replica in self._replicas:
            await replica.reader.close()
