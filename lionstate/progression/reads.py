"""Reads of a progression: the source follows the phase, phase and data come from one snapshot (ADR-0117 D4)."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, bindparam, select

from lionstate.dialects import Statement
from lionstate.engine import Deferred
from lionstate.errors import ProgressionBlockedError
from lionstate.progression.collection import parse_readable
from lionstate.progression.phases import ReadSource, read_source
from lionstate.progression.storage_state import StorageState, get_state
from lionstate.schema.conversation import progressions
from lionstate.schema.own import progression_items

__all__ = ["get_progression"]

_PAGE = 5_000

_COLLECTION = Statement(select(progressions.c.collection).where(progressions.c.id == bindparam("pid")))
_ITEMS_AFTER = Statement(
    select(progression_items.c.ordinal, progression_items.c.message_id)
    .where(progression_items.c.progression_id == bindparam("pid"))
    .where(progression_items.c.ordinal > bindparam("after"))
    .order_by(progression_items.c.ordinal)
    .limit(bindparam("count"))
)


def _source(state: StorageState | None) -> ReadSource:
    if state is None:
        return read_source(None, None, compat=False, reason=None)
    return read_source(state.phase, state.authority, compat=state.compat_read, reason=state.blocked_reason)


def _same(ids: list[str]) -> list[str]:
    return ids


def get_progression(conn: Connection, /, progression_id: str) -> Deferred[list[str]]:
    """Every message id in order; [] for a missing and for an empty progression.

    Raises:
        MalformedCollectionError: The JSON value is the authority and no JSON array.
        ProgressionBlockedError: No representation is trustworthy.

    Cost: the whole history; items in pages of 5,000.
    Contract: ADR-0055 D3, ADR-0117 D1, D4.
    """
    state = get_state(conn, progression_id)
    source = _source(state)
    if source is ReadSource.MISSING:
        return Deferred([], _same)
    if source is ReadSource.CLOSED:
        raise ProgressionBlockedError(reason=state.blocked_reason if state else None)
    if source is ReadSource.ITEMS:
        return Deferred(_all_items(conn, progression_id), _same)
    rows = _COLLECTION.rows(conn, {"pid": progression_id})
    if not rows:
        return Deferred([], _same)
    text = rows[0][0]
    return Deferred(text, parse_readable, len(text) if isinstance(text, (str, bytes)) else 0)


def _all_items(conn: Connection, progression_id: str) -> list[str]:
    ids: list[str] = []
    after = -1
    while True:
        rows: list[Any] = _ITEMS_AFTER.rows(conn, {"pid": progression_id, "after": after, "count": _PAGE})
        ids += [row[1] for row in rows]
        if len(rows) < _PAGE:
            return ids
        after = rows[-1][0]
