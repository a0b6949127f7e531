"""Copying the admission prefix in chunks, and removing rows that no phase reads."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from sqlalchemy import Connection, bindparam, update

from lionstate.dialects import Statement, dialect_of
from lionstate.errors import BlockedCode
from lionstate.migration.admission import write_block
from lionstate.migration.gate import REMOVE, Permit, refusal
from lionstate.migration.report import Stage, StageOutcome
from lionstate.progression.delete import remove_tombstone_chunk
from lionstate.progression.items import delete_items_chunk, page
from lionstate.progression.phases import Phase
from lionstate.progression.storage_state import lock_many, update_state
from lionstate.schema.own import progression_storage_state as states

__all__ = ["copy_chunk", "remove_deleted_chunk", "remove_shadow_chunk"]

_ADVANCE_CURSOR = Statement(
    update(states)
    .where(states.c.progression_id == bindparam("pid"))
    .where(states.c.generation == bindparam("was"))
    .where(states.c.backfill_next == bindparam("cursor"))
    .values(backfill_next=bindparam("end"), updated_at=bindparam("now"))
)


def copy_chunk(
    conn: Connection,
    /,
    progression_id: str,
    *,
    generation: int,
    cursor: int,
    ids: Sequence[str],
    size_bytes: int,
    transactions: Callable[[], int],
    permit: Permit,
    actor: str,
    now: float,
) -> Stage:
    """Insert the ids at ordinals ``cursor`` and up, and advance ``backfill_next`` to their end.

    A row that is there already with the same id is a repeat; with another id the progression is blocked.

    Args:
        ids: At most 500, from a parse of this generation's admission prefix, which no append changes.

    Cost: seven statements, the insert as large as the chunk, and two looks at the size of the store.
    Contract: ADR-0117 D3 (backfill), D5 (races); design decisions 10, 16, 17, 36.
    """
    locked = lock_many(conn, [progression_id]).get(progression_id)
    began = time.perf_counter()
    if locked is None or locked.state is None:
        return Stage(StageOutcome.MOVED)
    state = locked.state
    if (refused := refusal(conn, progression_id, permit, now)) is not None:
        return refused
    end = cursor + len(ids)
    if (
        state.phase is not Phase.DUAL
        or state.generation != generation
        or state.backfill_next != cursor
        or state.source_count is None
        or end > state.source_count
    ):
        return Stage(StageOutcome.MOVED)
    present = dict(page(conn, progression_id, after=cursor - 1, before=end, limit=len(ids)))
    if any(ids[ordinal - cursor] != found for ordinal, found in present.items()):
        return write_block(
            conn, state, BlockedCode.ORDINAL_COLLISION, details={"backfill_next": cursor}, actor=actor, now=now
        )
    dialect = dialect_of(conn)
    used = dialect.used_bytes(conn)
    dialect.insert_items_ignore(
        conn, [(progression_id, cursor + place, mid) for place, mid in enumerate(ids) if cursor + place not in present]
    )
    grown = dialect.used_bytes(conn) - used
    advanced = _ADVANCE_CURSOR.run(
        conn, {"pid": progression_id, "was": generation, "cursor": cursor, "end": end, "now": now}
    )
    assert advanced == 1, "the state row is locked, so the cursor cannot have moved"
    return Stage(
        StageOutcome.COPIED,
        count=len(ids),
        size_bytes=size_bytes,
        growth_bytes=grown,
        lock_seconds=time.perf_counter() - began,
        mark=dialect.store_mark(conn),
        transactions=transactions(),
    )


def remove_shadow_chunk(
    conn: Connection, /, progression_id: str, *, generation: int, limit: int, permit: Permit, now: float
) -> Stage:
    """Remove up to ``limit`` item rows of a rolled back progression, while its phase and generation are still those.

    Cost: at most six statements.
    Contract: design decision 13.
    """
    locked = lock_many(conn, [progression_id]).get(progression_id)
    if locked is None or locked.state is None:
        return Stage(StageOutcome.MOVED)
    state = locked.state
    if (refused := refusal(conn, progression_id, permit, now, orders=REMOVE)) is not None:
        return refused
    if state.phase is not Phase.JSON or state.generation != generation or not state.shadow_rows:
        return Stage(StageOutcome.MOVED)
    removed = delete_items_chunk(conn, progression_id, limit=limit)
    if removed < limit:
        update_state(conn, progression_id, {"shadow_rows": 0, "updated_at": now})
    return Stage(StageOutcome.REMOVED, count=removed)


def remove_deleted_chunk(conn: Connection, /, progression_id: str, *, limit: int, permit: Permit, now: float) -> Stage:
    """Remove up to ``limit`` item rows of a tombstone, and its parent row when none is left.

    Contract: design decision 18.
    """
    if (refused := refusal(conn, progression_id, permit, now, orders=REMOVE)) is not None:
        return refused
    found = remove_tombstone_chunk(conn, progression_id, limit=limit)
    return Stage(StageOutcome.REFERENCED if found.is_referenced else StageOutcome.REMOVED, count=found.rows)
