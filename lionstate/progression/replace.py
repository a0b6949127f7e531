"""Whole collections: create a progression, replace one within its phase (ADR-0117 D2)."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import Connection, bindparam

from lionstate.dialects import dialect_of
from lionstate.dialects.statement import compiled_once
from lionstate.errors import ConflictError, ProgressionBlockedError
from lionstate.progression import items
from lionstate.progression.collection import PreparedCollection, prepare
from lionstate.progression.control import ensure_fence
from lionstate.progression.phases import AppendTarget, Authority, Phase, append_target, new_generation
from lionstate.progression.sightings import note_sighting, was_written_by_others
from lionstate.progression.storage_state import (
    StorageState,
    insert_state,
    lock_many,
    record_orphans,
    update_state,
    write_collection,
)
from lionstate.schema import normalized_default
from lionstate.schema.conversation import progressions

__all__ = ["create_progression", "prepare_collection", "refuse_tombstones", "set_progression"]

_INSERT_FOR: dict[str, Any] = {}


def prepare_collection(params: dict[str, Any]) -> dict[str, Any]:
    """Check and encode the collection among an operation's parameters, before its transaction."""
    return {**params, "collection": prepare(params.get("collection"))}


def _prepared(collection: Sequence[str] | None) -> PreparedCollection:
    return collection if isinstance(collection, PreparedCollection) else prepare(collection)


def create_progression(conn: Connection, /, progression_id: str, collection: Sequence[str] | None = None) -> None:
    """Create a progression unless it exists; with normalized storage on it is born in ``items``.

    Raises:
        ConflictError: A progression of this id is being deleted.
        InvalidInputError: An id of the collection may not be written.

    Cost: at most eight statements and the rows of the input; no fence yet: its installation.
    Contract: ADR-0117 D2; design decisions 8, 9, 18, 21.
    """
    prepared = _prepared(collection)
    if refuse_tombstones(conn, [progression_id]):
        return
    in_items = normalized_default(conn)
    if in_items:
        ensure_fence(conn)
    now = time.time()
    row = {"id": progression_id, "created_at": now, "collection": prepared.text}
    if not _insert(conn, row):
        # Another transaction created it between the look and the insert.
        refuse_tombstones(conn, [progression_id])
        return
    if in_items:
        values = {
            "progression_id": progression_id,
            "phase": Phase.ITEMS.value,
            "authority": Authority.ITEMS.value,
            "cutover_at": now,
            **_both_replaced(conn, progression_id, prepared, now),
        }
        insert_state(conn, values)
        items.insert_all(conn, progression_id, prepared.ids)


def _insert(conn: Connection, row: dict[str, Any]) -> bool:
    dialect = dialect_of(conn)
    name = dialect.capabilities.name
    if name not in _INSERT_FOR:
        _INSERT_FOR[name] = dialect.insert_ignore(progressions).values(
            id=bindparam("id"), created_at=bindparam("created_at"), collection=bindparam("collection")
        )
    return compiled_once(_INSERT_FOR[name]).run(conn, row) == 1


def refuse_tombstones(conn: Connection, /, ids: Iterable[str]) -> set[str]:
    """Lock progressions and refuse those that are being deleted, before anything points at them.

    Returns:
        Those that exist.
    Raises:
        ConflictError: One of them is a tombstone.

    Contract: design decision 18.
    """
    found = lock_many(conn, list(ids))
    for locked in found.values():
        if locked.state is not None and locked.state.is_tombstone:
            raise ConflictError("the progression is being deleted; its id is free when its rows are gone")
    return set(found)


def _both_replaced(conn: Connection, progression_id: str, prepared: PreparedCollection, now: float) -> dict[str, Any]:
    """State columns of a row whose JSON and items are the same, whole collection."""
    return {
        "source_count": prepared.count,
        "backfill_next": prepared.count,
        "next_ordinal": prepared.count,
        "frozen_count": prepared.count,
        "source_digest": prepared.digest,
        "items_digest": prepared.digest,
        "text_bytes": prepared.text_bytes,
        "text_sha256": prepared.text_sha256,
        **_touched(conn, progression_id, now),
    }


def _only_json(
    conn: Connection, progression_id: str, prepared: PreparedCollection, now: float, *, dual: bool
) -> dict[str, Any]:
    """State columns of a row whose JSON is the authority; in dual the backfill starts again."""
    return {
        "source_count": prepared.count if dual else None,
        "backfill_next": 0,
        "next_ordinal": prepared.count if dual else 0,
        "frozen_count": None,
        "source_digest": None,
        "items_digest": None,
        "text_bytes": None,
        "text_sha256": None,
        "shadow_rows": 0,
        **_touched(conn, progression_id, now),
    }


def _touched(conn: Connection, progression_id: str, now: float) -> dict[str, Any]:
    return {
        "generation": new_generation(),
        "replacing": 0,
        "verify_misses": 0,
        "updated_at": now,
        "last_xact": dialect_of(conn).parent_version(conn, progression_id),
    }


def set_progression(conn: Connection, /, progression_id: str, collection: Sequence[str] | None) -> None:
    """Replace the whole collection within the phase; nothing happens for a missing progression.

    Raises:
        InvalidInputError: An id of the collection may not be written; nothing was changed.
        ProgressionBlockedError: The state row contradicts itself.

    Cost: the rows of the input and the item rows that were there, in one transaction; at most ten statements
    beside them.
    Contract: ADR-0117 D2 "Phase after set_progression"; design decisions 3, 4, 14, 18.
    """
    prepared = _prepared(collection)
    locked = lock_many(conn, [progression_id]).get(progression_id)
    if locked is None:
        return
    state = locked.state or record_orphans(conn, [progression_id]).get(progression_id)
    if state is None:
        write_collection(conn, progression_id, prepared.text)
    elif not state.is_tombstone:
        if was_written_by_others(locked.version, locked.state):
            note_sighting(conn, progression_id, now=time.time())
        _replace(conn, state, prepared)


def _replace(conn: Connection, state: StorageState, prepared: PreparedCollection) -> None:
    progression_id, now = state.progression_id, time.time()
    target = append_target(state.phase, state.authority, state.blocked_reason)
    if target is AppendTarget.REFUSED and state.phase is not Phase.BLOCKED:
        raise ProgressionBlockedError("phase and authority of the state row contradict each other")
    in_items = target in (AppendTarget.ITEMS, AppendTarget.REFUSED)
    if in_items:
        ensure_fence(conn)
        # The fence lets this transaction, and no other, change the value.
        update_state(conn, progression_id, {"replacing": 1})
    write_collection(conn, progression_id, prepared.text)
    items.delete_items(conn, progression_id)
    if in_items or target is AppendTarget.DUAL:
        items.insert_all(conn, progression_id, prepared.ids)
    if in_items:
        changes = {"authority": Authority.ITEMS.value, **_both_replaced(conn, progression_id, prepared, now)}
    else:
        changes = _only_json(conn, progression_id, prepared, now, dual=target is AppendTarget.DUAL)
    update_state(conn, progression_id, changes)
