"""The state row of a progression: the lock of every change and the truth about its phase (ADR-0117 D2)."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection, bindparam, select, update

from lionstate.dialects import Statement, dialect_of
from lionstate.dialects.statement import compiled_once
from lionstate.errors import BlockedCode
from lionstate.progression.phases import Authority, Phase, new_generation
from lionstate.schema.conversation import progressions
from lionstate.schema.own import progression_storage_state as table

__all__ = [
    "Locked",
    "StorageState",
    "get_many",
    "get_state",
    "insert_state",
    "lock_many",
    "record_orphans",
    "update_state",
]


class StorageState(NamedTuple):
    """One state row; the fields are its columns."""

    progression_id: str
    phase: Phase
    authority: Authority
    generation: int
    source_count: int | None
    backfill_next: int
    next_ordinal: int
    frozen_count: int | None
    source_digest: str | None
    items_digest: str | None
    blocked_reason: str | None
    compat_read: bool
    text_bytes: int | None
    text_sha256: str | None
    last_xact: int | None
    held_reason: str | None
    held_detail: str | None
    verify_misses: int
    shadow_rows: bool
    updated_at: float
    cutover_at: float | None

    @property
    def is_tombstone(self) -> bool:
        """Whether the progression is being deleted and answers as missing (decision 18)."""
        return self.phase is Phase.BLOCKED and self.blocked_reason == BlockedCode.DELETING


class Locked(NamedTuple):
    """A locked progression: its parent row exists; ``state`` is None when it has no state row."""

    version: int | None
    state: StorageState | None


_NAMES = StorageState._fields
_FLAGS = (_NAMES.index("compat_read"), _NAMES.index("shadow_rows"))
_PHASES = {phase.value: phase for phase in Phase}
_AUTHORITIES = {authority.value: authority for authority in Authority}
_STATES_FOR: dict[str, Any] = {}
_BOTH_FOR: dict[str, Any] = {}


def _states_query(conn: Connection) -> Any:
    """The query of state rows by a set of ids, one object per dialect so that it is compiled once."""
    name = conn.dialect.name
    if name not in _STATES_FOR:
        columns = [table.c[column] for column in _NAMES]
        _STATES_FOR[name] = select(*columns).where(dialect_of(conn).among(table.c.progression_id, "ids"))
    return _STATES_FOR[name]


# Parents and state rows in one, for where the transaction itself is the lock.
_both = select(progressions.c.id, *(table.c[column] for column in _NAMES)).select_from(
    progressions.outerjoin(table, table.c.progression_id == progressions.c.id)
)
# Nearly every call is on one progression, and a set costs more than the rows.
_BOTH_OF_ONE = Statement(_both.where(progressions.c.id == bindparam("pid")))


def _both_query(conn: Connection) -> Any:
    name = conn.dialect.name
    if name not in _BOTH_FOR:
        _BOTH_FOR[name] = _both.where(dialect_of(conn).among(progressions.c.id, "ids"))
    return _BOTH_FOR[name]


def _state(row: Sequence[Any]) -> StorageState:
    values = list(row)
    values[1], values[2] = _PHASES[values[1]], _AUTHORITIES[values[2]]
    for position in _FLAGS:
        values[position] = bool(values[position])
    return StorageState._make(values)


def lock_many(conn: Connection, /, ids: Sequence[str]) -> dict[str, Locked]:
    """Lock parents in id order, then their state rows, then read; progressions that do not exist are left out.

    Cost: two statements; one on SQLite, where the transaction is the lock.
    Contract: ADR-0117 D2; design decision 10.
    """
    dialect = dialect_of(conn)
    wanted = sorted(set(ids))
    if not dialect.capabilities.concurrent_writers:
        if len(wanted) == 1:
            rows = _BOTH_OF_ONE.rows(conn, {"pid": wanted[0]})
        else:
            rows = compiled_once(_both_query(conn)).rows(conn, {"ids": dialect.bind_ids(wanted)})
        return {row[0]: Locked(None, None if row[1] is None else _state(row[1:])) for row in rows}
    parents = dialect.lock_progressions(conn, wanted)
    if not parents:
        return {}
    found = dialect.lock_states(conn, _states_query(conn), list(parents))
    states = {state.progression_id: state for state in map(_state, found)}
    return {pid: Locked(parent.version, states.get(pid)) for pid, parent in parents.items()}


def get_many(conn: Connection, /, ids: Sequence[str]) -> dict[str, StorageState]:
    """Read state rows without locks, for readers."""
    rows = compiled_once(_states_query(conn)).rows(conn, {"ids": dialect_of(conn).bind_ids(list(ids))})
    return {state.progression_id: state for state in map(_state, rows)}


def get_state(conn: Connection, /, progression_id: str) -> StorageState | None:
    """Read one state row without a lock."""
    return get_many(conn, [progression_id]).get(progression_id)


def update_state(conn: Connection, /, progression_id: str, changes: Mapping[str, Any]) -> None:
    """Change columns of one state row that the caller has locked."""
    conn.execute(update(table).where(table.c.progression_id == progression_id).values(**changes))


def insert_state(conn: Connection, /, values: Mapping[str, Any]) -> None:
    """Insert the state row of a progression whose parent the caller has locked."""
    conn.execute(table.insert().values(**values))


def record_orphans(conn: Connection, /, ids: Sequence[str]) -> dict[str, StorageState]:
    """Of locked progressions without a state row, block those that have item rows; return their new state rows.

    Cost: one seek each, and one insert for each that is found.
    Contract: design decision 22.
    """
    found = dialect_of(conn).with_items(conn, ids)
    for progression_id in sorted(found):
        insert_state(
            conn,
            {
                "progression_id": progression_id,
                "phase": Phase.BLOCKED.value,
                "authority": Authority.NONE.value,
                "blocked_reason": BlockedCode.ORPHAN_ITEMS.value,
                "generation": new_generation(),
                "updated_at": time.time(),
            },
        )
    return get_many(conn, sorted(found)) if found else {}
