"""The floor: the same transactions written by hand on the bare driver, as a careful person would write them.

An append tests membership, takes the ordinal from the allocator and moves it. A message is an upsert, two appends
and the session's activity. Nothing is left out that makes the result right, and nothing is added.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import asyncpg

from tests.bench.stores import Conversation, plain_dsn

__all__ = ["PostgresqlFloor", "SqliteFloor"]

_NEXT = "SELECT phase, next_ordinal FROM progression_storage_state WHERE progression_id = ?"
_IS_ITEM = "SELECT 1 FROM progression_items WHERE progression_id = ? AND message_id = ? LIMIT 1"
_ITEM = "INSERT INTO progression_items (progression_id, ordinal, message_id) VALUES (?, ?, ?)"
_ADVANCE = "UPDATE progression_storage_state SET next_ordinal = ? WHERE progression_id = ?"
_UPSERT = (
    "INSERT INTO messages (id, created_at, node_metadata, content, sender, recipient, channel, role, lion_class)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET node_metadata = excluded.node_metadata,"
    " content = excluded.content, sender = excluded.sender, recipient = excluded.recipient,"
    " channel = excluded.channel, role = excluded.role, lion_class = excluded.lion_class"
)
_TOUCH = (
    "UPDATE sessions SET last_message_at = max(coalesce(last_message_at, 0), ?), updated_at = max(updated_at, ?)"
    " WHERE id = ?"
)


def _row(message: dict[str, Any]) -> tuple[Any, ...]:
    return (
        message["id"],
        message["created_at"],
        json.dumps(message["node_metadata"]),
        json.dumps(message["content"]),
        message["sender"],
        message["recipient"],
        message["channel"],
        message["role"],
        3,
    )


class SqliteFloor:
    """One raw connection with the pragmas of lionstate's writer, and a log that may grow as long as that one's."""

    def __init__(self, path: Path, module: ModuleType, synchronous: str) -> None:
        """Connect."""
        self.driver = module.connect(str(path), isolation_level=None, cached_statements=512, check_same_thread=False)
        for pragma in (
            "busy_timeout = 5000",
            "journal_mode = WAL",
            f"synchronous = {synchronous}",
            "foreign_keys = ON",
            "cache_size = -64000",
            "wal_autocheckpoint = 8000",
        ):
            self.driver.execute(f"PRAGMA {pragma}")

    def _append(self, execute: Any, pid: str, mid: str) -> None:
        _, following = execute(_NEXT, (pid,)).fetchone()
        if execute(_IS_ITEM, (pid, mid)).fetchone() is None:
            execute(_ITEM, (pid, following, mid))
            execute(_ADVANCE, (following + 1, pid))

    def append(self, pid: str, mid: str) -> None:
        """One append in a transaction of its own."""
        execute = self.driver.execute
        execute("BEGIN IMMEDIATE")
        self._append(execute, pid, mid)
        execute("COMMIT")

    def record(self, message: dict[str, Any], conversation: Conversation, places: int = 2) -> None:
        """One message in a transaction of its own, on its branch and, as the second place, on its session."""
        execute = self.driver.execute
        row, now = _row(message), time.time()
        execute("BEGIN IMMEDIATE")
        execute(_UPSERT, row)
        for pid in conversation.progressions[:places]:
            self._append(execute, pid, message["id"])
        execute(_TOUCH, (now, now, conversation.session))
        execute("COMMIT")

    def append_batch(self, pairs: Sequence[tuple[str, str]]) -> None:
        """So many appends in one transaction, each progression advanced once."""
        self.driver.execute("BEGIN IMMEDIATE")
        self._append_all(pairs)
        self.driver.execute("COMMIT")

    def _append_all(self, pairs: Sequence[tuple[str, str]]) -> None:
        execute = self.driver.execute
        following: dict[str, int] = {}
        items = []
        for pid, mid in pairs:
            if pid not in following:
                following[pid] = execute(_NEXT, (pid,)).fetchone()[1]
            if execute(_IS_ITEM, (pid, mid)).fetchone() is None:
                items.append((pid, following[pid], mid))
                following[pid] += 1
        self.driver.executemany(_ITEM, items)
        self.driver.executemany(_ADVANCE, [(count, pid) for pid, count in following.items()])

    def record_batch(self, batch: Sequence[tuple[dict[str, Any], Conversation]]) -> None:
        """So many messages in one transaction."""
        rows, now = [_row(message) for message, _ in batch], time.time()
        self.driver.execute("BEGIN IMMEDIATE")
        self.driver.executemany(_UPSERT, rows)
        self._append_all([(pid, message["id"]) for message, talk in batch for pid in talk.progressions])
        self.driver.executemany(_TOUCH, [(now, now, session) for session in {talk.session for _, talk in batch}])
        self.driver.execute("COMMIT")

    def tail(self, pid: str, count: int) -> list[str]:
        """The newest ids."""
        sql = "SELECT message_id FROM progression_items WHERE progression_id = ? ORDER BY ordinal DESC LIMIT ?"
        return [row[0] for row in self.driver.execute(sql, (pid, count))]

    def close(self) -> None:
        """Disconnect."""
        self.driver.close()


_PG_PARENTS = 'SELECT id FROM progressions WHERE id = ANY($1::text[]) ORDER BY id COLLATE "C" FOR NO KEY UPDATE'
_PG_STATES = (
    "SELECT progression_id, next_ordinal FROM progression_storage_state WHERE progression_id = ANY($1::text[])"
    ' ORDER BY progression_id COLLATE "C" FOR UPDATE'
)
_PG_EXISTING = (
    "SELECT g.pid, g.mid FROM unnest($1::text[], $2::text[]) AS g(pid, mid) CROSS JOIN LATERAL"
    " (SELECT 1 FROM progression_items i WHERE i.progression_id = g.pid AND i.message_id = g.mid LIMIT 1) AS hit"
)
_PG_ITEMS = (
    "INSERT INTO progression_items (progression_id, ordinal, message_id)"
    " SELECT * FROM unnest($1::text[], $2::bigint[], $3::text[])"
)
_PG_ADVANCE = (
    "UPDATE progression_storage_state s SET next_ordinal = g.following"
    " FROM unnest($1::text[], $2::bigint[]) AS g(pid, following) WHERE s.progression_id = g.pid"
)
_PG_UPSERT = (
    "INSERT INTO messages (id, created_at, node_metadata, content, sender, recipient, channel, role, lion_class)"
    " SELECT id, created_at, node_metadata::json, content::json, sender, recipient, channel, role, lion_class"
    " FROM unnest($1::text[], $2::float8[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[],"
    " $9::int[]) AS g(id, created_at, node_metadata, content, sender, recipient, channel, role, lion_class)"
    " ON CONFLICT (id) DO UPDATE SET node_metadata = excluded.node_metadata, content = excluded.content,"
    " sender = excluded.sender, recipient = excluded.recipient, channel = excluded.channel, role = excluded.role,"
    " lion_class = excluded.lion_class"
)
_PG_TOUCH = (
    "UPDATE sessions SET last_message_at = greatest(last_message_at, $2), updated_at = greatest(updated_at, $2)"
    " WHERE id = ANY($1::text[])"
)


class PostgresqlFloor:
    """One raw asyncpg connection: locks first, then set-based statements."""

    def __init__(self, conn: Any) -> None:
        """Use ``open``."""
        self.conn = conn

    @classmethod
    async def open(cls, url: str) -> PostgresqlFloor:
        """Connect."""
        return cls(await asyncpg.connect(plain_dsn(url), server_settings={"jit": "off"}))

    async def append(self, pid: str, mid: str) -> None:
        """One append in a transaction of its own."""
        await self.append_batch([(pid, mid)])

    async def append_batch(self, pairs: Sequence[tuple[str, str]]) -> None:
        """So many appends in one transaction."""
        async with self.conn.transaction():
            await self._append_all(pairs)

    async def record(self, message: dict[str, Any], conversation: Conversation) -> None:
        """One message in a transaction of its own."""
        await self.record_batch([(message, conversation)])

    async def record_batch(self, batch: Sequence[tuple[dict[str, Any], Conversation]]) -> None:
        """So many messages in one transaction."""
        columns = list(map(list, zip(*(_row(message) for message, _ in batch), strict=True)))
        now = time.time()
        async with self.conn.transaction():
            pairs = [(pid, message["id"]) for message, talk in batch for pid in talk.progressions]
            await self._append_all(pairs)
            await self.conn.execute(_PG_UPSERT, *columns)
            await self.conn.execute(_PG_TOUCH, sorted({talk.session for _, talk in batch}), now)

    async def _append_all(self, pairs: Sequence[tuple[str, str]]) -> None:
        conn = self.conn
        pids = sorted({pid for pid, _ in pairs})
        await conn.fetch(_PG_PARENTS, pids)
        following = {row[0]: row[1] for row in await conn.fetch(_PG_STATES, pids)}
        left, right = zip(*pairs, strict=True)
        found = {(row[0], row[1]) for row in await conn.fetch(_PG_EXISTING, left, right)}
        items = []
        for pid, mid in pairs:
            if (pid, mid) not in found:
                items.append((pid, following[pid], mid))
                following[pid] += 1
        if items:
            await conn.execute(_PG_ITEMS, *map(list, zip(*items, strict=True)))
            await conn.execute(_PG_ADVANCE, list(following), list(following.values()))

    async def close(self) -> None:
        """Disconnect."""
        await self.conn.close()
