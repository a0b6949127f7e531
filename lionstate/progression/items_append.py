"""Appends to progressions in ``items``: what an ``Appender`` would do, without what it weighs for the other phases."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Final, NamedTuple, TypeGuard

from sqlalchemy import Connection, bindparam, select

from lionstate.dialects import Statement, dialect_of
from lionstate.engine import Refused, Reply
from lionstate.errors import StateError
from lionstate.progression.collection import check_new_id, is_valid_new_id, text_fault
from lionstate.progression.phases import Authority, Phase
from lionstate.progression.storage_state import (
    AppendState,
    LockedForAppend,
    check_id,
    lock_for_append,
    look_at,
    looked_at,
)
from lionstate.schema.own import progression_storage_state

__all__ = ["PlainAppends", "append_alone", "plain_appends"]

_state = progression_storage_state.c
_GENERATION: Final = Statement(select(_state.generation).where(_state.progression_id == bindparam("pid")))
_ITEMS: Final = Phase.ITEMS.value
_ITEMS_SERVE: Final = Authority.ITEMS.value


def _is_plain(state: AppendState | None) -> TypeGuard[AppendState]:
    return state is not None and state.phase is Phase.ITEMS and state.authority is Authority.ITEMS


def _is_there(conn: Connection, *, pair: tuple[str, str], generation: int) -> bool | None:
    """Whether an id stands among the items; None where it may have been taken away again since."""
    if dialect_of(conn).existing_items(conn, [pair]):
        return True
    now = _GENERATION.rows(conn, {"pid": pair[0]})
    return False if now and now[0][0] == generation else None


def _append_one(conn: Connection, pair: tuple[str, str]) -> Refused | Reply | LockedForAppend:
    """What an ``Appender`` does with one id of a progression in ``items``, for a fifth of its cost; else what it needs.

    For where the transaction is the lock.
    """
    progression_id, message_id = pair
    row = look_at(conn, pair)
    if row is None or row[2] != _ITEMS or row[3] != _ITEMS_SERVE:
        return looked_at([(pair, row)])
    is_member, generation, ordinal = row[0], row[4], row[5]
    if not is_member:
        try:
            check_new_id(message_id)
        except StateError as error:
            return Refused(error)
        dialect = dialect_of(conn)
        dialect.insert_items(conn, ((progression_id, ordinal, message_id),))
        dialect.advance_states(conn, {progression_id: ordinal + 1})
    return Reply(None, is_there=functools.partial(_is_there, pair=pair, generation=generation))


class PlainAppends(NamedTuple):
    """Appends to progressions that are all in ``items``: rows to insert, allocators to advance, and states before."""

    items: list[tuple[str, int, str]]
    following: dict[str, int]
    states: dict[str, AppendState]

    def write(self, conn: Connection) -> None:
        """Write them. Cost: one insert of all items, one UPDATE of all allocators."""
        dialect = dialect_of(conn)
        dialect.insert_items(conn, self.items)
        dialect.advance_states(conn, self.following)

    def are_there(self, conn: Connection) -> bool | None:
        """Whether they stand in the store; None where that cannot be told, or in part."""
        found = {
            _is_there(conn, pair=(progression, message_id), generation=self.states[progression].generation)
            for progression, _, message_id in self.items
        }
        return found.pop() if len(found) == 1 else None


def plain_appends(locked: LockedForAppend, pairs: Sequence[tuple[str, str]]) -> PlainAppends | StateError | None:
    """What an ``Appender`` would do with one call whose progressions are all in ``items``, for a third of its cost.

    Returns:
        None where one of them is not, or membership was not looked at; the error that refuses the call.
    """
    if locked.members is None:
        return None
    states: dict[str, AppendState] = {}
    for progression, _, state in locked.parents:
        if not _is_plain(state):
            return None
        states[progression] = state
    rows: list[tuple[str, int, str]] = []
    following: dict[str, int] = {}
    seen = set(locked.members)
    for pair in pairs:
        progression, message_id = pair
        if pair in seen or progression not in states:
            continue
        try:
            check_new_id(message_id)
        except StateError as error:
            return error
        seen.add(pair)
        ordinal = following[progression] if progression in following else states[progression].next_ordinal
        rows.append((progression, ordinal, message_id))
        following[progression] = ordinal + 1
    return PlainAppends(rows, following, states)


def append_alone(conn: Connection, pair: tuple[str, str]) -> Refused | Reply | LockedForAppend | None:
    """One append where little is to be weighed: in ``items``, or in one statement (PostgreSQL).

    Returns:
        What a fold returns for it; else the locked rows, of which nothing was written.

    Cost: one statement on PostgreSQL; on SQLite one that looks, one insert, one UPDATE.
    """
    dialect, progression_id = dialect_of(conn), check_id(pair[0])
    if not dialect.tries_appends:
        return _append_one(conn, pair) if text_fault(pair[1]) is None else lock_for_append(conn, [pair])
    # An id that may not be new is looked at first.
    tried = dialect.try_append(conn, progression_id, pair[1]) if is_valid_new_id(pair[1]) else None
    if tried is not None and tried.is_settled:
        return None
    return lock_for_append(conn, [pair], None if tried is None else tried.parents)
