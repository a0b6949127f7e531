"""Triggers of a SQLite store."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection, text

from lionstate.schema.ddl import DELETE_TRIGGER, FENCE, FENCE_MESSAGE

__all__ = ["SqliteSchema"]

# The state row is looked up first: comparing two large values costs more than one seek.
_CREATE_FENCE: Final = f"""CREATE TRIGGER {FENCE} BEFORE UPDATE OF collection ON progressions FOR EACH ROW
WHEN EXISTS (
  SELECT 1 FROM progression_storage_state
  WHERE progression_id = OLD.id AND authority <> 'json' AND replacing = 0
) AND NEW.collection IS NOT OLD.collection
BEGIN
  SELECT RAISE(ABORT, '{FENCE_MESSAGE}');
END"""

_CREATE_DELETE_TRIGGER: Final = f"""CREATE TRIGGER {DELETE_TRIGGER} AFTER DELETE ON progressions FOR EACH ROW
BEGIN
  DELETE FROM progression_items WHERE progression_id = OLD.id;
  DELETE FROM progression_storage_state WHERE progression_id = OLD.id;
  DELETE FROM progression_sizes WHERE progression_id = OLD.id;
  DELETE FROM progression_activity WHERE progression_id = OLD.id;
  DELETE FROM progression_orders WHERE progression_id = OLD.id;
  DELETE FROM progression_proofs WHERE progression_id = OLD.id;
END"""

_DROP: Final = "DROP TRIGGER IF EXISTS {name}"
_EXISTS: Final = text(
    "SELECT 1 FROM sqlite_master WHERE type = 'trigger' AND name = :name AND tbl_name = 'progressions'"
)


class SqliteSchema:
    """Schema statements of SQLite; see `SchemaDialect`."""

    shares_database = False

    def lock_schema(self, conn: Connection, /) -> None:
        """Do nothing: BEGIN IMMEDIATE, which the caller ran, is the lock."""

    def install_fence(self, conn: Connection, /) -> None:
        """Create the fence. Known holes: REPLACE, and a connection that drops it (decision 21)."""
        self.remove_fence(conn)
        conn.exec_driver_sql(_CREATE_FENCE)

    def remove_fence(self, conn: Connection, /) -> None:
        """Drop the fence."""
        conn.exec_driver_sql(_DROP.format(name=FENCE))

    def fence_exists(self, conn: Connection, /) -> bool:
        """Say whether the fence is on `progressions`."""
        return conn.execute(_EXISTS, {"name": FENCE}).first() is not None

    def install_delete_trigger(self, conn: Connection, /) -> None:
        """Create the delete trigger: the `foreign_keys` pragma is off in a plain connection (decision 22)."""
        self.remove_delete_trigger(conn)
        conn.exec_driver_sql(_CREATE_DELETE_TRIGGER)

    def delete_trigger_exists(self, conn: Connection, /) -> bool:
        """Say whether the delete trigger is on `progressions`."""
        return conn.execute(_EXISTS, {"name": DELETE_TRIGGER}).first() is not None

    def remove_delete_trigger(self, conn: Connection, /) -> None:
        """Drop the delete trigger."""
        conn.exec_driver_sql(_DROP.format(name=DELETE_TRIGGER))

    def message_type_ids_behind(self, conn: Connection, /) -> int:
        """Return 0: the id is the rowid, which cannot fall behind."""
        return 0

    def advance_message_type_ids(self, conn: Connection, /) -> None:
        """Do nothing, see `message_type_ids_behind`."""
