"""Appends to progressions in ``items``: what an ``Appender`` would do, without what it weighs for the other phases."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Final, NamedTuple

from sqlalchemy import Connection, bindparam, select

from lionstate.dialects import Statement, dialect_of
from lionstate.dialects.statement import Row
from lionstate.engine import Reply
from lionstate.errors import StateError
from lionstate.progression.collection import check_new_id, is_valid_new_id
from lionstate.progression.storage_state import LockedForAppend, check_id, lock_for_append, looked_at
from lionstate.schema.own import progression_storage_state

__all__ = ["PlainAppends", "append_alone", "plain_appends"]

_state = progression_storage_state.c
# As phase and as authority.
_ITEMS: Final = "items"
_GENERATION: Final = Statement(select(_state.generation).where(_state.progression_id == bindparam("pid")))


def _is_there(conn: Connection, *, pair: tuple[str, str], generation: int) -> bool | None:
    """Whether an id stands among the items; None where it may have been taken away again since."""
    if dialect_of(conn).existing_items(conn, [pair]):
        return True
    now = _GENERATION.rows(conn, {"pid": pair[0]})
    return False if now and now[0][0] == generation else None


class PlainAppends(NamedTuple):
    """Appends to progressions that are all in ``items``: rows to insert, allocators to advance, their generations."""

    items: list[tuple[str, int, str]]
    following: dict[str, int]
    generations: dict[str, int]

    def write(self, conn: Connection) -> None:
        """Write them. Cost: one insert of all items, one UPDATE of all allocators."""
        dialect = dialect_of(conn)
        dialect.insert_items(conn, self.items)
        dialect.advance_states(conn, self.following)

    def are_there(self, conn: Connection) -> bool | None:
        """Whether they stand in the store; None where that cannot be told, or in part."""
        found = {
            _is_there(conn, pair=(progression, message_id), generation=self.generations[progression])
            for progression, _, message_id in self.items
        }
        return found.pop() if len(found) == 1 else None


def plain_appends(looked: Sequence[Row | None], pairs: Sequence[tuple[str, str]]) -> PlainAppends | StateError | None:
    """What an ``Appender`` would do with one call whose progressions are all in ``items``, for a third of its cost.

    Args:
        looked: What ``LOOK`` found of each pair.
    Returns:
        None where one of them is not; the error that refuses the call.
    """
    refused: StateError | None = None
    items: dict[tuple[str, str], int] = {}
    following: dict[str, int] = {}
    generations: dict[str, int] = {}
    for pair, row in zip(pairs, looked, strict=True):
        if row is None:
            continue
        if row[1] != _ITEMS or row[2] != _ITEMS:
            return None
        progression, message_id = pair
        generations[progression] = row[3]
        if row[0] or pair in items:
            continue
        try:
            check_new_id(message_id)
        except StateError as error:
            refused = refused or error
        ordinal: int = following[progression] if progression in following else row[4]
        items[pair] = ordinal
        following[progression] = ordinal + 1
    rows = [(progression, ordinal, message_id) for (progression, message_id), ordinal in items.items()]
    return refused or PlainAppends(rows, following, generations)


def append_alone(conn: Connection, pair: tuple[str, str]) -> Reply | LockedForAppend | None:
    """One append where little is to be weighed, which is in ``items``, for a fifth of what an ``Appender`` costs.

    Returns:
        What a fold returns for it; else the locked rows, of which nothing was written.

    Cost: that of ``try_append``.
    """
    dialect, progression_id = dialect_of(conn), check_id(pair[0])
    if not is_valid_new_id(pair[1]):
        # It may not be new, but it may be there: to be looked at first.
        return lock_for_append(conn, [pair])
    is_settled, parents, looked, generation = dialect.try_append(conn, progression_id, pair[1])
    if not is_settled:
        return lock_for_append(conn, [pair], parents) if looked is None else looked_at([(pair, looked[0])])
    if generation is None:
        return None
    return Reply(None, is_there=functools.partial(_is_there, pair=pair, generation=generation))
