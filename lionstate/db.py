"""The facade in process: each method runs on this process's own connection to the store."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from lionstate.copying import Manifest, backup_store
from lionstate.engine import Deferred, EngineSettings, Outcome, Refused, StoreURL
from lionstate.engine.surface import Params, SqlReads, bound_text, rows_of
from lionstate.errors import ClosedError, InvalidInputError
from lionstate.facade import Facade
from lionstate.facade.runner import BatchCall
from lionstate.migration import ProgressionMigrationService
from lionstate.opening import require_asyncio
from lionstate.operations import operation_of
from lionstate.queue import RequestKey
from lionstate.store import Store

__all__ = ["StateDB"]

P = ParamSpec("P")
R = TypeVar("R")


class StateDB(Facade):
    """A store opened in this process.

    Args:
        path: A store file or ``:memory:``.
        url: A store URL; wins over ``path``.
        readonly: Open without any write, also none of the schema; writes are refused.
        normalized: Whether new progressions are born in ``items``; recorded in the store. None keeps what is recorded.
        settings: How connections behave; the defaults are those of LionAGI 0.36.0 (``synchronous=NORMAL``).
        lionagi_compatible: A new store is one that LionAGI 0.36.0 can open.
        replica_url: PostgreSQL: URLs of replicas, one server each, for ``stale_ok``.

    Contract: ADR-0055 D1.
    """

    def __init__(
        self,
        path: str | Path | None = None,
        *,
        url: str | None = None,
        readonly: bool = False,
        normalized: bool | None = None,
        settings: EngineSettings | None = None,
        lionagi_compatible: bool = False,
        replica_url: Sequence[str] = (),
    ) -> None:
        """Name the store; ``open`` opens it."""
        target = url if url is not None else path
        if target is None:
            raise InvalidInputError("no store given: pass a path or a url")
        self._url = StoreURL.of(target)
        base = settings or EngineSettings()
        replicas = (replica_url,) if isinstance(replica_url, str) else tuple(replica_url)
        self._settings = dataclasses.replace(
            base, readonly=readonly or base.readonly, replicas=replicas or base.replicas
        )
        if self._settings.readonly and self._url.is_memory:
            raise InvalidInputError("a memory store begins empty: it cannot be opened read-only")
        if self._settings.readonly and normalized is not None:
            raise InvalidInputError("normalized is recorded in the store, which is opened read-only")
        self._normalized = normalized
        self._lionagi_compatible = lionagi_compatible
        self._store: Store | None = None
        self._migration: ProgressionMigrationService | None = None
        self._opening = asyncio.Lock()

    @property
    def url(self) -> str:
        """The normalized URL, with its password."""
        return self._url.text

    @property
    def dialect(self) -> str:
        """``sqlite`` or ``postgresql``."""
        return self._url.dialect

    @property
    def path(self) -> Path | None:
        """The store file; ``Path(':memory:')`` for a memory store, None on PostgreSQL."""
        return Path(":memory:") if self._url.is_memory else self._url.path

    @property
    def readonly(self) -> bool:
        """Whether writes are refused."""
        return self._settings.readonly

    @property
    def store(self) -> Store:
        """The open store; ClosedError before ``open`` and after ``close``."""
        if self._store is None:
            raise ClosedError("the store is not open: call open() or use async with")
        return self._store

    @property
    def migration(self) -> ProgressionMigrationService:
        """The migration of this store; nothing moves unless its ``step`` is called.

        Contract: ADR-0117 D5.
        """
        if self._migration is None:
            self._migration = ProgressionMigrationService(self.store)
        return self._migration

    async def open(self) -> Self:
        """Open the store; a second call does nothing.

        Raises:
            SchemaError: The store is newer, foreign or unrecognized; nothing was changed.
            BackendUnavailableError: The path or server cannot be used.
        """
        require_asyncio()
        async with self._opening:
            if self._store is None:
                self._store = await Store.open(
                    self._url,
                    self._settings,
                    lionagi_compatible=self._lionagi_compatible,
                    normalized=self._normalized,
                )
        return self

    async def close(self) -> None:
        """Finish what was submitted and close; may be repeated."""
        store, self._store, self._migration = self._store, None, None
        if store is not None:
            await store.close()

    async def __aenter__(self) -> Self:
        """Open the store."""
        return await self.open()

    async def __aexit__(self, *_exc: object) -> None:
        """Close the store."""
        await self.close()

    def _run(
        self, script: Callable[Concatenate[Any, P], R | Refused], /, *args: P.args, **kwargs: P.kwargs
    ) -> Coroutine[Any, Any, R]:
        operation = operation_of(script)
        return self.store.run(operation, operation.bind(args, kwargs))

    def _read(
        self, script: Callable[Concatenate[Any, P], Deferred[R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> Coroutine[Any, Any, R]:
        operation = operation_of(script)
        return self.store.run(operation, operation.bind(args, kwargs))

    async def _run_batch(self, calls: Sequence[BatchCall], *, atomic: bool) -> list[Outcome]:
        keys = [None if call.key is None else RequestKey("", call.key) for call in calls]
        return await self.store.run_batch([(call.operation, call.params) for call in calls], atomic=atomic, keys=keys)

    async def _keyed(
        self, key: str, script: Callable[Concatenate[Any, P], R | Refused], /, *args: P.args, **kwargs: P.kwargs
    ) -> R:
        operation = operation_of(script)
        result: R = await self.store.run(operation, operation.bind(args, kwargs), key=RequestKey("", key))
        return result

    async def _stale(
        self, lag: float, script: Callable[Concatenate[Any, P], Any], /, *args: P.args, **kwargs: P.kwargs
    ) -> Any:
        operation = operation_of(script)
        return await self.store.run(operation, operation.bind(args, kwargs), max_lag_seconds=lag)

    def transaction(self) -> AbstractAsyncContextManager[Any]:
        """Hold one write transaction: ``run(script)``, ``execute``, ``fetch_one``, ``fetch_all`` inside it.

        The block's end commits, an exception rolls back. A facade method called by the same task inside the block
        raises NestedWriteError. A script that refuses raises the error of the facade call, and what it wrote before
        that stays in the transaction. At most 30 s by default.
        """
        return self.store.transaction()

    def read_snapshot(self) -> AbstractAsyncContextManager[SqlReads]:
        """Hold one repeatable read: ``run(script)``, ``fetch_one``, ``fetch_all`` see one snapshot inside it.

        A deferred transaction on SQLite, REPEATABLE READ READ ONLY on PostgreSQL. An open snapshot of a SQLite store
        pins its write-ahead log; a memory store serves nobody else meanwhile.
        """
        return self.store.snapshot()

    async def fetch_all(self, sql: str, params: Params = None) -> list[dict[str, Any]]:
        """Rows of one query as mappings, not decoded.

        Args:
            sql: Reads only, with ``:name`` or ``?`` placeholders; those inside quotes and comments are left alone.
            params: A mapping for names, a sequence for ``?``.
        Raises:
            InvalidInputError: The number of values is not the number of ``?``.
            BackendError: The database refused the query, or it writes.
        """
        rows: list[dict[str, Any]] = await self.store.read(lambda conn: rows_of(conn, sql, params))
        return rows

    async def fetch_one(self, sql: str, params: Params = None) -> dict[str, Any] | None:
        """The first row of ``fetch_all``, or None."""
        rows = await self.fetch_all(sql, params)
        return rows[0] if rows else None

    async def execute(self, sql: str, params: Params = None) -> None:
        """Run one statement in a write transaction of its own, after the writes that wait already.

        Args:
            sql: As in ``fetch_all``.
            params: As in ``fetch_all``.
        Raises:
            InvalidInputError: The number of values is not the number of ``?``.
            BackendError: The database refused the statement; nothing was written.
        """
        bound_text(sql, params)
        await self.store.write_raw("execute", lambda conn: _run_statement(conn, sql, params))

    async def schema_version(self) -> str | None:
        """The value of the ``version`` row of ``schema_meta``; None without one."""
        row = await self.fetch_one("SELECT value FROM schema_meta WHERE key = 'version'")
        return None if row is None else row["value"]

    async def backup(self, target: str | Path, *, force: bool = False) -> Manifest:
        """Write a proved copy of a SQLite store to a file, while it is read and written.

        Args:
            target: The file to make; a manifest goes beside it.
            force: Replace a backup that is there.
        Returns:
            What the copy holds: phases, and rows and a digest of every table.
        Raises:
            InvalidInputError: No SQLite file; the message says what to use for PostgreSQL.
            NotEmptyError: The file exists.
            DifferenceError: What was written is damaged or not what was read; the file is removed.

        Cost: reads the store once and the copy three times; one snapshot, which pins the write-ahead log meanwhile.
        """
        return await backup_store(self.url, Path(target), force=force, settings=self._settings)

    async def vacuum(self) -> None:
        """Rebuild a SQLite file without its free pages; nothing on PostgreSQL, whose server does it.

        Cost: the whole store, during which nobody writes; free disk space of the same size.
        """
        writer = self.store.sqlite_writer
        if writer is not None:
            await writer.vacuum()

    async def checkpoint(self, mode: str = "PASSIVE") -> tuple[int, int, int] | None:
        """Move frames of the write-ahead log into the SQLite file; never waits for readers or writers.

        Args:
            mode: PASSIVE, FULL, RESTART or TRUNCATE in any case; the last three do nothing while a reader pins the log.
        Returns:
            (busy, frames in the log, frames moved); None on PostgreSQL.
        Raises:
            InvalidInputError: No such mode.

        Contract: design decision 23.
        """
        writer = self.store.sqlite_writer
        if writer is None:
            return None
        found = await writer.checkpoint(mode)
        return found.busy, found.log, found.checkpointed


def _run_statement(conn: Any, sql: str, params: Params) -> None:
    rows_of(conn, sql, params)
