"""The store that is read: opened without any write, owned meanwhile where it is a file."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from typing import TypeVar

from sqlalchemy import Connection, select

from lionstate.copying.tables import COPIED, Reading, left_out
from lionstate.dialects import dialect_named, dialect_of
from lionstate.engine import EngineSettings, SilentObserver, StoreURL
from lionstate.engine.reader import PostgresqlReader, Reader
from lionstate.engine.surface import SqlReads
from lionstate.errors import UncopyableError, UnrecognizedStoreError
from lionstate.opening import Parts
from lionstate.schema import StoreKind, inspect_store
from lionstate.schema.control import schema_meta

__all__ = ["Source", "opened_beside", "readings_of"]

R = TypeVar("R")


class Source:
    """A store to read whole tables of.

    Attributes:
        readings: How each table is read, by name.
        left_out: Tables and columns that are not lionstate's.
        fingerprint: Tells this store from others; the same as long as its name and the day of its creation are.
    """

    def __init__(
        self, url: StoreURL, settings: EngineSettings, *, own: bool = True, one_snapshot: bool = False
    ) -> None:
        """Name the store; ``open`` opens it.

        Args:
            own: Take the daemon's lock of a file.
            one_snapshot: All reads see the store as it is at the first one, whoever writes it meanwhile.
        """
        self._own = own
        self._one_snapshot = one_snapshot
        self._snapshot: SqlReads | None = None
        self._held = AsyncExitStack()
        # A connection does one thing at a time.
        self._turn = asyncio.Lock()
        self.url = url
        self._settings = settings
        self._parts: Parts | None = None
        self._reader: Reader | None = None
        self.readings: dict[str, Reading] = {}
        self.left_out: list[str] = []
        self.fingerprint = ""

    @property
    def is_strict(self) -> bool:
        """Whether the source's database has refused values that are not of their column's type."""
        return dialect_named(self.url.dialect).capabilities.strict_values

    async def open(self) -> None:
        """Open and judge the store.

        Raises:
            SchemaError: It holds no store that this version reads.
            OwnershipConflictError: A daemon owns the file.
            BackendUnavailableError: The path or server cannot be used.
        """
        if self.url.path is not None:
            self._parts = Parts(self.url, self._settings, SilentObserver())
            await self._parts.open(lionagi_compatible=False, normalized=None, own=self._own, vfs=None)
            self._reader = self._parts.reader
        else:
            self._reader = PostgresqlReader(self.url, self._settings)
        if self._one_snapshot:
            assert self._reader is not None
            self._snapshot = await self._held.enter_async_context(self._reader.snapshot())
        if await self.run(inspect_store) is StoreKind.NEW:
            raise UnrecognizedStoreError("the source holds no store")
        self.left_out, names = await self.run(left_out)
        self.readings = await self.run(lambda conn: readings_of(conn, names))
        meta = await self.meta_rows()
        identity = f"{self.url.masked}\n{meta.get('created_at')}\n{meta.get('lineage')}"
        self.fingerprint = hashlib.sha256(identity.encode()).hexdigest()

    async def run(self, script: Callable[[Connection], R]) -> R:
        """Run one read script, in a snapshot of its own unless all share one."""
        if self._snapshot is not None:
            async with self._turn:
                return await self._snapshot.run(script)
        assert self._reader is not None
        return await self._reader.run(script)

    async def meta_rows(self) -> dict[str, str]:
        """The rows of ``schema_meta``."""
        return await self.run(_meta_rows)

    async def refuse_what_breaks_rules(self) -> None:
        """Refuse a store with rows that a store made today does not admit.

        Raises:
            UncopyableError: Names the tables and counts the rows.
        """
        found: list[str] = []
        for name, reading in self.readings.items():
            broken = await self.run(partial(_broken, reading=reading))
            found += [f"{name}: {count} rows {what}" for what, count in broken.items() if count]
        if found:
            raise UncopyableError(f"the source breaks rules of its own tables; {'; '.join(found)}")

    async def close(self) -> None:
        """Close the connections and give the file back; may be repeated."""
        try:
            self._snapshot = None
            await self._held.aclose()
        finally:
            if self._parts is not None:
                await self._parts.close()
            elif self._reader is not None:
                await self._reader.close()


@asynccontextmanager
async def opened_beside(url: StoreURL, settings: EngineSettings) -> AsyncIterator[Source]:
    """A store to read inside the block, whoever owns it."""
    source = Source(url, settings, own=False)
    try:
        await source.open()
        yield source
    finally:
        await source.close()


def readings_of(conn: Connection, /, names: frozenset[str]) -> dict[str, Reading]:
    """How each table is read on this database; ``names`` are the tables that there are."""
    return {copied.name: Reading(copied, conn, exists=copied.name in names) for copied in COPIED}


def _meta_rows(conn: Connection, /) -> dict[str, str]:
    return {row[0]: row[1] for row in conn.execute(select(schema_meta.c.key, schema_meta.c.value))}


def _broken(conn: Connection, /, *, reading: Reading) -> dict[str, int]:
    lost = dialect_of(conn).broken_references(conn, reading.copied.table) if reading.exists else 0
    refused = reading.refused(conn)
    return {"refer to rows that do not exist": lost, "lack a value or have one that is not allowed": refused}
