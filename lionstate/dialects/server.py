"""What a database server tells about its load; a database that is a library has none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from sqlalchemy import Connection, text

__all__ = ["NoServer", "PostgresqlServer", "ServerIntents", "ServerLoad"]


@dataclass(frozen=True, slots=True)
class ServerLoad:
    """The load of a server now.

    Attributes:
        long_transaction_seconds: Age of the oldest open transaction of another session; 0 if there is none.
        wal_position: Bytes of write-ahead log written since the server was made.
    """

    long_transaction_seconds: float
    wal_position: int


class ServerIntents(Protocol):
    """The part of the seam that looks at the server.

    Attributes:
        has_server: Whether there is one to ask.
    """

    has_server: bool

    def server_load(self, conn: Connection) -> ServerLoad | None:
        """Ask the server; None where there is none. Cost: one pass over its sessions."""
        ...


class NoServer:
    """A library in our own process."""

    has_server = False

    def server_load(self, conn: Connection) -> ServerLoad | None:
        return None


# Of other roles' sessions the ages are seen with pg_read_all_stats only, which an ordinary role does not have.
_LOAD = text(
    "SELECT coalesce(extract(epoch FROM clock_timestamp() - min(xact_start)), 0)::double precision,"
    " (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint FROM pg_stat_activity"
    " WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()"
)


class PostgresqlServer:
    """A PostgreSQL server, asked in the session at hand."""

    has_server = True

    def server_load(self, conn: Connection) -> ServerLoad | None:
        seconds, position = conn.execute(_LOAD).one()
        return ServerLoad(max(0.0, float(seconds)), int(position))
