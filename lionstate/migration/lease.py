"""The lease of maintenance: which process migrates a store, so that several do not do the same work (decision 27).

Correctness does not rest on it: cursor, keys and generations under the lock do that. It has no session state, so it
works behind a transaction pooler, and on PostgreSQL only the server's clock counts.
"""

from __future__ import annotations

import os
import secrets
import socket
import time
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection, select, update

from lionstate.dialects import dialect_of
from lionstate.migration.port import MigrationStore, bound
from lionstate.schema.own import migration_lease as table

__all__ = ["LEASE_NAME", "LEASE_SECONDS", "Lease", "Ownership", "process_name", "read_ownership"]

LEASE_NAME: Final = "maintenance"
LEASE_SECONDS: Final = 15.0
# No lease lasts longer: an end beyond it was written before the clock of a SQLite store's machine was set back.
_LONGEST_SECONDS: Final = 86_400.0
_NONCE: Final = secrets.token_hex(4)


def process_name() -> str:
    """How this process is called in a lease: host, process id, and what no other process of that id has."""
    return f"{socket.gethostname()}/{os.getpid()}/{_NONCE}"


@dataclass(frozen=True, slots=True)
class Ownership:
    """Who migrates a store now.

    Attributes:
        owner: Host, process id and a random part; None when nobody does.
        is_self: It is the process that was asked.
        epoch: Counts the changes of hands.
        since: When it took over, by the store's clock, epoch seconds.
        left_seconds: Until others may take over, unless it is renewed.
    """

    owner: str | None = None
    is_self: bool = False
    epoch: int = 0
    since: float | None = None
    left_seconds: float = 0.0


_ROW = select(table.c.owner, table.c.epoch, table.c.expires_at, table.c.acquired_at).where(table.c.name == LEASE_NAME)


def read_ownership(conn: Connection, /, name: str) -> Ownership:
    """Who migrates the store; ``name`` is the asking process. Cost: two seeks."""
    row = conn.execute(_ROW).one_or_none()
    left = 0.0 if row is None else row[2] - dialect_of(conn).clock(conn)
    if row is None or not 0 < left <= _LONGEST_SECONDS:
        return Ownership(epoch=0 if row is None else row[1])
    return Ownership(row[0], row[0] == name, row[1], row[3], left)


def take(conn: Connection, /, name: str, seconds: float, *, sole: bool = False) -> Ownership:
    """Take or renew the lease unless another process has it; return who has it then.

    Args:
        sole: Take it in any case.

    Cost: four statements.
    """
    dialect = dialect_of(conn)
    free = {"name": LEASE_NAME, "owner": "", "epoch": 0, "expires_at": 0.0, "acquired_at": 0.0}
    conn.execute(dialect.insert_ignore(table, ["name"]), free)
    owner, epoch, expires_at, since = conn.execute(_ROW.with_for_update()).one()
    now = dialect.clock(conn)
    left = expires_at - now
    if owner != name:
        if not sole and 0 < left <= _LONGEST_SECONDS:
            return Ownership(owner, False, epoch, since, left)
        epoch, since = epoch + 1, now
    values = {"owner": name, "epoch": epoch, "expires_at": now + seconds, "acquired_at": since}
    conn.execute(update(table).where(table.c.name == LEASE_NAME).values(values))
    return Ownership(name, True, epoch, since, seconds)


def give_back(conn: Connection, /, name: str, epoch: int) -> None:
    """End the lease at once, if it is still the one of this epoch."""
    mine = (table.c.name == LEASE_NAME) & (table.c.owner == name) & (table.c.epoch == epoch)
    conn.execute(update(table).where(mine).values(expires_at=0.0))


class Lease:
    """One process's side of the lease.

    Attributes:
        name: Of this process.
        kept: It stays between steps, as a daemon's does; otherwise each step gives it back.
    """

    def __init__(self, store: MigrationStore, name: str, *, sole: bool = False) -> None:
        """Have no lease yet.

        Args:
            sole: The operating system says that no other daemon is on the store: who has the lease has died.
        """
        self._sole = sole
        self._store = store
        self.name = name
        self.kept = False
        self._seconds = LEASE_SECONDS
        self._held = Ownership()
        self._renew_at = 0.0

    async def own(self, seconds: float) -> Ownership:
        """Take the lease and keep it, or see who has it; writes only when a third of it has gone by, or it is free."""
        self.kept, self._seconds = True, seconds
        if self._held.is_self:
            await self.renew()
            return self._held
        found: Ownership = await self._store.read(bound(read_ownership, self.name))
        is_free = self._sole or found.owner is None or found.is_self
        return await self.take() if is_free else found

    async def take(self) -> Ownership:
        """Take or renew it now; the result tells who has it."""
        script = bound(take, self.name, self._seconds, sole=self._sole)
        began = time.monotonic()
        found: Ownership = await self._store.maintain("progression_migrate.lease", script)
        self._held, self._renew_at = found, began + self._seconds / 3
        return found

    async def renew(self) -> None:
        """Renew it when a third of it has gone by; for a step that lasts."""
        if self._held.is_self and time.monotonic() >= self._renew_at:
            await self.take()

    async def give_back(self) -> None:
        """Let others take over at once; nothing happens without a lease."""
        held, self._held, self.kept = self._held, Ownership(), False
        if held.is_self:
            await self._store.maintain("progression_migrate.lease", bound(give_back, self.name, held.epoch))

    def forget(self) -> None:
        """Another process has it: ask again."""
        self._held = Ownership()
