"""What schema objects a database needs beyond its tables: the interface of the two `ddl_` modules."""

from __future__ import annotations

from typing import Final, Protocol

from sqlalchemy import Connection

__all__ = ["DELETE_TRIGGER", "FENCE", "FENCE_MESSAGE", "SchemaDialect"]

DELETE_TRIGGER: Final = "lionstate_progressions_delete"
FENCE: Final = "lionstate_progressions_fence"
# Goes into SQL literals as it stands: no quotes, no percent signs.
FENCE_MESSAGE: Final = "progression is normalized; use lionstate (or the bridge lionstate.lionagi)"


class SchemaDialect(Protocol):
    """The statements of the schema room that SQLite and PostgreSQL spell differently."""

    # A database without schema_meta may hold tables of others and is still new.
    shares_database: bool

    def lock_schema(self, conn: Connection, /) -> None:
        """Wait until no other process changes the schema; held to the end of the transaction."""

    def install_fence(self, conn: Connection, /) -> None:
        """Create the fence, or put the present version in its place."""

    def remove_fence(self, conn: Connection, /) -> None:
        """Drop the fence; nothing happens if there is none."""

    def fence_exists(self, conn: Connection, /) -> bool:
        """Say whether the fence is there and fires."""

    def install_delete_trigger(self, conn: Connection, /) -> None:
        """Create what removes own rows of a deleted progression, where foreign keys can be off."""

    def delete_trigger_exists(self, conn: Connection, /) -> bool:
        """Say whether deletes are covered, by the trigger or by the database itself."""

    def remove_delete_trigger(self, conn: Connection, /) -> None:
        """Drop the delete trigger; nothing happens if there is none."""

    def message_type_ids_behind(self, conn: Connection, /) -> int:
        """Count the ids that the message type sequence would hand out a second time."""

    def advance_message_type_ids(self, conn: Connection, /) -> None:
        """Move that sequence past the ids in use; never backwards."""
