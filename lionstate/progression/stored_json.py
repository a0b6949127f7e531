"""The JSON values as they stand in the store, one that is not even text among them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection

from lionstate.dialects import Statement, dialect_of

__all__ = ["stored_json"]


def stored_json(
    conn: Connection, statement: Statement, params: Mapping[str, Any], ids: Sequence[str]
) -> dict[str, Any]:
    """The values by progression, without those that are missing; bytes for a text that is not UTF-8.

    Args:
        statement: Gives (progression id, value).
        params: What it binds.
        ids: The progressions that it reads. Each is read alone where the driver cannot decode one of them.
    """
    dialect = dialect_of(conn)
    try:
        return {row[0]: row[1] for row in statement.rows(conn, params)}
    except Exception as error:
        if not dialect.is_undecodable(error):
            raise
    found = {progression_id: dialect.collection_of(conn, progression_id) for progression_id in ids}
    return {progression_id: value.value for progression_id, value in found.items() if value is not None}
