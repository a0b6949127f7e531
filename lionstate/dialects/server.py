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

    def written_position(self, conn: Connection) -> int:
        """Position in the primary's write-ahead log: every commit until now lies before it; 0 without a server."""
        ...

    def replayed_position(self, conn: Connection) -> int | None:
        """Position up to which a replica shows what its primary wrote; None where this is no replica."""
        ...


class NoServer:
    """A library in our own process."""

    has_server = False

    def server_load(self, conn: Connection) -> ServerLoad | None:
        return None

    def written_position(self, conn: Connection) -> int:
        return 0

    def replayed_position(self, conn: Connection) -> int | None:
        return None


# Of other roles' sessions the ages are seen with pg_read_all_stats only, which an ordinary role does not have.
_LOAD = text(
    "SELECT coalesce(extract(epoch FROM clock_timestamp() - min(xact_start)), 0)::double precision,"
    " (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint FROM pg_stat_activity"
    " WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()"
)


# The position of insertion: with synchronous_commit = off an acknowledged commit may not be written yet.
_WRITTEN = text("SELECT (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint")
_REPLAYED = text("SELECT CASE WHEN pg_is_in_recovery() THEN (pg_last_wal_replay_lsn() - '0/0'::pg_lsn)::bigint END")


class PostgresqlServer:
    """A PostgreSQL server, asked in the session at hand."""

    has_server = True

    def server_load(self, conn: Connection) -> ServerLoad | None:
        seconds, position = conn.execute(_LOAD).one()
        return ServerLoad(max(0.0, float(seconds)), int(position))

    def written_position(self, conn: Connection) -> int:
        return int(conn.execute(_WRITTEN).scalar_one())

    def replayed_position(self, conn: Connection) -> int | None:
        found: int | None = conn.execute(_REPLAYED).scalar_one()
        return found
