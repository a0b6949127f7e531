"""What a database server tells about its load and its transactions; a database that is a library has none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol, TypeAlias

from sqlalchemy import Connection, text
from sqlalchemy.util import await_only

from lionstate.dialects.statement import Statement

__all__ = [
    "MARK_COLUMNS",
    "SEEKS",
    "NoServer",
    "PostgresqlServer",
    "ServerIntents",
    "ServerLoad",
    "TransactionEnd",
    "TransactionMark",
    "note_mark",
]

SEEKS: Final = "lionstate.seeks"
"""In ``Connection.info``: outside of transactions the session plans as ``prefer_indexes`` would have it."""

TransactionEnd: TypeAlias = Literal["committed", "aborted", "in progress", "out of sight"]
"""What a server says of a transaction; ``out of sight``: it is not, or no longer, the server that ran it."""


@dataclass(frozen=True, slots=True)
class ServerLoad:
    """The load of a server now.

    Attributes:
        long_transaction_seconds: Age of the oldest open transaction of another session; 0 if there is none.
        wal_position: Bytes of write-ahead log written since the server was made.
    """

    long_transaction_seconds: float
    wal_position: int


@dataclass(frozen=True, slots=True)
class TransactionMark:
    """What a write transaction is found again by when the answer to its COMMIT was lost.

    Attributes:
        transaction: Its id, which a server gives a second time when a crash or a failover has lost the first.
        server_run: The uninterrupted run of the server that gave it; no crash and no failover lies within one.
    """

    transaction: int
    server_run: str


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

    def begin(self, conn: Connection) -> None:
        """Begin a transaction now, and not with its first statement."""
        ...

    def transaction_mark(self, conn: Connection) -> TransactionMark | None:
        """The mark of the running write transaction, None without a server.

        Cost: one statement, nothing is read; none where a statement of the transaction has brought it.
        """
        ...

    def transaction_end(self, conn: Connection, mark: TransactionMark) -> TransactionEnd:
        """What became of the transaction of a mark. Cost: one statement."""
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

    def begin(self, conn: Connection) -> None:
        conn.begin()

    def transaction_mark(self, conn: Connection) -> TransactionMark | None:
        return None

    def transaction_end(self, conn: Connection, mark: TransactionMark) -> TransactionEnd:
        return "out of sight"


# Of other roles' sessions the ages are seen with pg_read_all_stats only, which an ordinary role does not have.
_LOAD = text(
    "SELECT coalesce(extract(epoch FROM clock_timestamp() - min(xact_start)), 0)::double precision,"
    " (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint FROM pg_stat_activity"
    " WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()"
)


# The position of insertion: with synchronous_commit = off an acknowledged commit may not be written yet.
_WRITTEN = text("SELECT (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint")
_REPLAYED = text("SELECT CASE WHEN pg_is_in_recovery() THEN (pg_last_wal_replay_lsn() - '0/0'::pg_lsn)::bigint END")
# The start of the postmaster changes with every restart and every other server. It stays when a backend that crashed
# takes all others with it; the statistics do not, which such a recovery begins anew. System identifier and timeline add
# nothing: a server that takes writes changes neither without a restart.
_SERVER_RUN = (
    "concat_ws('/', extract(epoch FROM pg_postmaster_start_time()),"
    " extract(epoch FROM pg_stat_get_bgwriter_stat_reset_time()))"
)
MARK_COLUMNS: Final = f"CAST(CAST(pg_current_xact_id() AS text) AS bigint), {_SERVER_RUN}"
"""What ``note_mark`` takes, for a statement of a write transaction that has one row."""

_MARK = Statement(text(f"SELECT {MARK_COLUMNS}"))
_NOTED = "lionstate.mark"
_END = text(
    f"SELECT CASE WHEN {_SERVER_RUN} = :server_run THEN pg_xact_status(CAST(CAST(:transaction AS text) AS xid8)) END"
)


def note_mark(conn: Connection, columns: Sequence[Any]) -> None:
    """Keep what a statement brought of its transaction's mark, until the transaction ends."""
    conn.info[_NOTED] = TransactionMark(*columns)


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

    def begin(self, conn: Connection) -> None:
        conn.info.pop(_NOTED, None)
        conn.begin()
        # SQLAlchemy would begin with the first statement that goes through it: one that costs 90 us more.
        driver: Any = conn.connection.dbapi_connection
        await_only(driver._start_transaction())

    def transaction_mark(self, conn: Connection) -> TransactionMark | None:
        noted: TransactionMark | None = conn.info.pop(_NOTED, None)
        return noted or TransactionMark(*_MARK.rows(conn)[0])

    def transaction_end(self, conn: Connection, mark: TransactionMark) -> TransactionEnd:
        values = {"server_run": mark.server_run, "transaction": str(mark.transaction)}
        found: TransactionEnd | None = conn.execute(_END, values).scalar_one()
        return found or "out of sight"
