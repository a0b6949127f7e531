"""Cutover (dual to items), rollback (dual to json) and holds: short transactions on what was proved outside."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection, delete, select

from lionstate.audit import record_event
from lionstate.dialects import dialect_of
from lionstate.errors import BlockedCode, HeldReason, NotFoundError, PhaseConflictError
from lionstate.migration.admission import Since, appended_since, unchanged, write_block
from lionstate.migration.budget import MAX_VERIFY_MISSES
from lionstate.migration.control import FENCE_INSTALLED_KEY, set_value
from lionstate.migration.gate import CUTOVER, Permit, refusal
from lionstate.migration.orders import OrderKind, drop_finished, keep_proof, take_back
from lionstate.migration.report import Stage, StageOutcome
from lionstate.migration.verification import Proof
from lionstate.progression.control import FENCE_OFF_KEY, switch_is_on
from lionstate.progression.items import page
from lionstate.progression.phases import Authority, Phase
from lionstate.progression.sightings import note_sighting, was_written_by_others
from lionstate.progression.storage_state import Locked, StorageState, lock_many, update_state
from lionstate.schema import fence_exists, install_fence
from lionstate.schema.own import migration_control, progression_sizes, progression_storage_state

__all__ = [
    "ROLLBACK_ACTION",
    "STICKY_HOLDS",
    "Mark",
    "cut_over",
    "fence_is_missing",
    "hold",
    "note_miss",
    "note_ready",
    "prepare_fence",
    "release",
    "roll_back",
]

ROLLBACK_ACTION: Final = "progression_migrate.rollback"
STICKY_HOLDS = frozenset((HeldReason.OPERATOR, HeldReason.VERIFY_OVER_BUDGET))
"""Holds that only ``release`` lifts; the others are looked at again by every step."""


@dataclass(frozen=True, slots=True)
class Mark:
    """What the writer saw at its last stage before a proof was begun: the store's token and its own raw turns."""

    token: object
    transactions: int


def fence_is_missing(conn: Connection, /) -> bool:
    """Whether this store had a fence, has none now, and the operator has not turned it off."""
    if fence_exists(conn) or switch_is_on(conn, FENCE_OFF_KEY):
        return False
    had_one = select(migration_control.c.key).where(migration_control.c.key == FENCE_INSTALLED_KEY)
    cut = select(progression_storage_state.c.progression_id).where(
        progression_storage_state.c.phase == Phase.ITEMS.value
    )
    return conn.execute(had_one).first() is not None or conn.execute(cut.limit(1)).first() is not None


def prepare_fence(conn: Connection, /, *, actor: str, now: float) -> bool:
    """Install the fence if this store never had one; return whether a cutover may go on.

    In a transaction of its own, before any row is locked: on PostgreSQL it waits for open writers of
    ``progressions``, which a transaction that holds rows they wait for must not do. The cutover checks again.

    Contract: design decision 21.
    """
    if fence_is_missing(conn):
        return False
    if fence_exists(conn) or switch_is_on(conn, FENCE_OFF_KEY):
        return True
    install_fence(conn)
    set_value(conn, FENCE_INSTALLED_KEY, {"enabled": True}, actor=actor, reason="first cutover", now=now)
    return True


def cut_over(
    conn: Connection,
    /,
    proof: Proof,
    *,
    mark: Mark | None,
    transactions: Callable[[], int],
    may_compare: bool,
    accept_foreign_writers: bool,
    permit: Permit,
    actor: str,
    now: float,
) -> Stage:
    """Flip a dual progression to ``items`` if nothing that the proof compared has changed.

    The rows that the proof counted are still there and the same, because the generation is; those of the tail are
    counted and compared here.

    Args:
        mark: Taken before the proof was begun; None if there is none.
        transactions: Explicit transactions begun so far, asked under the lock.
        may_compare: Whether the budget lets the value be compared under the lock; without it a progression
            that can have changed is missed.
        accept_foreign_writers: Cut over although another program has written the parent row.

    Cost: at most twelve statements; when something can have changed also one pass over the value, `compare_value`.
    Contract: ADR-0117 D3; design decisions 7, 10, 21, 37.
    """
    began = time.perf_counter()
    progression_id = proof.judged.progression_id
    locked = lock_many(conn, [progression_id]).get(progression_id)
    if locked is None or locked.state is None:
        return Stage(StageOutcome.MOVED)
    state = locked.state
    if (refused := refusal(conn, progression_id, permit, now, orders=CUTOVER)) is not None:
        return refused
    if (
        state.phase is not Phase.DUAL
        or state.generation != proof.judged.generation
        or state.backfill_next != state.source_count
        or state.held_reason in STICKY_HOLDS
    ):
        return Stage(StageOutcome.MOVED)
    if not (fence_exists(conn) or switch_is_on(conn, FENCE_OFF_KEY)):
        return Stage(StageOutcome.HELD, held=HeldReason.FENCE_MISSING)
    untouched = _untouched(conn, locked, state, proof, mark, transactions)
    if not (untouched or may_compare):
        return Stage(StageOutcome.MISSED)
    since = unchanged(proof.judged) if untouched else appended_since(conn, locked, proof.judged)
    if since is None:
        return Stage(StageOutcome.TEXT_CHANGED)
    code = None if untouched else _difference(conn, state, proof, since.ids)
    count = proof.count + len(since.ids)
    if code is None and state.next_ordinal != count:
        code = BlockedCode.ALLOCATOR_MISMATCH
    if code is not None:
        return write_block(conn, state, code, details=proof.details, actor=actor, now=now)
    if was_written_by_others(locked.version, locked.state) and not accept_foreign_writers:
        note_sighting(conn, progression_id, actor=actor, now=now)
        _hold(conn, state, HeldReason.FOREIGN_WRITER, "its row was written by another program", 0, actor, now)
        update_state(conn, progression_id, {"last_xact": locked.version})
        return Stage(StageOutcome.HELD, held=HeldReason.FOREIGN_WRITER)
    _flip(conn, state, proof, since, actor, now)
    seconds = time.perf_counter() - began
    return Stage(StageOutcome.CUT_OVER, count=count, lock_seconds=seconds, value_compared=not untouched)


def _untouched(
    conn: Connection,
    locked: Locked,
    state: StorageState,
    proof: Proof,
    mark: Mark | None,
    transactions: Callable[[], int],
) -> bool:
    """Whether neither value nor rows can have changed since the snapshot of the proof.

    Where rows carry versions: the parent's is the same. Elsewhere: no other connection has committed since the mark,
    which is older than the snapshot; every own script that changes a dual value moves the allocator, draws a
    generation or leaves ``dual``; and no explicit transaction, which may hold any SQL, has begun.
    """
    if state.next_ordinal != proof.state.next_ordinal:
        return False
    if locked.version is not None:
        return locked.version == proof.judged.version
    if mark is None or mark.token is None or mark.transactions != transactions():
        return False
    return mark.token == dialect_of(conn).store_mark(conn)


def _difference(conn: Connection, state: StorageState, proof: Proof, tail: list[str]) -> BlockedCode | None:
    """Compare the tail with the rows behind the proof's."""
    pid = proof.judged.progression_id
    rows = page(conn, pid, after=proof.count - 1, limit=len(tail) + 1)
    if len(rows) < len(tail) and state.next_ordinal == proof.count + len(rows):
        # Rows and allocator agree: the value alone has more, whatever own appends came before.
        return BlockedCode.FOREIGN_WRITE
    if len(rows) != len(tail):
        return BlockedCode.COUNT_MISMATCH
    if [ordinal for ordinal, _ in rows] != list(range(proof.count, proof.count + len(tail))):
        return BlockedCode.ORDINAL_MISMATCH
    return None if [found for _, found in rows] == tail else BlockedCode.DIGEST_MISMATCH


def _flip(conn: Connection, state: StorageState, proof: Proof, since: Since, actor: str, now: float) -> None:
    dialect = dialect_of(conn)
    pid = proof.judged.progression_id
    known = proof.judged.known
    assert proof.source is not None and known is not None
    source, items = proof.source.copy(), proof.items.copy()
    source.update(since.ids)
    items.update(since.ids)
    text_bytes, text_sha256 = known.record(since.rest)
    dialect.touch_parent(conn, pid)
    changes = {
        "phase": Phase.ITEMS.value,
        "authority": Authority.ITEMS.value,
        "frozen_count": source.count,
        "source_digest": source.hexdigest(),
        "items_digest": items.hexdigest(),
        "text_bytes": text_bytes,
        "text_sha256": text_sha256,
        "cutover_at": now,
        "updated_at": now,
        "held_reason": None,
        "held_detail": None,
        "verify_misses": 0,
        "last_xact": dialect.parent_version(conn, pid),
    }
    update_state(conn, pid, changes)
    conn.execute(delete(progression_sizes).where(progression_sizes.c.progression_id == pid))
    drop_finished(conn, pid)
    details = {"count": source.count, "digest": source.hexdigest(), "text_bytes": text_bytes}
    record_event(conn, "progression_migrate.cutover", target_id=pid, details=details, actor=actor, now=now)


def roll_back(
    conn: Connection, /, progression_id: str, *, generation: int, actor: str, reason: str | None, now: float
) -> None:
    """Return a dual progression to ``json``; its rows are removed later, in chunks.

    It is held from automatic admission until `release`.

    Raises:
        NotFoundError: There is no such progression.
        PhaseConflictError: It is not in ``dual``; the message says what is possible instead.

    Cost: at most six statements.
    Contract: ADR-0117 D4; design decision 13.
    """
    state = _state_of(conn, progression_id)
    if state is None or state.phase is Phase.JSON:
        raise PhaseConflictError("the progression is in json: there is nothing to roll back")
    if state.phase is Phase.ITEMS:
        raise PhaseConflictError(
            "the progression is in items: its JSON ends at the cutover, so writes cannot return to it;"
            " compat read switches the reader instead"
        )
    if state.phase is Phase.BLOCKED:
        raise PhaseConflictError(f"the progression is blocked ({state.blocked_reason}): retry or unblock it instead")
    dialect = dialect_of(conn)
    dialect.touch_parent(conn, progression_id)
    changes = {
        "phase": Phase.JSON.value,
        "authority": Authority.JSON.value,
        "generation": generation,
        "source_count": None,
        "backfill_next": 0,
        "next_ordinal": 0,
        "held_reason": HeldReason.OPERATOR.value,
        "held_detail": "rolled back",
        "verify_misses": 0,
        "shadow_rows": 1,
        "updated_at": now,
        "last_xact": dialect.parent_version(conn, progression_id),
    }
    update_state(conn, progression_id, changes)
    details = {"backfill_next": state.backfill_next, "source_count": state.source_count, "reason": reason}
    record_event(conn, ROLLBACK_ACTION, target_id=progression_id, details=details, actor=actor, now=now)


def _state_of(conn: Connection, progression_id: str) -> StorageState | None:
    locked = lock_many(conn, [progression_id]).get(progression_id)
    if locked is None or (locked.state is not None and locked.state.is_tombstone):
        raise NotFoundError("there is no such progression")
    return locked.state


def release(conn: Connection, /, progression_id: str, *, actor: str, reason: str | None, now: float) -> bool:
    """Lift the holds of one progression; return whether there was one. Contract: design decisions 13, 26."""
    state = _state_of(conn, progression_id)
    ordered = take_back(conn, progression_id, OrderKind.HOLD)
    held = None if state is None else state.held_reason
    if held is not None:
        update_state(
            conn, progression_id, {"held_reason": None, "held_detail": None, "verify_misses": 0, "updated_at": now}
        )
    elif not ordered:
        return False
    details = {"held": held or OrderKind.HOLD.value, "reason": reason}
    record_event(conn, "progression_migrate.release", target_id=progression_id, details=details, actor=actor, now=now)
    return True


def note_ready(conn: Connection, /, proof: Proof, *, permit: Permit, now: float) -> Stage:
    """Keep that a complete progression was proved while an order holds its cutover: stage ``ready``.

    Cost: at most six statements.
    Contract: design decisions 6, 26.
    """
    pid = proof.judged.progression_id
    locked = lock_many(conn, [pid]).get(pid)
    if locked is None or locked.state is None:
        return Stage(StageOutcome.MOVED)
    state = locked.state
    if (refused := refusal(conn, pid, permit, now)) is not None:
        return refused
    if state.phase is not Phase.DUAL or state.generation != proof.judged.generation:
        return Stage(StageOutcome.MOVED)
    keep_proof(conn, pid, generation=state.generation, items=proof.count, now=now)
    return Stage(StageOutcome.HELD, held=HeldReason.OPERATOR)


def hold(
    conn: Connection,
    /,
    progression_id: str,
    reason: HeldReason,
    *,
    generation: int,
    detail: str | None,
    actor: str,
    now: float,
) -> Stage:
    """Note on a dual progression why its cutover waits; writes nothing if that is noted already."""
    locked = lock_many(conn, [progression_id]).get(progression_id)
    if locked is None or locked.state is None:
        return Stage(StageOutcome.MOVED)
    state = locked.state
    if state.phase is not Phase.DUAL or state.generation != generation or state.held_reason in STICKY_HOLDS:
        return Stage(StageOutcome.MOVED)
    if state.held_reason != reason:
        _hold(conn, state, reason, detail, state.verify_misses, actor, now)
    return Stage(StageOutcome.HELD, held=reason)


def _hold(
    conn: Connection,
    state: StorageState,
    reason: HeldReason,
    detail: str | None,
    misses: int,
    actor: str,
    now: float,
) -> None:
    pid = state.progression_id
    changes = {"held_reason": reason.value, "held_detail": detail, "verify_misses": misses, "updated_at": now}
    update_state(conn, pid, changes)
    details = {"held": reason.value, "detail": detail}
    record_event(conn, "progression_migrate.hold", target_id=pid, details=details, actor=actor, now=now)


def note_miss(
    conn: Connection,
    /,
    progression_id: str,
    *,
    generation: int,
    seconds: float,
    allowed_seconds: float,
    count: int,
    actor: str,
    now: float,
) -> Stage:
    """Count a proof whose cutover would hold the lock for longer than the budget; the third one holds it.

    Contract: design decision 7.
    """
    locked = lock_many(conn, [progression_id]).get(progression_id)
    if locked is None or locked.state is None:
        return Stage(StageOutcome.MOVED)
    state = locked.state
    if state.phase is not Phase.DUAL or state.generation != generation:
        return Stage(StageOutcome.MOVED)
    misses = state.verify_misses + 1
    if misses < MAX_VERIFY_MISSES:
        update_state(conn, progression_id, {"verify_misses": misses, "updated_at": now})
        return Stage(StageOutcome.MISSED)
    told = f"estimated {seconds * 1000:.1f} ms for {count} ids, budget {allowed_seconds * 1000:.1f} ms"
    _hold(conn, state, HeldReason.VERIFY_OVER_BUDGET, told, misses, actor, now)
    return Stage(StageOutcome.HELD, held=HeldReason.VERIFY_OVER_BUDGET)
