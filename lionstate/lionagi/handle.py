"""What the bridge keeps for one open ``StateDB`` of LionAGI: how its progressions are written and read."""

from __future__ import annotations

import asyncio
import functools
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from sqlalchemy import Connection, select

from lionstate.client import StateClient
from lionstate.dialects import dialect_of
from lionstate.engine import Deferred, Refused, Reply
from lionstate.errors import BackendBusyError, BackendUnavailableError, SchemaTooNewError
from lionstate.lionagi.connection import Absent, has_tables, run_inside
from lionstate.lionagi.outage import through_outages
from lionstate.migration.candidates import note_session
from lionstate.operations import Operation, operation_of
from lionstate.progression.parsed import Later, NeedsParse, ParsedValues
from lionstate.progression.replace import create_progression
from lionstate.schema.conversation import sessions
from lionstate.schema.opening import OWN_SCHEMA_VERSION, read_own_version

__all__ = ["Handle", "Options", "handle_of", "is_bridged"]

R = TypeVar("R")
Original = Callable[..., Awaitable[R]]

_INLINE_CHARACTERS = 64 * 1024
# Others may change a value while it is parsed outside; then it is parsed under the lock.
_PARSES_OUTSIDE = 3
_MOST_ROUNDS = 8
_MOST_UNNOTED = 1_000


@dataclass(frozen=True, slots=True)
class Options:
    """How the bridge works in this process.

    Attributes:
        daemon: The daemon that owns the stores' writing; None writes in LionAGI's own transactions.
        token: Its bearer token.
    """

    daemon: str | None = None
    token: str | None = None


class _Within:
    """A StateDB whose next transaction is one that is open already."""

    def __init__(self, db: Any, conn: Any) -> None:
        self._db = db
        self._conn = conn

    def __getattr__(self, name: str) -> Any:
        return getattr(self._db, name)

    @asynccontextmanager
    async def _tx(self) -> AsyncIterator[Any]:
        yield self._conn


class _Unnoted:
    """Sessions that this process wrote in stores before lionstate's tables were there, by URL.

    They are noted with the first write that meets the tables, whatever session it is of: an agent that waits for an
    answer while the migration begins must not count as another program's.
    """

    def __init__(self) -> None:
        self._sessions: dict[str, set[str]] = {}

    def add(self, url: str, session_id: str) -> None:
        kept = self._sessions.setdefault(url, set())
        if len(kept) < _MOST_UNNOTED:
            kept.add(session_id)

    def note(self, conn: Connection, url: str, session_id: str) -> None:
        """Note a session and all that wait."""
        for found in sorted({session_id} | self._sessions.get(url, set())):
            note_session(conn, found)

    def forget(self, url: str) -> None:
        """They are noted, and it is committed."""
        self._sessions.pop(url, None)


_unnoted = _Unnoted()


class Handle:
    """Writes and reads the progressions of one StateDB."""

    def __init__(self, db: Any, options: Options) -> None:
        """Keep what belongs to ``db``, which keeps this."""
        self._db = weakref.ref(db)
        self._url: str = db.url
        self._options = options
        self._parsed = ParsedValues()
        self._client: StateClient | None = None
        self._is_served = False
        self._version_seen = False

    async def write(
        self,
        script: Callable[..., None],
        original: Original[None],
        *args: Any,
        session_id: str | None = None,
        params: Mapping[str, Any],
        **kwargs: Any,
    ) -> None:
        """Run a write operation in a transaction of LionAGI's, or through the daemon.

        Args:
            script: An operation of lionstate.
            original: LionAGI's method, which runs in the same transaction if the store has no tables of lionstate.
            args: What the method was called with.
            session_id: Whose activity the call moves; it will not count as another program's.
            params: The operation's parameters.
            kwargs: What the method was called with.
        Raises:
            StateError: Nothing was written, unless it is OutcomeUnknownError.

        Contract: ADR-0117 D2; design decisions 10, 37.
        """
        operation = operation_of(script)
        db = self._require()
        if await self._goes_to_daemon():
            await self._send(operation, params)
            return
        once = functools.partial(self._once, operation, params, session_id)
        for round_ in range(_MOST_ROUNDS):
            async with db._tx() as conn:
                found = await run_inside(conn, once)
                if isinstance(found, Absent):
                    # Its own method for the session's activity says that the session waits.
                    await original(_Within(db, conn), *args, **kwargs)
                    return
            if not isinstance(found, NeedsParse):
                if session_id is not None:
                    _unnoted.forget(self._url)
                return _settle(found)
            # Not under the lock, and not on the event loop.
            await self._parsed.learn(found, _in_thread)
            if round_ >= _PARSES_OUTSIDE:
                self._parsed.insist(found.progression_id)
        raise BackendBusyError("the stored collection changed each time it was parsed; nothing was written")

    def _once(self, operation: Operation, params: Mapping[str, Any], session_id: str | None, conn: Connection) -> Any:
        self._refuse_newer(conn)
        given = dict(params)
        prepared = given if operation.prepare is None else operation.prepare(given)
        if operation.fold is None:
            found = operation.script(conn, **prepared)
        else:
            (found,) = operation.fold(conn, [prepared], self._parsed)
        if session_id is not None and not isinstance(found, (Refused, NeedsParse)):
            _unnoted.note(conn, self._url, session_id)
        return found

    def _refuse_newer(self, conn: Connection) -> None:
        """Once a handle: what a newer lionstate wrote is not ours to change or to interpret."""
        if self._version_seen:
            return
        version = read_own_version(conn)
        if version is not None and version > OWN_SCHEMA_VERSION:
            raise SchemaTooNewError(f"lionstate's tables are of version {version}, newer than {OWN_SCHEMA_VERSION}")
        self._version_seen = True

    async def read(self, script: Callable[..., Deferred[R]], original: Original[R], progression_id: str) -> R:
        """Run a read operation in one snapshot; what grows with history is decoded outside of it."""
        db = self._require()
        if await self._goes_to_daemon():
            return await through_outages(lambda: self._ask(script.__name__, progression_id), repeatable=True)

        def work(conn: Connection) -> Deferred[R]:
            self._refuse_newer(conn)
            return script(conn, progression_id)

        async with db.read_snapshot() as conn:
            deferred = await run_inside(conn, work)
        if isinstance(deferred, Absent):
            return await original(db, progression_id)
        result: R = await _in_thread(deferred.finish, deferred.raw, deferred.size)
        return result

    async def note(self, session_id: str, conn: Any = None) -> None:
        """Keep that a session's activity is this process's, in the open transaction or in one of its own."""

        def work(sync: Connection) -> None:
            _unnoted.note(sync, self._url, session_id)

        if conn is not None:
            if isinstance(await run_inside(conn, work), Absent):
                _unnoted.add(self._url, session_id)
        elif await self._has_tables():
            async with self._require()._tx() as own:
                await run_inside(own, work)
        else:
            _unnoted.add(self._url, session_id)

    async def _goes_to_daemon(self) -> bool:
        """Not before lionstate has seen the store; once the daemon is known to serve it there is nothing to ask."""
        return self._options.daemon is not None and (self._is_served or await self._has_tables())

    async def _has_tables(self) -> bool:
        async with self._require().read_snapshot() as conn:
            return await run_inside(conn, has_tables) is True

    async def _ask(self, name: str, progression_id: str) -> Any:
        return await getattr(await self._served_client(), name)(progression_id)

    async def _send(self, operation: Operation, params: Mapping[str, Any]) -> None:
        async def once() -> None:
            await getattr(await self._served_client(), operation.name)(**params)

        # Messages and their places are there once by their ids; a whole collection that comes twice may undo others.
        await through_outages(once, repeatable=operation.fold is not None)
        if not self._is_served and operation.script is create_progression:
            await self._check_created(params["progression_id"])

    async def _served_client(self) -> StateClient:
        """The client of this handle's daemon, once it is known to serve the handle's store."""
        if self._client is None:
            assert self._options.daemon is not None
            self._client = await StateClient(self._options.daemon, token=self._options.token).open()
        if not self._is_served:
            newest = await self._newest_session()
            if newest is not None:
                self._require_same(await self._client.get_session(newest) is not None)
        return self._client

    async def _newest_session(self) -> str | None:
        query = select(sessions.c.id).order_by(sessions.c.updated_at.desc()).limit(1)
        async with self._require().read_snapshot() as conn:
            found: str | None = (await conn.execute(query)).scalar()
        return found

    async def _check_created(self, progression_id: str) -> None:
        """In a store without sessions: what the daemon wrote must be here."""

        def work(conn: Connection) -> bool:
            return progression_id in dialect_of(conn).existing_progressions(conn, [progression_id])

        async with self._require().read_snapshot() as conn:
            self._require_same(await run_inside(conn, work) is True)

    def _require_same(self, served: bool) -> None:
        if not served:
            raise BackendUnavailableError(f"the daemon at {self._options.daemon} serves another store than this one")
        self._is_served = True

    def _require(self) -> Any:
        db = self._db()
        assert db is not None
        return db

    async def close(self) -> None:
        """Close the connections to the daemon; the next call opens new ones."""
        client, self._client, self._is_served = self._client, None, False
        if client is not None:
            await client.close()


def _settle(found: Any) -> None:
    """Apply what follows a commit, or raise what the committed transaction refused."""
    if isinstance(found, Refused):
        raise found.error
    assert not isinstance(found, Later)
    if isinstance(found, Reply) and found.after_commit is not None:
        found.after_commit()


async def _in_thread(work: Callable[[Any], Any], argument: Any, size: int) -> Any:
    """Pure work, off the event loop when it is large. No child process: LionAGI's program is not ours to run again."""
    return work(argument) if size <= _INLINE_CHARACTERS else await asyncio.to_thread(work, argument)


_handles: weakref.WeakKeyDictionary[Any, Handle] = weakref.WeakKeyDictionary()


def is_bridged(db: Any) -> bool:
    """Whether a StateDB may have tables of lionstate: not a memory store, not another application's."""
    return db._compat is None and str(db.path) != ":memory:"


def handle_of(db: Any, options: Options) -> Handle:
    """The handle of a StateDB, made at its first use."""
    found = _handles.get(db)
    if found is None or found._options != options:
        found = _handles[db] = Handle(db, options)
    return found
