"""What the records need of a database and each writes in its own way."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from sqlalchemy import ColumnElement, Connection, Table

__all__ = ["MESSAGE_COLUMNS", "RecordIntents"]

MESSAGE_COLUMNS = (
    "id",
    "created_at",
    "node_metadata",
    "content",
    "embedding",
    "sender",
    "recipient",
    "channel",
    "role",
    "lion_class",
)


class RecordIntents(Protocol):
    """The part of the seam that serves messages, sessions and the audit trail."""

    def upsert_messages(self, conn: Connection, rows: Sequence[tuple[Any, ...]]) -> None:
        """Insert message rows in the given order; an id that exists keeps ``created_at`` and takes the rest.

        The values are in the order of ``MESSAGE_COLUMNS``, JSON as text; no id stands twice.
        """
        ...

    def touch_sessions(self, conn: Connection, activity: Mapping[str, float]) -> None:
        """Move ``last_message_at`` and ``updated_at`` of these sessions forward to a time, never back."""
        ...

    def set_system_messages(self, conn: Connection, messages: Mapping[str, str]) -> None:
        """Set ``system_msg_id`` of these branches."""
        ...

    def clock(self, conn: Connection) -> float:
        """The time that every process of this store agrees on: the server's, where there is one; epoch seconds."""
        ...

    def store_bytes(self, conn: Connection) -> int:
        """Bytes that the store takes on disk, the write-ahead log aside."""
        ...

    def used_bytes(self, conn: Connection) -> int:
        """Bytes in use by the store, free pages aside, or by the item rows alone where others may write meanwhile.

        To be compared within one write transaction: the difference is what its item rows take.
        """
        ...

    def text_holds(self, column: ColumnElement[Any], part: str) -> ColumnElement[bool]:
        """Build the test whether the text of a column holds another text, letter case and all."""
        ...

    def lock_tables(self, conn: Connection, tables: Sequence[Table]) -> None:
        """Keep every other transaction from changing or locking rows of these tables until this one ends."""
        ...

    def held_in_collections(
        self, conn: Connection, progression_ids: Sequence[str], message_ids: Sequence[str]
    ) -> set[str] | None:
        """Of these message ids, those that stand in the JSON values of these progressions.

        None when the database itself cannot read one of the values; the transaction goes on.
        """
        ...
