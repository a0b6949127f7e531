"""The settings of an engine; the daemon fills them from its configuration."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

__all__ = ["EngineSettings"]


@dataclass(frozen=True, slots=True)
class EngineSettings:
    """How a store's connections behave.

    Attributes:
        synchronous: SQLite's durability: FULL survives a power cut, NORMAL may lose the last moments in one.
        busy_timeout_ms: The whole wait for the write lock before an operation ends as busy.
        pooler: ``transaction`` behind a PostgreSQL transaction pooler (design decision 35).
        replicas: URLs of PostgreSQL replicas of the store, one server each, for reads that may be old.
        sqlite_module: Which SQLite library: the standard library's, pysqlite3, or the newer of what is there.
        affected_sqlite: Whether a SQLite with the WAL-reset race is only reported or refused.
        exclusive: The operator says that no other process writes this file: no pauses for others.
        readers: Reader threads (SQLite) or read connections (PostgreSQL).
        lanes: Write connections on PostgreSQL.
        readonly: Open without any write.
        must_exist: Refuse a file or database that holds no store yet, instead of making one there.
        tidy: A read-only look leaves no log files of SQLite's beside a store that had none.
        transaction_limit_seconds: How long an explicit ``transaction()`` may stay open.
    """

    synchronous: Literal["FULL", "NORMAL", "EXTRA"] = "NORMAL"
    busy_timeout_ms: int = 5_000
    pooler: Literal["none", "transaction"] = "none"
    replicas: tuple[str, ...] = ()
    sqlite_module: Literal["auto", "stdlib", "pysqlite3"] = "stdlib"
    affected_sqlite: Literal["warn", "refuse"] = "warn"
    exclusive: bool = False
    readers: int = 3
    lanes: int = 4
    readonly: bool = False
    must_exist: bool = False
    tidy: bool = False
    transaction_limit_seconds: float = 30.0
