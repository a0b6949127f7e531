"""What migration works on next, the sizes it knows, the appends it saw, and sessions that others write."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, and_, bindparam, exists, func, literal, not_, or_, select

from lionstate.dialects import dialect_of
from lionstate.errors import BlockedCode
from lionstate.migration.cutover import STICKY_HOLDS
from lionstate.migration.orders import OrderKind, hold_all, in_force, is_ready
from lionstate.migration.progress import LEFT_BYTES, KeptBack
from lionstate.progression.phases import Phase
from lionstate.schema.conversation import progressions, sessions
from lionstate.schema.own import (
    progression_activity,
    progression_orders,
    progression_proofs,
    progression_sizes,
    progression_storage_state,
)

__all__ = [
    "SIZES_PAGE",
    "cleanups",
    "copies_before",
    "excluded",
    "foreign_sessions",
    "kept_back",
    "known_sizes",
    "measure_missing",
    "measure_these",
    "next_json",
    "note_session",
    "prioritized",
    "ready",
    "smaller_before",
    "started",
    "write_activity",
    "write_sizes",
]

SIZES_PAGE: Final = 500
_ACTIVE_SECONDS: Final = 86_400.0

_s = progression_storage_state.c
_now: ColumnElement[Any] = bindparam("now")
_sticky = [reason.value for reason in STICKY_HOLDS]

# One that is proved and may not be cut over now has nothing left to do.
_proved = exists().where(
    progression_proofs.c.progression_id == _s.progression_id, progression_proofs.c.generation == _s.generation
)
_cutover_held = or_(bindparam("hold_all") == 1, in_force(_s.progression_id, OrderKind.HOLD))
_under_way = and_(
    _s.phase == Phase.DUAL.value,
    or_(_s.held_reason.is_(None), _s.held_reason.not_in(_sticky)),
    or_(
        _s.backfill_next < _s.source_count,
        and_(or_(bindparam("also_complete") == 1, _s.held_reason.is_(None)), not_(and_(_proved, _cutover_held))),
    ),
)
_STARTED = (
    select(_s.progression_id)
    .where(_under_way, not_(in_force(_s.progression_id, OrderKind.EXCLUDE)))
    .order_by(_s.source_count - _s.backfill_next, _s.progression_id)
    .limit(bindparam("count"))
)
_CLEANUPS = (
    select(_s.progression_id)
    .where(
        or_(
            and_(_s.phase == Phase.JSON.value, _s.shadow_rows == 1),
            and_(_s.phase == Phase.BLOCKED.value, _s.blocked_reason == BlockedCode.DELETING.value),
        )
    )
    .order_by(_s.updated_at, _s.progression_id)
    .limit(bindparam("count"))
)
_admissible = or_(
    _s.progression_id.is_(None),
    and_(_s.phase == Phase.JSON.value, _s.held_reason.is_(None), _s.shadow_rows == 0),
)
_NEXT_JSON = (
    select(progression_sizes.c.progression_id)
    .select_from(
        progression_sizes.outerjoin(progression_storage_state, _s.progression_id == progression_sizes.c.progression_id)
    )
    .where(_admissible, not_(in_force(progression_sizes.c.progression_id, OrderKind.EXCLUDE)))
    .order_by(progression_sizes.c.bytes, progression_sizes.c.progression_id)
    .limit(bindparam("count"))
)
_orders = progression_orders.c
_first = and_(_orders.kind == OrderKind.PRIORITIZE.value, or_(_orders.expires_at.is_(None), _orders.expires_at > _now))
_PRIORITIZED = (
    select(_orders.progression_id)
    .select_from(progression_orders.outerjoin(progression_storage_state, _s.progression_id == _orders.progression_id))
    .where(_first, not_(in_force(_orders.progression_id, OrderKind.EXCLUDE)))
    .where(or_(_admissible, _under_way, and_(_s.phase == Phase.JSON.value, _s.shadow_rows == 1)))
    .order_by(_orders.updated_at, _orders.progression_id)
    .limit(bindparam("count"))
)
_READY = (
    select(_s.progression_id)
    .select_from(
        progression_proofs.join(progression_storage_state, _s.progression_id == progression_proofs.c.progression_id)
    )
    .where(is_ready())
    .where(not_(in_force(_s.progression_id, OrderKind.HOLD)), not_(in_force(_s.progression_id, OrderKind.EXCLUDE)))
    .order_by(_s.source_count, _s.progression_id)
    .limit(bindparam("count"))
)
_KEPT = select(func.count(), func.count(progression_sizes.c.progression_id), func.sum(LEFT_BYTES))
_sizes_of_states = progression_storage_state.outerjoin(
    progression_sizes, progression_sizes.c.progression_id == _s.progression_id
)
_KEPT_STATES = _KEPT.select_from(_sizes_of_states).where(
    or_(
        and_(_s.phase == Phase.DUAL.value, not_(_under_way)),
        and_(_s.phase == Phase.JSON.value, _s.held_reason.is_not(None)),
        and_(_s.phase.in_((Phase.DUAL.value, Phase.JSON.value)), in_force(_s.progression_id, OrderKind.EXCLUDE)),
    )
)
# Those without a state row; an order goes with its progression.
_KEPT_ORDERS = (
    _KEPT.select_from(
        progression_orders.outerjoin(progression_storage_state, _s.progression_id == _orders.progression_id).outerjoin(
            progression_sizes, progression_sizes.c.progression_id == _orders.progression_id
        )
    )
    .where(_s.progression_id.is_(None), _orders.kind == OrderKind.EXCLUDE.value)
    .where(or_(_orders.expires_at.is_(None), _orders.expires_at > _now))
)


def _waiting(conn: Connection, count: int, also_complete: bool, now: float) -> dict[str, Any]:
    held = hold_all(conn, now) is not None
    return {"count": count, "also_complete": int(also_complete), "hold_all": int(held), "now": now}


def prioritized(conn: Connection, /, *, count: int, also_complete: bool, now: float) -> list[str]:
    """Progressions with work left that an operator wants first, in the order in which that was said.

    Args:
        also_complete: As for `started`.

    Cost: one pass over the orders.
    """
    return list(conn.execute(_PRIORITIZED, _waiting(conn, count, also_complete, now)).scalars())


def ready(conn: Connection, /, *, count: int, now: float) -> list[str]:
    """Progressions at stage ``ready``, without those that an order of their own keeps back.

    Cost: one pass over the kept proofs.
    """
    return list(conn.execute(_READY, {"count": count, "now": now}).scalars())


def started(conn: Connection, /, *, count: int, also_complete: bool, now: float) -> list[str]:
    """Dual progressions, those nearest to their end first; none that is excluded, or ready for a command.

    Args:
        also_complete: Also those that only wait for their cutover and are noted as held.
    """
    return list(conn.execute(_STARTED, _waiting(conn, count, also_complete, now)).scalars())


def copies_before(conn: Connection, /, progression_id: str, to_copy: int | None, *, now: float) -> int:
    """How many that are begun are worked on before this one.

    Args:
        to_copy: Elements that it has left itself; None for one that is not begun, which comes after all of them.

    Cost: one pass over those in ``dual``.
    """
    query = select(func.count()).where(_under_way, not_(in_force(_s.progression_id, OrderKind.EXCLUDE)))
    if to_copy is not None:
        left = _s.source_count - _s.backfill_next
        query = query.where(or_(left < to_copy, and_(left == to_copy, _s.progression_id < progression_id)))
    return int(conn.execute(query, _waiting(conn, 0, False, now)).scalar_one())


def smaller_before(conn: Connection, /, progression_id: str, size_bytes: int, *, now: float) -> int:
    """How many JSON values are admitted before this one. Cost: one pass over the sizes."""
    size, pid = progression_sizes.c.bytes, progression_sizes.c.progression_id
    before = or_(size < size_bytes, and_(size == size_bytes, pid < progression_id))
    query = _NEXT_JSON.where(before).order_by(None).limit(None).with_only_columns(func.count())
    return int(conn.execute(query, {"now": now}).scalar_one())


def cleanups(conn: Connection, /, *, count: int) -> list[str]:
    """Rolled back progressions with rows to remove, and tombstones."""
    return list(conn.execute(_CLEANUPS, {"count": count}).scalars())


def next_json(conn: Connection, /, *, count: int, now: float) -> list[str]:
    """Progressions to admit, smallest first, of those whose size is known and that nobody excluded.

    Cost: one pass over the sizes.
    """
    return list(conn.execute(_NEXT_JSON, {"count": count, "now": now}).scalars())


def known_sizes(conn: Connection, /, ids: Sequence[str]) -> dict[str, int]:
    """The sizes kept of these, which is what decides their order."""
    dialect = dialect_of(conn)
    sizes = progression_sizes.c
    query = select(sizes.progression_id, sizes.bytes).where(dialect.among(sizes.progression_id, "ids"))
    return {row[0]: row[1] for row in conn.execute(query, {"ids": dialect.bind_ids(list(ids))})}


def kept_back(conn: Connection, /, *, now: float) -> KeptBack:
    """What of ``json`` and ``dual`` no step takes now: the rest of what the queries above choose from.

    A rolled back one of which only rows are left to remove counts as kept back if nothing admits it afterwards.

    Cost: one pass over the state rows and the orders.
    """
    values = _waiting(conn, 0, False, now)
    (held, held_sized, held_bytes), (out, out_sized, out_bytes) = (
        conn.execute(query, values).one() for query in (_KEPT_STATES, _KEPT_ORDERS)
    )
    return KeptBack(held + out, held_sized + out_sized, float(held_bytes or 0) + float(out_bytes or 0))


def excluded(conn: Connection, /, ids: Sequence[str], *, now: float) -> set[str]:
    """Of these, those that an operator has excluded."""
    dialect = dialect_of(conn)
    query = select(progressions.c.id).where(dialect.among(progressions.c.id, "ids"))
    found = conn.execute(
        query.where(in_force(progressions.c.id, OrderKind.EXCLUDE)), {"ids": dialect.bind_ids(list(ids)), "now": now}
    )
    return set(found.scalars())


def measure_missing(conn: Connection, /, *, after: str) -> list[tuple[str, int]]:
    """One page of ids above ``after`` that may be admitted and have no size yet, with the bytes of their values.

    Cost: a range of the primary key, two seeks a row; the library decides whether the values are read.
    Contract: design decision 19.
    """
    size = dialect_of(conn).byte_length(conn, progressions.c.collection)
    query = (
        select(progressions.c.id, size)
        .select_from(
            progressions.outerjoin(progression_storage_state, _s.progression_id == progressions.c.id).outerjoin(
                progression_sizes, progression_sizes.c.progression_id == progressions.c.id
            )
        )
        .where(progressions.c.id > after)
        .where(progression_sizes.c.progression_id.is_(None))
        .where(_admissible)
        .order_by(progressions.c.id)
        .limit(SIZES_PAGE)
    )
    return [(row[0], row[1] or 0) for row in conn.execute(query)]


def measure_these(conn: Connection, /, ids: Sequence[str]) -> list[tuple[str, int]]:
    """The bytes of these values now; missing progressions are left out."""
    dialect = dialect_of(conn)
    size = dialect.byte_length(conn, progressions.c.collection)
    query = select(progressions.c.id, size).where(dialect.among(progressions.c.id, "ids"))
    return [(row[0], row[1] or 0) for row in conn.execute(query, {"ids": dialect.bind_ids(list(ids))})]


def write_sizes(conn: Connection, /, sizes: Sequence[tuple[str, int]], *, now: float) -> None:
    """Keep measured sizes; progressions that are gone meanwhile are left out."""
    dialect = dialect_of(conn)
    present = dialect.existing_progressions(conn, [progression_id for progression_id, _ in sizes])
    rows = [
        {"progression_id": pid, "bytes": size, "items": None, "measured_at": now}
        for pid, size in sizes
        if pid in present
    ]
    if rows:
        conn.execute(dialect.upsert(progression_sizes, ["progression_id"], ["bytes", "items", "measured_at"]), rows)


def write_activity(conn: Connection, /, appends: Mapping[str, int], *, now: float) -> None:
    """Add observed appends to what is kept; progressions that are gone meanwhile are left out.

    Contract: design decision 20.
    """
    dialect = dialect_of(conn)
    ids = sorted(dialect.existing_progressions(conn, sorted(appends)))
    if not ids:
        return
    table = progression_activity
    query = select(table.c.progression_id, table.c.appends).where(dialect.among(table.c.progression_id, "ids"))
    known = {row[0]: row[1] for row in conn.execute(query, {"ids": dialect.bind_ids(ids)})}
    rows = [{"progression_id": pid, "appends": known.get(pid, 0) + appends[pid], "updated_at": now} for pid in ids]
    conn.execute(dialect.upsert(table, ["progression_id"], ["appends", "updated_at"]), rows)


_NOTE_FOR: dict[str, Any] = {}


def note_session(conn: Connection, /, session_id: str) -> None:
    """Keep that the activity of this session, as it stands in this transaction, is one of ours.

    For writers outside the queue, whose sessions would count as foreign. Nothing for a missing session, or one whose
    progression has left the JSON.

    Cost: one upsert with two seeks.
    Contract: design decision 37.
    """
    dialect = dialect_of(conn)
    name = dialect.capabilities.name
    if name not in _NOTE_FOR:
        seen = (
            select(sessions.c.progression_id, literal(0), sessions.c.last_message_at)
            .select_from(sessions.outerjoin(progression_storage_state, _s.progression_id == sessions.c.progression_id))
            .where(sessions.c.id == bindparam("session"), sessions.c.last_message_at.is_not(None))
            .where(or_(_s.authority.is_(None), _s.authority == "json"))
        )
        upsert = dialect.upsert(progression_activity, ["progression_id"], ["updated_at"])
        _NOTE_FOR[name] = upsert.from_select(["progression_id", "appends", "updated_at"], seen)
    conn.execute(_NOTE_FOR[name], {"session": session_id})


def foreign_sessions(conn: Connection, /, *, limit: int = 100) -> list[tuple[str, float]]:
    """Sessions that another program seems to write: progression id and time of the last message, at most ``limit``.

    A session counts when it is running, or was active in the last 24 h, and its last message is later than the last
    append to its progression that lionstate is known to have made. A session whose progression has left the JSON is
    fenced and does not count. A foreign append that lands between two of ours is found by the length of the dual
    value instead (design decisions 16, 37).

    Cost: one pass over the sessions.
    """
    kept = progression_activity.c
    query = (
        select(sessions.c.progression_id, sessions.c.last_message_at)
        .select_from(
            sessions.outerjoin(progression_activity, kept.progression_id == sessions.c.progression_id).outerjoin(
                progression_storage_state, _s.progression_id == sessions.c.progression_id
            )
        )
        .where(sessions.c.last_message_at.is_not(None))
        .where(or_(sessions.c.status == "running", sessions.c.last_message_at >= time.time() - _ACTIVE_SECONDS))
        .where(func.coalesce(kept.updated_at, -1.0) < sessions.c.last_message_at)
        .where(or_(_s.authority.is_(None), _s.authority == "json"))
        .limit(limit)
    )
    return [(row[0], row[1]) for row in conn.execute(query)]
