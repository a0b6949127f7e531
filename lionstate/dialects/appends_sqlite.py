"""One append to item rows of a SQLite store: looked at and written in the transaction, which is the lock."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection, bindparam, insert, update

from lionstate.dialects.appends import LOOK, TriedAppend
from lionstate.dialects.statement import Statement
from lionstate.schema.own import progression_items, progression_storage_state

__all__ = ["ADVANCE", "INSERT_ITEM", "SqliteAppends"]

INSERT_ITEM: Final = Statement(insert(progression_items))
ADVANCE: Final = Statement(
    update(progression_storage_state)
    .where(progression_storage_state.c.progression_id == bindparam("pid"))
    .values(next_ordinal=bindparam("following"))
)


class SqliteAppends:
    """The single append of a SQLite store."""

    def try_append(self, conn: Connection, progression_id: str, message_id: str) -> TriedAppend:
        driver, look = LOOK.on_driver(conn)
        row = driver.execute(look, (progression_id, message_id, progression_id)).fetchone()
        if row is None or row[1] != "items" or row[2] != "items":
            return TriedAppend(False, looked=(row,))
        is_member, generation, ordinal = row[0], row[3], row[4]
        if not is_member:
            driver.execute(INSERT_ITEM.text(conn), (progression_id, ordinal, message_id))
            driver.execute(ADVANCE.text(conn), (ordinal + 1, progression_id))
        return TriedAppend(True, generation=generation)
