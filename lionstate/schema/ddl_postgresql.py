"""Triggers, locks and the sequence of a PostgreSQL store."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection, text

from lionstate.schema.ddl import FENCE, FENCE_MESSAGE

__all__ = ["PostgresqlSchema"]

# Any fixed number; all lionstate versions must use the same one.
_LOCK_KEY: Final = 0x6C696F6E73746174

# Integrity class 23, so that a refusal is an IntegrityError on both databases. VOLATILE gives the lookup a
# snapshot of its own, later than the row lock that the UPDATE waited for. The comparison stands apart because
# the operands of AND may be evaluated in any order, and comparing detoasts both values.
_FENCE_FUNCTION: Final = """CREATE OR REPLACE FUNCTION {schema}.{name}() RETURNS trigger
LANGUAGE plpgsql VOLATILE SECURITY DEFINER SET search_path = pg_catalog, {schema}, pg_temp AS $fence$
BEGIN
  IF EXISTS (
    SELECT 1 FROM {schema}.progression_storage_state AS s
    WHERE s.progression_id = OLD.id AND s.authority <> 'json' AND s.replacing = 0
  ) THEN
    IF NEW.collection IS DISTINCT FROM OLD.collection THEN
      RAISE EXCEPTION USING MESSAGE = '{message}', ERRCODE = '23000';
    END IF;
  END IF;
  RETURN NEW;
END
$fence$"""
_FENCE_TRIGGER: Final = """CREATE TRIGGER {name} BEFORE UPDATE OF collection ON {schema}.progressions
FOR EACH ROW EXECUTE FUNCTION {schema}.{name}()"""
_FENCE_PRIVATE: Final = "REVOKE ALL ON FUNCTION {schema}.{name}() FROM PUBLIC"
_DROP_TRIGGER: Final = "DROP TRIGGER IF EXISTS {name} ON {schema}.progressions"
_DROP_FUNCTION: Final = "DROP FUNCTION IF EXISTS {schema}.{name}()"

# 'D' is disabled, 'R' fires in replicas only.
_FENCE_EXISTS: Final = text(
    "SELECT 1 FROM pg_catalog.pg_trigger WHERE tgname = :name AND tgenabled IN ('O', 'A')"
    " AND tgrelid = pg_catalog.to_regclass('progressions')"
)
_SCHEMA_OF_PROGRESSIONS: Final = text(
    "SELECT n.nspname FROM pg_catalog.pg_class AS c"
    " JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace"
    " WHERE c.oid = pg_catalog.to_regclass('progressions')"
)
_IDS_BEHIND: Final = text(
    "SELECT q.top - coalesce(pg_catalog.pg_sequence_last_value(q.seq), 0) FROM ("
    " SELECT (SELECT max(type_id) FROM message_types) AS top,"
    " pg_catalog.pg_get_serial_sequence('message_types', 'type_id')::regclass AS seq) AS q"
    " WHERE q.seq IS NOT NULL AND q.top IS NOT NULL"
)
# nextval, not setval: a value that another process draws meanwhile can never be handed out again.
_DRAW_IDS: Final = text(
    "SELECT count(pg_catalog.nextval("
    "pg_catalog.pg_get_serial_sequence('message_types', 'type_id')::pg_catalog.regclass))"
    " FROM generate_series(1, :ids)"
)
_DRAWN_AT_MOST: Final = 10_000


class PostgresqlSchema:
    """Schema statements of PostgreSQL; see `SchemaDialect`."""

    shares_database = True

    def lock_schema(self, conn: Connection, /) -> None:
        """Take the transaction-scoped advisory lock, which works behind a transaction pooler too."""
        conn.execute(text("SELECT pg_catalog.pg_advisory_xact_lock(:key)"), {"key": _LOCK_KEY})

    def install_fence(self, conn: Connection, /) -> None:
        """Create the fence function and its trigger, which takes SHARE ROW EXCLUSIVE on `progressions`."""
        self._run(conn, _FENCE_FUNCTION, _FENCE_PRIVATE, _DROP_TRIGGER, _FENCE_TRIGGER)

    def remove_fence(self, conn: Connection, /) -> None:
        """Drop the fence trigger, then its function."""
        self._run(conn, _DROP_TRIGGER, _DROP_FUNCTION)

    def fence_exists(self, conn: Connection, /) -> bool:
        """Say whether the fence is on `progressions` and enabled."""
        return conn.execute(_FENCE_EXISTS, {"name": FENCE}).first() is not None

    def install_delete_trigger(self, conn: Connection, /) -> None:
        """Do nothing: the foreign keys of the own tables cannot be switched off by an ordinary session."""

    def delete_trigger_exists(self, conn: Connection, /) -> bool:
        """Return True, see `install_delete_trigger`."""
        return True

    def remove_delete_trigger(self, conn: Connection, /) -> None:
        """Do nothing, see `install_delete_trigger`."""

    def message_type_ids_behind(self, conn: Connection, /) -> int:
        """Compare the sequence of `message_types.type_id` with the highest id; 0 without a sequence."""
        return max(0, conn.execute(_IDS_BEHIND).scalar() or 0)

    def advance_message_type_ids(self, conn: Connection, /) -> None:
        """Draw the ids in use from the sequence, 10,000 at most; the next open goes on."""
        behind = self.message_type_ids_behind(conn)
        if behind:
            conn.execute(_DRAW_IDS, {"ids": min(behind, _DRAWN_AT_MOST)})

    def _run(self, conn: Connection, /, *statements: str) -> None:
        # The schema that unqualified statements reach, which need not be the first of the search path.
        schema = conn.execute(_SCHEMA_OF_PROGRESSIONS).scalar_one()
        quoted = conn.dialect.identifier_preparer.quote_identifier(schema)
        for statement in statements:
            conn.exec_driver_sql(statement.format(schema=quoted, name=FENCE, message=FENCE_MESSAGE))
