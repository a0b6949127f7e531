"""The stores that a contract is tested on: one suite, several backends.

A test that takes ``state`` runs on every backend. ``backend.direct`` looks at the same store from the side, in
process, with raw SQL: to set up what no operation makes, and to see what an operation left.
"""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio

from lionstate import StateClient, StateDB
from lionstate.schema import metadata, remove_fence
from lionstated.assembly import assemble
from lionstated.process import Daemon
from lionstated.settings import load_settings
from tests.support.postgres import PostgresServer

__all__ = ["BACKENDS", "IN_PROCESS", "Backend", "empty_database", "open_postgresql", "open_sqlite", "serve_daemon"]

IN_PROCESS = ("sqlite", "postgresql-15", "postgresql-18")
BACKENDS = (*IN_PROCESS, "daemon-sqlite", "daemon-postgresql")


@dataclass
class Backend:
    """One backend under test.

    Attributes:
        name: One of ``BACKENDS``.
        state: The facade under test: a StateDB or a StateClient.
        direct: A StateDB on the same store in this process; the same object as ``state`` where that is in process.
    """

    name: str
    state: Any
    direct: StateDB

    @property
    def is_postgresql(self) -> bool:
        """Whether the store is PostgreSQL."""
        return self.direct.dialect == "postgresql"

    async def execute(self, sql: str, **params: Any) -> None:
        """Run raw SQL with named parameters in a transaction of its own."""
        async with self.direct.transaction() as transaction:
            await transaction.execute(sql, params)

    async def rows(self, sql: str, **params: Any) -> list[dict[str, Any]]:
        """Rows of raw SQL, not decoded."""
        async with self.direct.transaction() as transaction:
            found: list[dict[str, Any]] = await transaction.fetch_all(sql, params)
            return found

    async def put_progression(self, progression_id: str, collection: Any) -> None:
        """Put a progression as an old writer left it: only the legacy row, any value in the column."""
        await self.execute(
            "INSERT INTO progressions (id, created_at, collection) VALUES (:id, 1.0, :collection)",
            id=progression_id,
            collection=collection,
        )


@asynccontextmanager
async def open_sqlite(template: Path, path: Path, **options: Any) -> AsyncIterator[StateDB]:
    """A StateDB on a copy of an empty store."""
    shutil.copyfile(template, path)
    async with StateDB(path, **options) as state:
        yield state


@asynccontextmanager
async def open_postgresql(dsn: str, **options: Any) -> AsyncIterator[StateDB]:
    """A StateDB on an emptied database; at the end no connection is checked out."""
    async with StateDB(url=dsn, **options) as state:
        await empty_database(state)
        yield state


@asynccontextmanager
async def serve_daemon(url: str, socket: Path, **flags: str) -> AsyncIterator[StateClient]:
    """A client of the daemon's composition root, run inside this process on a Unix socket.

    ``database.sqlite_module`` is the standard library's: the test looks at the same file from the same process.
    """
    given = {
        "database.url": url,
        "database.sqlite_module": "stdlib",
        "database.synchronous": "NORMAL",
        "listen.socket": str(socket),
        "listen.ops": "",
        **flags,
    }
    settings = load_settings(None, flags=given, environ=False)
    parts = assemble()
    daemon = Daemon(settings, operations=parts.operations, store_factory=parts.store_factory)
    async with anyio.create_task_group() as group:
        await group.start(lambda *, task_status: daemon.run(task_status=task_status))
        async with StateClient(f"unix:{socket}") as client:
            yield client
        daemon.stop()


async def empty_database(state: StateDB) -> None:
    """Delete every row but the schema's own, and the fence; a hundred times faster than CREATE DATABASE."""
    async with state.transaction() as transaction:
        if state.dialect == "postgresql":
            # In one statement: forty round trips at each of five thousand tests add up.
            await transaction.execute(f"DO $$ BEGIN {'; '.join(_EMPTYING)}; END $$")
        else:
            for statement in _EMPTYING:
                await transaction.execute(statement)
        await transaction.run(remove_fence)


_KEPT = {"schema_meta", "migration_control"}
_EMPTYING = [
    "UPDATE sessions SET first_msg_id = NULL, last_msg_id = NULL",
    *(
        f'DELETE FROM "{table.name}"' + (" WHERE type_id > 5" if table.name == "message_types" else "")
        for table in reversed(metadata.sorted_tables)
        if table.name not in _KEPT
    ),
    "DELETE FROM migration_control WHERE key <> 'storage.normalized'",
    "UPDATE migration_control SET value = 'true' WHERE key = 'storage.normalized'",
]


def database_of(server: PostgresServer, name: str) -> str:
    """The DSN of a database that is created at its first use in this process."""
    made: set[str] = _MADE.setdefault(id(server), set())
    if name not in made:
        server.create_database(name)
        made.add(name)
    return server.dsn(name)


_MADE: dict[int, set[str]] = {}
