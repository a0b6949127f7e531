"""What LionAGI 0.36.0 leaves in a store and sends to it: the stored fixture, its catalogue, its statements.

The texts were taken from the driver's side of the package (`before_cursor_execute`) on both databases; `make
demo-lionagi` compares them with what the installed package sends.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import create_engine, select
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

from lionstate.schema import OWN_TABLES, RECORD_TABLES, metadata
from lionstate.schema.ddl import DELETE_TRIGGER, FENCE

__all__ = ["FIXTURE", "POSTGRESQL", "SQLITE", "Statement", "Statements", "catalogue", "copy_to_postgresql", "is_own"]

FIXTURE = Path(__file__).parents[1] / "fixtures" / "lionagi-0.36.0-small.db"

_OWN_TABLES = frozenset(table.name for table in OWN_TABLES)
_OWN_TRIGGERS = frozenset({FENCE, DELETE_TRIGGER})


def is_own(row: Sequence[Any]) -> bool:
    """Whether a row of a catalogue (kind, name, table, text) is lionstate's: an own table's, or one of the triggers."""
    kind, name, table, _ = row
    return table in _OWN_TABLES or (kind == "trigger" and name in _OWN_TRIGGERS)


def catalogue(path: Path) -> list[tuple[str, str, str, str | None]]:
    """Every row of ``sqlite_master``, through a plain connection."""
    conn = sqlite3.connect(f"file:{path}?mode=ro", uri=True)
    try:
        return conn.execute("SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY type, name").fetchall()
    finally:
        conn.close()


async def copy_to_postgresql(path: Path, url: str) -> None:
    """Create the records' tables in an empty database and fill them from a SQLite store."""
    source = create_engine(f"sqlite:///{path}", poolclass=NullPool)
    target = create_async_engine(url, poolclass=NullPool)
    wanted = [table for table in metadata.sorted_tables if table in RECORD_TABLES]
    with source.connect() as rows:
        async with target.begin() as conn:
            await conn.run_sync(lambda sync: metadata.create_all(sync, tables=wanted))
            for table in wanted:
                found = [dict(row) for row in rows.execute(select(table)).mappings()]
                if found:
                    await conn.execute(table.insert(), found)
    await target.dispose()


@dataclass(frozen=True)
class Statement:
    """A statement as the driver gets it, and which value each of its parameters is."""

    text: str
    names: tuple[str, ...]

    def arguments(self, values: Mapping[str, Any]) -> tuple[Any, ...]:
        """The parameters, in the statement's order."""
        return tuple(values[name] for name in self.names)


@dataclass(frozen=True)
class Statements:
    """What 0.36.0 sends to one database (numbers: reference §3.1)."""

    upsert_message: Statement
    append: Statement  # W3
    read_to_extend: Statement  # W4, then `replace`
    replace: Statement  # W2, W4
    touch: Statement

    def live(self) -> list[Statement]:
        """The transaction of a live message: W3 twice, for the branch and for the session."""
        return [self.upsert_message, self.append, self.touch]

    def extend(self) -> list[Statement]:
        """The transaction of a mirrored batch: W4."""
        return [self.upsert_message, self.read_to_extend, self.replace, self.touch]

    def wholesale(self) -> list[Statement]:
        """The transaction of ``set_progression``: W2."""
        return [self.replace]


_MESSAGE_COLUMNS = (
    "message",
    "now",
    "node_metadata",
    "content",
    "embedding",
    "sender",
    "recipient",
    "channel",
    "role",
    "lion_class",
)
_ON_CONFLICT = """
                   ON CONFLICT(id) DO UPDATE SET
                     node_metadata = excluded.node_metadata,
                     content       = excluded.content,
                     embedding     = excluded.embedding,
                     sender        = excluded.sender,
                     recipient     = excluded.recipient,
                     channel       = excluded.channel,
                     role          = excluded.role,
                     lion_class    = excluded.lion_class"""

SQLITE = Statements(
    upsert_message=Statement(
        """INSERT INTO messages (id, created_at, node_metadata, content,
                   embedding, sender, recipient, channel, role, lion_class)
                   VALUES (?, ?, ?, ?,
                           ?, ?, ?, ?, ?, ?)"""
        + _ON_CONFLICT,
        _MESSAGE_COLUMNS,
    ),
    append=Statement(
        "UPDATE progressions SET collection = json_insert(collection,'$[#]',?) WHERE id=? AND NOT EXISTS"
        " (SELECT 1 FROM json_each(progressions.collection) WHERE value=?)",
        ("message", "progression", "message"),
    ),
    read_to_extend=Statement("SELECT collection FROM progressions WHERE id = ?", ("progression",)),
    replace=Statement("UPDATE progressions SET collection = ? WHERE id = ?", ("collection", "progression")),
    touch=Statement(
        "UPDATE sessions SET last_message_at = MAX(COALESCE(last_message_at, 0), ?),"
        "     updated_at      = MAX(COALESCE(updated_at, 0), ?) WHERE id = ?",
        ("now", "now", "session"),
    ),
)

POSTGRESQL = Statements(
    upsert_message=Statement(
        """INSERT INTO messages (id, created_at, node_metadata, content,
                   embedding, sender, recipient, channel, role, lion_class)
                   VALUES ($1, $2, $3::JSON, $4::JSON,
                           $5, $6, $7, $8, $9, $10)"""
        + _ON_CONFLICT,
        _MESSAGE_COLUMNS,
    ),
    append=Statement(
        "UPDATE progressions SET collection = (collection::jsonb || to_jsonb(CAST($1 AS text)))::text WHERE id=$2"
        " AND NOT EXISTS (SELECT 1 FROM jsonb_array_elements_text(collection::jsonb) WHERE value=$1)",
        ("message", "progression"),
    ),
    read_to_extend=Statement("SELECT collection FROM progressions WHERE id = $1 FOR UPDATE", ("progression",)),
    replace=Statement("UPDATE progressions SET collection = $1 WHERE id = $2", ("collection", "progression")),
    touch=Statement(
        "UPDATE sessions SET last_message_at = GREATEST(COALESCE(last_message_at, 0), $1),"
        "     updated_at      = GREATEST(COALESCE(updated_at, 0), $1) WHERE id = $2",
        ("now", "session"),
    ),
)
