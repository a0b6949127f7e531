"""The state row of a progression: the lock of every change and the truth about its phase (ADR-0117 D2)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from sqlalchemy import Connection, bindparam, select, update

from lionstate.dialects import Statement, dialect_of
from lionstate.dialects.appends import ParentRow, look_at
from lionstate.dialects.statement import Row, compiled_once
from lionstate.errors import BlockedCode, InvalidInputError
from lionstate.progression.collection import text_fault
from lionstate.progression.phases import Authority, Phase, new_generation
from lionstate.schema.conversation import progressions
from lionstate.schema.own import progression_storage_state as table

__all__ = [
    "AppendState",
    "Locked",
    "LockedForAppend",
    "StorageState",
    "check_id",
    "get_many",
    "get_state",
    "insert_state",
    "lock_for_append",
    "lock_many",
    "look_for_append",
    "looked_at",
    "record_orphans",
    "update_state",
    "write_collection",
]

_SET_COLLECTION = Statement(
    update(progressions).where(progressions.c.id == bindparam("pid")).values(collection=bindparam("text"))
)


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


class AppendState(NamedTuple):
    """What an append needs of a state row: the others are not read for it."""

    progression_id: str
    phase: Phase
    authority: Authority
    generation: int
    next_ordinal: int
    frozen_count: int | None
    blocked_reason: str | None
    compat_read: bool
    last_xact: int | None


class Locked(NamedTuple):
    """A locked progression: its parent row exists; ``state`` is None when it has no state row."""

    version: int | None
    state: StorageState | None


S = TypeVar("S", StorageState, AppendState)
_PHASES = {phase.value: phase for phase in Phase}
_AUTHORITIES = {authority.value: authority for authority in Authority}


class _Form(Generic[S]):
    """The queries of one form of the state row, one object per dialect so that each is compiled once."""

    def __init__(self, of: Callable[[Sequence[Any]], S], names: tuple[str, ...]) -> None:
        # Makes a state of one row of ``states_query``.
        self.of: Callable[[Sequence[Any]], S] = of
        columns = [table.c[name] for name in names]
        self._states = select(*columns)
        joined = progressions.outerjoin(table, table.c.progression_id == progressions.c.id)
        # Parents and state rows in one, for where the transaction itself is the lock.
        self._both = select(progressions.c.id, *columns).select_from(joined)
        # Nearly every call is on one progression, and a set costs more than the rows.
        self._both_of_one = Statement(self._both.where(progressions.c.id == bindparam("pid")))
        self._states_for: dict[str, Any] = {}
        self._both_for: dict[str, Any] = {}

    def states_query(self, conn: Connection) -> Any:
        """State rows by a set of ids (bind ``ids``)."""
        name = conn.dialect.name
        if name not in self._states_for:
            self._states_for[name] = self._states.where(dialect_of(conn).among(table.c.progression_id, "ids"))
        return self._states_for[name]

    def both(self, conn: Connection, ids: Sequence[str]) -> list[Row]:
        """Ids of parents, each before the columns of its state row, which are all None without one."""
        if len(ids) == 1:
            return self._both_of_one.rows(conn, {"pid": ids[0]})
        dialect, name = dialect_of(conn), conn.dialect.name
        if name not in self._both_for:
            self._both_for[name] = self._both.where(dialect.among(progressions.c.id, "ids"))
        return compiled_once(self._both_for[name]).rows(conn, {"ids": dialect.bind_ids(ids)})


_FLAGS = tuple(place for place, name in enumerate(StorageState._fields) if name in ("compat_read", "shadow_rows"))


def _whole(row: Sequence[Any]) -> StorageState:
    values = list(row)
    values[1], values[2] = _PHASES[values[1]], _AUTHORITIES[values[2]]
    for place in _FLAGS:
        values[place] = bool(values[place])
    return StorageState._make(values)


def _for_append(row: Sequence[Any]) -> AppendState:
    pid, phase, authority, generation, following, frozen, reason, compat, last_xact = row
    return AppendState(
        pid, _PHASES[phase], _AUTHORITIES[authority], generation, following, frozen, reason, bool(compat), last_xact
    )


_WHOLE = _Form(_whole, StorageState._fields)
_FOR_APPEND = _Form(_for_append, AppendState._fields)

# As many appends as a set costs more than, where the transaction itself is the lock.
_FEW = 4


def check_id(progression_id: object) -> str:
    """Refuse what no row is called: PostgreSQL fails on it even in a comparison, SQLite's json_each on no text."""
    if (fault := text_fault(progression_id)) is not None or not isinstance(progression_id, str):
        raise InvalidInputError(f"the progression id is not acceptable: {fault}")
    return progression_id


def _usable(ids: Iterable[object]) -> list[str]:
    return [check_id(found) for found in ids]


def lock_many(conn: Connection, /, ids: Sequence[str]) -> dict[str, Locked]:
    """Lock parents in id order, then their state rows, then read; progressions that do not exist are left out.

    Cost: two statements; one on SQLite, where the transaction is the lock.
    Contract: ADR-0117 D2; design decision 10.
    """
    return {pid: Locked(version, state) for pid, version, state in _lock(conn, ids, _WHOLE)}


class LockedForAppend(NamedTuple):
    """Id, version and state of each parent, and which pairs are item rows; None when that was not looked at."""

    parents: list[tuple[str, int | None, AppendState | None]]
    members: set[tuple[str, str]] | None


def lock_for_append(
    conn: Connection, /, pairs: Sequence[tuple[str, str]], parents: dict[str, ParentRow] | None = None
) -> LockedForAppend:
    """``lock_many`` for appends of ids to progressions, which reads what they need; ``parents`` are locked already.

    Cost: as ``lock_many``; on SQLite, for up to four pairs, one statement each that looks for it among the items as
    well: a live message has two.
    """
    looked = look_for_append(conn, pairs)
    if looked is not None:
        return looked_at(zip(pairs, looked, strict=True))
    return LockedForAppend(_lock(conn, sorted({pid for pid, _ in pairs}), _FOR_APPEND, parents), None)


def look_for_append(conn: Connection, pairs: Sequence[tuple[str, str]]) -> list[Row | None] | None:
    """What ``LOOK`` finds of a few appends where the transaction is the lock; None where that is not the way to look.

    Cost: one statement each.
    """
    if len(pairs) > _FEW or dialect_of(conn).capabilities.concurrent_writers:
        return None
    for progression, message_id in pairs:
        check_id(progression)
        if text_fault(message_id) is not None:
            return None
    return look_at(conn, pairs)


def looked_at(rows: Iterable[tuple[tuple[str, str], Row | None]]) -> LockedForAppend:
    """What ``LOOK`` found of some pairs."""
    parents: dict[str, tuple[str, int | None, AppendState | None]] = {}
    members = set()
    for pair, row in rows:
        if row is not None:
            is_member, *state = row
            if is_member:
                members.add(pair)
            pid = pair[0]
            parents[pid] = (pid, None, None if state[0] is None else _for_append((pid, *state)))
    return LockedForAppend(list(parents.values()), members)


def _lock(
    conn: Connection, ids: Sequence[str], form: _Form[S], parents: dict[str, ParentRow] | None = None
) -> list[tuple[str, int | None, S | None]]:
    dialect = dialect_of(conn)
    wanted = _usable(ids) if len(ids) == 1 else sorted(set(_usable(ids)))
    if not dialect.capabilities.concurrent_writers:
        rows = form.both(conn, wanted)
        return [(row[0], None, None if row[1] is None else form.of(row[1:])) for row in rows]
    if parents is None:
        parents = dialect.lock_progressions(conn, wanted)
    if not parents:
        return []
    found = dialect.lock_states(conn, form.states_query(conn), list(parents))
    states = {state.progression_id: state for state in map(form.of, found)}
    return [(pid, parent.version, states.get(pid)) for pid, parent in parents.items()]


def get_many(conn: Connection, /, ids: Sequence[str]) -> dict[str, StorageState]:
    """Read state rows without locks, for readers."""
    rows = compiled_once(_WHOLE.states_query(conn)).rows(conn, {"ids": dialect_of(conn).bind_ids(_usable(ids))})
    return {state.progression_id: state for state in map(_WHOLE.of, rows)}


def get_state(conn: Connection, /, progression_id: str) -> StorageState | None:
    """Read one state row without a lock."""
    return get_many(conn, [progression_id]).get(progression_id)


def update_state(conn: Connection, /, progression_id: str, changes: Mapping[str, Any]) -> None:
    """Change columns of one state row that the caller has locked."""
    conn.execute(update(table).where(table.c.progression_id == progression_id).values(**changes))


def write_collection(conn: Connection, /, progression_id: str, text: str) -> None:
    """Write the JSON value of a progression that the caller has locked; in ``items`` only while it is ``replacing``."""
    _SET_COLLECTION.run(conn, {"pid": progression_id, "text": text})


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
