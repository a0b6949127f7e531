"""Stores with a history: conversations whose progressions are in ``items`` (or still JSON), made by plain inserts."""

from __future__ import annotations

import hashlib
import json
import sqlite3
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncpg

from lionstate import StateDB
from lionstate.progression.digest import digest_of
from lionstate.schema.triggers import install_fence

__all__ = ["Conversation", "History", "fill_postgresql", "fill_sqlite", "message", "new_sqlite", "plain_dsn"]

_TEXT = "The build is green again; the next step is to move the remaining callers and to delete the old table. " * 5
_CLASS = "lionagi.protocols.messages.assistant_response.AssistantResponse"
_STATE_COLUMNS = (
    "progression_id, phase, source_count, backfill_next, next_ordinal, frozen_count, source_digest, items_digest,"
    " updated_at, cutover_at, authority, generation, text_bytes, text_sha256"
)


def message(number: int, *, prefix: str = "m") -> dict[str, Any]:
    """One message as a live writer has it: about half a kilobyte of content."""
    return {
        "id": f"{prefix}{number:031d}"[:64],
        "created_at": 1_700_000_000.0 + number,
        "node_metadata": {"lion_class": _CLASS},
        "content": {"assistant_response": _TEXT, "n": number},
        "sender": "assistant",
        "recipient": "user",
        "channel": None,
        "role": "assistant",
    }


@dataclass(frozen=True, slots=True)
class Conversation:
    """A session with one branch; both progressions hold the same history.

    The session is over, so that no migration is held because another program seems to write it.
    """

    session: str
    branch: str
    session_progression: str
    branch_progression: str

    @classmethod
    def named(cls, name: str) -> Conversation:
        """The conversation of a short name; its ids are those that the store gets."""
        return cls(f"s-{name}", f"b-{name}", f"sp-{name}", f"bp-{name}")

    @property
    def progressions(self) -> tuple[str, str]:
        """Branch first, as a message is appended."""
        return (self.branch_progression, self.session_progression)


@dataclass(frozen=True, slots=True)
class History:
    """What a store holds before the clock starts.

    Attributes:
        conversations: By short name, the number of ids in both of its progressions.
        phase: ``items`` as after cutover, with the frozen JSON beside it; ``json`` as LionAGI left it.
        messages: Whether the ids have message rows.
    """

    conversations: Mapping[str, int]
    phase: str = "items"
    messages: bool = False


def ids_of(name: str, count: int) -> list[str]:
    """The ids of a history: 32 hexadecimal characters, in no order that an index could like."""
    return [hashlib.md5(f"{name}/{number}".encode()).hexdigest() for number in range(count)]


def _state_row(pid: str, ids: Sequence[str], text: str) -> tuple[Any, ...]:
    digest = digest_of(ids)
    size, sha = len(text.encode()), hashlib.sha256(text.encode()).hexdigest()
    generation = uuid.uuid4().int >> 66
    count = len(ids)
    return (pid, "items", count, count, count, count, digest, digest, 1.0, 1.0, "items", generation, size, sha)


def _message_rows(name: str, ids: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    for number, mid in enumerate(ids):
        made = message(number)
        yield (
            mid,
            made["created_at"],
            json.dumps(made["node_metadata"]),
            json.dumps(made["content"]),
            made["sender"],
            made["recipient"],
            made["role"],
            3,
        )


_MESSAGES = "id, created_at, node_metadata, content, sender, recipient, role, lion_class"


async def _make(state: StateDB, phase: str) -> None:
    """Create the tables, and the fence that a store with anything in ``items`` has."""
    async with state:
        if phase == "items":
            async with state.transaction() as transaction:
                await transaction.run(install_fence)


async def new_sqlite(path: Path, phase: str) -> None:
    """Create an empty store file for histories in this phase."""
    await _make(StateDB(path), phase)


def fill_sqlite(path: Path, history: History) -> None:
    """Put a history into a closed store and leave no write-ahead log."""
    driver = sqlite3.connect(path, isolation_level=None)
    driver.execute("PRAGMA synchronous = OFF")
    driver.execute("PRAGMA cache_size = -400000")
    driver.execute("BEGIN")
    for name, count in history.conversations.items():
        conversation = Conversation.named(name)
        ids = ids_of(name, count)
        text = json.dumps(ids)
        for pid in conversation.progressions:
            driver.execute("INSERT INTO progressions (id, created_at, collection) VALUES (?, 1.0, ?)", (pid, text))
            if history.phase == "items":
                driver.executemany(
                    "INSERT INTO progression_items (progression_id, ordinal, message_id) VALUES (?, ?, ?)",
                    ((pid, ordinal, mid) for ordinal, mid in enumerate(ids)),
                )
                marks = ",".join("?" * 14)
                driver.execute(
                    f"INSERT INTO progression_storage_state ({_STATE_COLUMNS}) VALUES ({marks})",
                    _state_row(pid, ids, text),
                )
        driver.execute(
            "INSERT INTO sessions (id, created_at, updated_at, progression_id, last_message_at, status)"
            " VALUES (?, 1.0, 1.0, ?, 1.0, 'completed')",
            (conversation.session, conversation.session_progression),
        )
        driver.execute(
            "INSERT INTO branches (id, created_at, session_id, progression_id) VALUES (?, 1.0, ?, ?)",
            (conversation.branch, conversation.session, conversation.branch_progression),
        )
        if history.messages:
            marks = ",".join("?" * 8)
            driver.executemany(f"INSERT INTO messages ({_MESSAGES}) VALUES ({marks})", _message_rows(name, ids))
    driver.execute("COMMIT")
    driver.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    driver.close()


def plain_dsn(url: str) -> str:
    """The DSN for asyncpg itself."""
    return url.replace("+asyncpg", "")


async def fill_postgresql(url: str, history: History) -> None:
    """Put a history into a database; its own tables are created and analyzed."""
    await _make(StateDB(url=url), history.phase)
    conn = await asyncpg.connect(plain_dsn(url))
    for name, count in history.conversations.items():
        conversation = Conversation.named(name)
        ids = ids_of(name, count)
        text = json.dumps(ids)
        async with conn.transaction():
            for pid in conversation.progressions:
                await conn.execute(
                    "INSERT INTO progressions (id, created_at, collection) VALUES ($1, 1.0, $2)", pid, text
                )
                if history.phase == "items":
                    await conn.copy_records_to_table(
                        "progression_items",
                        records=((pid, ordinal, mid) for ordinal, mid in enumerate(ids)),
                        columns=("progression_id", "ordinal", "message_id"),
                    )
                    marks = ",".join(f"${number}" for number in range(1, 15))
                    await conn.execute(
                        f"INSERT INTO progression_storage_state ({_STATE_COLUMNS}) VALUES ({marks})",
                        *_state_row(pid, ids, text),
                    )
            await conn.execute(
                "INSERT INTO sessions (id, created_at, updated_at, progression_id, last_message_at, status)"
                " VALUES ($1, 1.0, 1.0, $2, 1.0, 'completed')",
                conversation.session,
                conversation.session_progression,
            )
            await conn.execute(
                "INSERT INTO branches (id, created_at, session_id, progression_id) VALUES ($1, 1.0, $2, $3)",
                conversation.branch,
                conversation.session,
                conversation.branch_progression,
            )
            if history.messages:
                await conn.copy_records_to_table(
                    "messages", records=_message_rows(name, ids), columns=tuple(_MESSAGES.split(", "))
                )
    await conn.execute("VACUUM ANALYZE")
    await conn.execute("CHECKPOINT")
    await conn.close()
