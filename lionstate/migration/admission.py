"""Admission (json to dual) and blocking: short transactions on what was judged outside them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection

from lionstate.audit import record_event
from lionstate.dialects import dialect_of
from lionstate.errors import BlockedCode
from lionstate.migration.gate import Permit, refusal
from lionstate.migration.orders import OrderKind, take_back
from lionstate.migration.report import Stage, StageOutcome
from lionstate.progression.items import page
from lionstate.progression.known_text import KnownText
from lionstate.progression.phases import Authority, Phase
from lionstate.progression.storage_state import Locked, StorageState, insert_state, lock_many, update_state
from lionstate.progression.strict import Verdict

__all__ = [
    "Finding",
    "Judged",
    "Since",
    "admit",
    "appended_since",
    "block",
    "compare_value",
    "unchanged",
    "write_block",
]


@dataclass(frozen=True, slots=True)
class Judged:
    """A value and its verdict, as one snapshot showed it.

    Attributes:
        value: What stood in the column.
        version: Version token of the parent row, where there is one.
        generation: Generation of the state row; None without one.
        seal: By what the database knows the text again.
        known: The text, to be known again under the lock; None when the value is not one that ends an array.
    """

    progression_id: str
    value: object
    version: int | None
    seal: object | None
    generation: int | None
    verdict: Verdict
    known: KnownText | None


@dataclass(frozen=True, slots=True)
class Since:
    """What own appends have added to a value since it was read.

    Attributes:
        ids: In order, at most 1,000.
        rest: What follows the known prefix of the text now; empty when there is no known text.
    """

    ids: list[str]
    rest: str


def unchanged(judged: Judged) -> Since:
    """Nothing was added."""
    return Since([], "" if judged.known is None else judged.known.rest)


def compare_value(conn: Connection, /, judged: Judged) -> Since | None:
    """What own appends have added since a value was read; None if it is another value.

    Cost: one pass over the value where it is stored: on PostgreSQL a hash on the server, and no transfer.
    """
    dialect, known = dialect_of(conn), judged.known
    if known is None:
        found = dialect.collection_of(conn, judged.progression_id)
        is_same = found is not None and type(found.value) is type(judged.value) and found.value == judged.value
        return unchanged(judged) if is_same else None
    rest = dialect.text_behind(
        conn, judged.progression_id, known.prefix, known.prefix_bytes, judged.seal, known.most_rest_bytes
    )
    ids = None if rest is None else known.tail(rest)
    return None if rest is None or ids is None else Since(ids, rest)


def appended_since(conn: Connection, locked: Locked, judged: Judged) -> Since | None:
    """Under the lock, as `compare_value`; costs nothing when the parent's version is the same."""
    if locked.version is not None and locked.version == judged.version:
        return unchanged(judged)
    return compare_value(conn, judged)


def admit(conn: Connection, /, judged: Judged, *, generation: int, permit: Permit, actor: str, now: float) -> Stage:
    """Enter ``dual`` with the judged value as the admission prefix, or ``blocked`` with its code.

    Args:
        generation: The new one, drawn by the caller, so that running twice gives the same row.

    Cost: at most eight statements, and the comparison of `appended_since`.
    Contract: ADR-0117 D3 (admission); design decisions 7, 10, 13, 15, 22.
    """
    progression_id = judged.progression_id
    locked = lock_many(conn, [progression_id]).get(progression_id)
    if locked is None:
        return Stage(StageOutcome.MOVED)
    if (refused := refusal(conn, progression_id, permit, now)) is not None:
        return refused
    state = locked.state
    if _generation(state) != judged.generation or (state is not None and not _admissible(state)):
        return Stage(StageOutcome.MOVED)
    if page(conn, progression_id, limit=1):
        # Rows that no state row explains: neither representation can be told to be the right one (decision 22).
        authority = Authority.NONE if state is None else Authority.JSON
        return _blocked(conn, locked, progression_id, BlockedCode.ORPHAN_ITEMS, authority, generation, actor, now)
    since = appended_since(conn, locked, judged)
    if since is None:
        return Stage(StageOutcome.TEXT_CHANGED)
    code = judged.verdict.code_for(dialect_of(conn).capabilities.max_migratable_id_bytes)
    if code is not None:
        # Own appends at the end never make a value valid or invalid (fault 53).
        return _blocked(conn, locked, progression_id, code, Authority.JSON, generation, actor, now)
    count = judged.verdict.count + len(since.ids)
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
    conn: Connection,
    state: StorageState,
    code: BlockedCode,
    *,
    authority: Authority = Authority.JSON,
    compat_read: bool = False,
    details: dict[str, Any],
    actor: str,
    now: float,
) -> Stage:
    """Block a progression that the caller has locked; before its cutover the JSON stays the authority."""
    values: dict[str, Any] = {
        "phase": Phase.BLOCKED.value,
        "authority": authority.value,
        "blocked_reason": code.value,
        "compat_read": int(compat_read),
        "held_reason": None,
        "held_detail": None,
        "updated_at": now,
    }
    update_state(conn, state.progression_id, values)
    take_back(conn, state.progression_id, OrderKind.COMPAT_READ)
    _audit_block(conn, state.progression_id, code, authority, state.phase, details, actor, now)
    return Stage(StageOutcome.BLOCKED, code=code)


@dataclass(frozen=True, slots=True)
class Finding:
    """What one snapshot showed to be wrong with a dual progression.

    Attributes:
        next_ordinal: The allocator in that snapshot.
        details: Counts and digests, for the audit row.
        in_rows: Value and allocator agree, so that it is the item rows that differ from both.
        first_difference: The lowest ordinal at which a row was seen to be missing or another one; None: only rows
            behind the allocator were seen to be too many.
    """

    judged: Judged
    code: BlockedCode
    next_ordinal: int
    details: dict[str, Any]
    in_rows: bool = False
    first_difference: int | None = None


def block(conn: Connection, /, finding: Finding, *, permit: Permit, actor: str, now: float) -> Stage:
    """Block a dual progression for what one snapshot showed, proved again under the lock.

    The finding stands if the generation is the same, the value is the one that was judged or that with own appends
    at its end, the allocator has moved by just these, and rows that differed still do; else nothing is written.

    Cost: at most eight statements, and the comparison of `appended_since`.
    Contract: ADR-0117 D3; design decisions 2, 16.
    """
    judged = finding.judged
    locked = lock_many(conn, [judged.progression_id]).get(judged.progression_id)
    if locked is None or locked.state is None:
        return Stage(StageOutcome.MOVED)
    state = locked.state
    if (refused := refusal(conn, judged.progression_id, permit, now)) is not None:
        return refused
    if state.phase is not Phase.DUAL or state.generation != judged.generation:
        return Stage(StageOutcome.MOVED)
    since = appended_since(conn, locked, judged)
    if since is None or state.next_ordinal != finding.next_ordinal + len(since.ids):
        return Stage(StageOutcome.TEXT_CHANGED)
    if finding.in_rows and not _rows_differ(conn, state, finding):
        return Stage(StageOutcome.UNPROVED)
    return write_block(conn, state, finding.code, details=finding.details, actor=actor, now=now)


def _rows_differ(conn: Connection, state: StorageState, finding: Finding) -> bool:
    """Whether the row that was seen to differ still does, or one stands behind the allocator. Cost: two seeks."""
    pid, first = state.progression_id, finding.first_difference
    if first is not None:
        expected = [(first, finding.judged.verdict.ids[first])]
        if page(conn, pid, after=first - 1, before=first + 1, limit=1) != expected:
            return True
    return bool(page(conn, pid, after=state.next_ordinal - 1, limit=1))
