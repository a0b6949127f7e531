"""The facade in process: each method runs on this process's own connection to the store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from lionstate.engine import Deferred, EngineSettings, StoreURL
from lionstate.errors import ClosedError, InvalidInputError
from lionstate.facade import Facade
from lionstate.migration import ProgressionMigrationService
from lionstate.operations import operation_of
from lionstate.store import Store

__all__ = ["StateDB"]

P = ParamSpec("P")
R = TypeVar("R")


class StateDB(Facade):
    """A store opened in this process.

    Args:
        path: A store file or ``:memory:``.
        url: A store URL; wins over ``path``.
        readonly: Open without any write; SQLite files only.
        settings: How connections behave; the defaults are those of LionAGI 0.36.0 (``synchronous=NORMAL``).

    Contract: ADR-0055 D1.
    """

    def __init__(
        self,
        path: str | Path | None = None,
        *,
        url: str | None = None,
        readonly: bool = False,
        settings: EngineSettings | None = None,
        lionagi_compatible: bool = False,
    ) -> None:
        """Name the store; ``open`` opens it."""
        target = url if url is not None else path
        if target is None:
            raise InvalidInputError("no store given: pass a path or a url")
        self._url = StoreURL.of(target)
        base = settings or EngineSettings()
        self._settings = EngineSettings(**{**_fields(base), "readonly": readonly or base.readonly})
        if self._settings.readonly and (self._url.dialect != "sqlite" or self._url.is_memory):
            raise InvalidInputError("only a SQLite file can be opened read-only")
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
        async with self._opening:
            if self._store is None:
                self._store = await Store.open(
                    self._url.text, self._settings, lionagi_compatible=self._lionagi_compatible
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

    async def _run(self, script: Callable[Concatenate[Any, P], R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        operation = operation_of(script)
        result: R = await self.store.run(operation, operation.bind(args, kwargs))
        return result

    async def _read(
        self, script: Callable[Concatenate[Any, P], Deferred[R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> R:
        operation = operation_of(script)
        result: R = await self.store.run(operation, operation.bind(args, kwargs))
        return result

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[Any]:
        """Hold one write transaction: ``run(script)``, ``execute``, ``fetch_one``, ``fetch_all`` inside it.

        The block's end commits, an exception rolls back. A facade method called by the same task inside the block
        raises NestedWriteError. At most 30 s by default.
        """
        store = self.store
        async with store._require_writer().transaction() as turn:
            store.turn_taken(asyncio.current_task())
            try:
                yield turn
            finally:
                store.turn_taken(None)


def _fields(settings: EngineSettings) -> Mapping[str, Any]:
    return {name: getattr(settings, name) for name in EngineSettings.__dataclass_fields__}
