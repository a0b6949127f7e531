"""The small integers that stand for message classes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sqlalchemy import Connection, bindparam, select

from lionstate.dialects import Statement, dialect_of
from lionstate.errors import ConflictError
from lionstate.schema.conversation import message_types

__all__ = ["UNKNOWN_CLASS", "class_ids"]

UNKNOWN_CLASS = 0
# Each try draws a number from PostgreSQL's sequence, which may stand behind the ids in use.
_MOST_TRIES = 20

_FIND = Statement(
    select(message_types.c.lion_class, message_types.c.type_id).where(message_types.c.lion_class == bindparam("name"))
)


def class_ids(conn: Connection, /, names: Iterable[str], known: Mapping[str, int]) -> dict[str, int]:
    """The id of each class, inserting those that no store row has yet.

    Args:
        known: Ids that were learned before; no statement is run for them.
    Returns:
        The ids of ``names`` that are not ``known``: to be learned once the transaction has committed.

    Cost: nothing for known classes, else one read each; an unseen class also an insert. Concurrent inserts of one
    class wait for each other and end with one row.
    Contract: ADR-0055 D1; reference §2.1.
    """
    found: dict[str, int] = {}
    for name in sorted(set(names) - known.keys()):
        for _ in range(_MOST_TRIES):
            rows = _FIND.rows(conn, {"name": name})
            if rows:
                found[name] = int(rows[0][1])
                break
            _insert(conn, name)
        else:
            raise ConflictError("no id could be drawn for a new message class")
    return found


_INSERT_FOR: dict[str, Statement] = {}


def _insert(conn: Connection, name: str) -> None:
    dialect = dialect_of(conn).capabilities.name
    if dialect not in _INSERT_FOR:
        statement = dialect_of(conn).insert_ignore(message_types).values(lion_class=bindparam("name"))
        _INSERT_FOR[dialect] = Statement(statement)
    _INSERT_FOR[dialect].run(conn, {"name": name})
