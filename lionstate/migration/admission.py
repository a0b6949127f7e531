"""Admission (json to dual) and blocking: short transactions on what was judged outside them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection

from lionstate.audit import record_event
from lionstate.dialects import dialect_of
from lionstate.errors import BlockedCode
from lionstate.migration.control import get_pause
from lionstate.migration.report import Stage, StageOutcome
from lionstate.progression.collection import appended_tail
from lionstate.progression.items import page
from lionstate.progression.phases import Authority, Phase
from lionstate.progression.storage_state import Locked, StorageState, insert_state, lock_many, update_state
from lionstate.progression.strict import Verdict

__all__ = ["Judged", "admit", "block", "tail_since", "write_block"]


@dataclass(frozen=True, slots=True)
class Judged:
    """A value and its verdict, as one snapshot showed it.

    Attributes:
        value: What stood in the column.
        version: Version token of the parent row, where there is one.
        generation: Generation of the state row; None without one.
    """

    progression_id: str
    value: object
    version: int | None
    generation: int | None
    verdict: Verdict


def tail_since(conn: Connection, locked: Locked, progression_id: str, judged: Judged) -> list[str] | None:
    """Under the lock: the ids that own appends have added since a value was read; None if it is another value.

    Cost: nothing when the parent's version is the same; else one read of the value and one comparison of memory.
    """
    if locked.version is not None and locked.version == judged.version:
        return []
    found = dialect_of(conn).collection_of(conn, progression_id)
    if found is None:
        return None
    if isinstance(found.value, str) and isinstance(judged.value, str):
        return appended_tail(judged.value, found.value)
    return [] if type(found.value) is type(judged.value) and found.value == judged.value else None


def admit(conn: Connection, /, judged: Judged, *, generation: int, actor: str, now: float) -> Stage:
    """Enter ``dual`` with the judged value as the admission prefix, or ``blocked`` with its code.

    Args:
        generation: The new one, drawn by the caller, so that running twice gives the same row.

    Cost: at most eight statements, and the comparison of `tail_since`.
    Contract: ADR-0117 D3 (admission); design decisions 7, 10, 13, 15, 22.
    """
    progression_id = judged.progression_id
    locked = lock_many(conn, [progression_id]).get(progression_id)
    if locked is None:
        return Stage(StageOutcome.MOVED)
    if get_pause(conn, now) is not None:
        return Stage(StageOutcome.PAUSED)
    state = locked.state
    if _generation(state) != judged.generation or (state is not None and not _admissible(state)):
        return Stage(StageOutcome.MOVED)
    if page(conn, progression_id, limit=1):
        # Rows that no state row explains: neither representation can be told to be the right one (decision 22).
        authority = Authority.NONE if state is None else Authority.JSON
        return _blocked(conn, locked, progression_id, BlockedCode.ORPHAN_ITEMS, authority, generation, actor, now)
    tail = tail_since(conn, locked, progression_id, judged)
    if tail is None:
        return Stage(StageOutcome.TEXT_CHANGED)
    code = judged.verdict.code_for(dialect_of(conn).capabilities.max_migratable_id_bytes)
    if code is not None:
        # Own appends at the end never make a value valid or invalid (fault 53).
        return _blocked(conn, locked, progression_id, code, Authority.JSON, generation, actor, now)
    count = judged.verdict.count + len(tail)
    values: dict[str, Any] = {
        "phase": Phase.DUAL.value,
        "authority": Authority.JSON.value,
        "generation": generation,
        "source_count": count,
        "backfill_next": 0,
        "next_ordinal": count,
        "last_xact": locked.version,
        "blocked_reason": None,
        "held_reason": None,
        "held_detail": None,
        "verify_misses": 0,
        "updated_at": now,
    }
    _write(conn, state, progression_id, values)
    record_event(
        conn, "progression_migrate.admit", target_id=progression_id, details={"count": count}, actor=actor, now=now
    )
    return Stage(StageOutcome.ADMITTED, count=count)


def _generation(state: StorageState | None) -> int | None:
    return None if state is None else state.generation


def _admissible(state: StorageState) -> bool:
    return state.phase is Phase.JSON and state.held_reason is None and not state.shadow_rows


def _write(conn: Connection, state: StorageState | None, progression_id: str, values: dict[str, Any]) -> None:
    if state is None:
        insert_state(conn, {"progression_id": progression_id, **values})
    else:
        update_state(conn, progression_id, values)


def _blocked(
    conn: Connection,
    locked: Locked,
    progression_id: str,
    code: BlockedCode,
    authority: Authority,
    generation: int,
    actor: str,
    now: float,
) -> Stage:
    values: dict[str, Any] = {
        "phase": Phase.BLOCKED.value,
        "authority": authority.value,
        "blocked_reason": code.value,
        "generation": generation,
        "updated_at": now,
    }
    _write(conn, locked.state, progression_id, values)
    _audit_block(conn, progression_id, code, authority, Phase.JSON, {}, actor, now)
    return Stage(StageOutcome.BLOCKED, code=code)


def _audit_block(
    conn: Connection,
    progression_id: str,
    code: BlockedCode,
    authority: Authority,
    phase: Phase,
    details: dict[str, Any],
    actor: str,
    now: float,
) -> None:
    told = {"code": code.value, "authority": authority.value, "from": phase.value, **details}
    record_event(conn, "progression_migrate.block", target_id=progression_id, details=told, actor=actor, now=now)


def write_block(
    conn: Connection, state: StorageState, code: BlockedCode, *, details: dict[str, Any], actor: str, now: float
) -> Stage:
    """Block a dual progression that the caller has locked; its JSON stays the authority."""
    values: dict[str, Any] = {
        "phase": Phase.BLOCKED.value,
        "authority": Authority.JSON.value,
        "blocked_reason": code.value,
        "held_reason": None,
        "held_detail": None,
        "updated_at": now,
    }
    update_state(conn, state.progression_id, values)
    _audit_block(conn, state.progression_id, code, Authority.JSON, state.phase, details, actor, now)
    return Stage(StageOutcome.BLOCKED, code=code)


def block(
    conn: Connection,
    /,
    judged: Judged,
    code: BlockedCode,
    *,
    next_ordinal: int,
    details: dict[str, Any],
    actor: str,
    now: float,
) -> Stage:
    """Block a dual progression for what one snapshot showed, proved again under the lock.

    The finding stands if the generation is the same, the value is the one that was judged or that with own appends
    at its end, and the allocator has moved by just these.

    Args:
        next_ordinal: The allocator in that snapshot.

    Cost: at most six statements, and the comparison of `tail_since`.
    Contract: ADR-0117 D3; design decisions 2, 16.
    """
    locked = lock_many(conn, [judged.progression_id]).get(judged.progression_id)
    if locked is None or locked.state is None:
        return Stage(StageOutcome.MOVED)
    state = locked.state
    if get_pause(conn, now) is not None:
        return Stage(StageOutcome.PAUSED)
    if state.phase is not Phase.DUAL or state.generation != judged.generation:
        return Stage(StageOutcome.MOVED)
    tail = tail_since(conn, locked, judged.progression_id, judged)
    if tail is None or state.next_ordinal != next_ordinal + len(tail):
        return Stage(StageOutcome.TEXT_CHANGED)
    return write_block(conn, state, code, details=details, actor=actor, now=now)
