"""One append to item rows in one statement of a PostgreSQL server, behind the parent's lock (design decision 10)."""

from __future__ import annotations

from sqlalchemy import Connection, text

from lionstate.dialects.appends import ParentRow, TriedAppend
from lionstate.dialects.server import MARK_COLUMNS, note_mark
from lionstate.dialects.statement import Statement

__all__ = ["TRY_APPEND", "PostgresqlAppends"]

# The statement looks with a snapshot from before it waited for the parent. What it saw counts only if the state row,
# once locked, is still the one of that snapshot: an append moves the allocator, and whatever deletes or rewrites item
# rows draws a new generation (design decision 4). A lock that meets a later version of its row tests the conditions
# against that one, and the row of `seen` against it stays that of the snapshot. Membership is found by a LATERAL, as
# for many.
TRY_APPEND = Statement(
    text(
        "WITH parent AS MATERIALIZED ("
        "SELECT id, xmin::text::bigint AS version FROM progressions WHERE id = CAST(:pid AS text) FOR NO KEY UPDATE"
        "), seen AS MATERIALIZED ("
        "SELECT progression_id, generation, next_ordinal, EXISTS ("
        "SELECT 1 FROM unnest(ARRAY[CAST(:pid AS text)], ARRAY[CAST(:mid AS text)]) AS g(pid, mid) CROSS JOIN LATERAL"
        " (SELECT 1 FROM progression_items i WHERE i.progression_id = g.pid AND i.message_id = g.mid"
        " ORDER BY i.progression_id, i.message_id LIMIT 1) AS hit) AS is_member"
        " FROM progression_storage_state WHERE progression_id = CAST(:pid AS text)"
        " AND phase || authority = 'itemsitems'"
        "), locked AS MATERIALIZED ("
        "SELECT s.progression_id, s.next_ordinal, seen.is_member FROM parent, seen, progression_storage_state AS s"
        " WHERE s.progression_id = parent.id AND s.progression_id = seen.progression_id"
        " AND s.phase || s.authority = 'itemsitems'"
        " AND s.generation = seen.generation AND s.next_ordinal = seen.next_ordinal FOR UPDATE OF s"
        "), advanced AS ("
        "UPDATE progression_storage_state AS s SET next_ordinal = locked.next_ordinal + 1"
        " FROM locked WHERE s.progression_id = locked.progression_id AND NOT locked.is_member"
        " RETURNING s.progression_id, locked.next_ordinal AS ordinal"
        "), added AS ("
        "INSERT INTO progression_items (progression_id, ordinal, message_id)"
        " SELECT progression_id, ordinal, CAST(:mid AS text) FROM advanced RETURNING 1"
        ") SELECT parent.id, parent.version,"
        " EXISTS (SELECT 1 FROM added) OR EXISTS (SELECT 1 FROM locked WHERE is_member),"
        f" {MARK_COLUMNS} FROM parent"
    )
)


class PostgresqlAppends:
    """The single append of a PostgreSQL server."""

    def try_append(self, conn: Connection, progression_id: str, message_id: str) -> TriedAppend:
        rows = TRY_APPEND.rows(conn, {"pid": progression_id, "mid": message_id})
        if not rows:
            return TriedAppend(False, {})
        pid, version, is_settled, *mark = rows[0]
        note_mark(conn, mark)
        return TriedAppend(is_settled, {pid: ParentRow(pid, version)})
