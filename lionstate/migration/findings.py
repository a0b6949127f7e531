"""What the scrubber makes of a finding: decision 2's verdict, and the proof under the lock before it blocks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection

from lionstate.audit import record_event
from lionstate.errors import BlockedCode
from lionstate.migration.admission import Judged, appended_since, write_block
from lionstate.migration.gate import REMOVE, Permit, refusal
from lionstate.migration.report import Stage, StageOutcome
from lionstate.migration.walk import Extent, FrozenSide, ItemsWalk, RowsVerdict
from lionstate.progression.items import MIN_ORDINAL, page
from lionstate.progression.phases import Authority
from lionstate.progression.storage_state import StorageState, lock_many, record_orphans

__all__ = ["Doubt", "block_doubt", "block_orphans", "doubt_of", "trusted_after"]


@dataclass(frozen=True, slots=True)
class Doubt:
    """What is wrong with a cut-over progression, as it was seen outside the lock.

    Attributes:
        judged: The JSON value that was compared.
        place: An ordinal whose row is missing or another one; None when no single row shows it.
        expected: The id that belongs there; None when there was no row at all.
        outside: A row lies below 0 or behind the allocator.
        details: Counts and digests, for the audit row.
    """

    judged: Judged
    code: BlockedCode
    authority: Authority
    compat_read: bool
    place: int | None
    expected: str | None
    outside: bool
    details: dict[str, Any]


def trusted_after(side: FrozenSide, rows: RowsVerdict) -> tuple[BlockedCode, Authority, bool] | None:
    """Say which representation is trusted, by what code, and whether compat read is forced; None when both are good.

    Contract: design decision 2.
    """
    if side.code is None and rows.code is None:
        return None
    code = rows.code or side.code or BlockedCode.DIGEST_MISMATCH
    if not rows.tail_is_good:
        return code, Authority.NONE, False
    if rows.prefix_is_good:
        changed = BlockedCode.FOREIGN_WRITE if side.is_rewritten else side.code
        return changed or code, Authority.ITEMS, False
    if side.ids is not None:
        return code, Authority.ITEMS, True
    return code, Authority.NONE, False


def doubt_of(side: FrozenSide, walk: ItemsWalk, extent: Extent, rows: RowsVerdict, state: StorageState) -> Doubt | None:
    """What must be proved again under the lock; None when nothing is wrong."""
    verdict = trusted_after(side, rows)
    if verdict is None:
        return None
    code, authority, compat = verdict
    place = walk.first if walk.first_in_tail is None or rows.tail_is_good else walk.first_in_tail
    expected = None
    if place is not None and place != walk.first_missing and walk.ids is not None and place < walk.frozen:
        expected = walk.ids[place]
    details = {
        "json_code": None if side.code is None else side.code.value,
        "json_count": side.judged.verdict.count,
        "json_digest": side.digest,
        "text_changed": side.is_rewritten,
        "items_count": walk.seen + extent.beyond,
        "next_ordinal": extent.next_ordinal,
        "first_difference": walk.first_difference(extent),
    }
    outside = place is None and not extent.is_clean
    return Doubt(side.judged, code, authority, compat, place, expected, outside, details)


def block_doubt(conn: Connection, /, doubt: Doubt, *, actor: str, now: float) -> Stage:
    """Block a cut-over progression, or move the trust of a blocked one, for what is still so under the lock.

    It stands if generation and value are those that were compared, and the row that showed it still does; rows that
    only their digest told apart are vouched for by the generation (decision 4).

    Cost: at most eight statements, and the comparison of `appended_since`.
    Contract: design decisions 2, 4.
    """
    judged = doubt.judged
    locked = lock_many(conn, [judged.progression_id]).get(judged.progression_id)
    state = None if locked is None else locked.state
    if locked is None or state is None or state.is_tombstone:
        return Stage(StageOutcome.MOVED)
    if (refused := refusal(conn, judged.progression_id, Permit(), now, orders=REMOVE)) is not None:
        return refused
    if state.authority is not Authority.ITEMS or state.generation != judged.generation:
        return Stage(StageOutcome.MOVED)
    since = appended_since(conn, locked, judged)
    if since is None or since.ids:
        return Stage(StageOutcome.TEXT_CHANGED)
    if not _still_differs(conn, state, doubt):
        return Stage(StageOutcome.UNPROVED)
    same = (state.blocked_reason, state.authority, state.compat_read) == (
        doubt.code,
        doubt.authority,
        doubt.compat_read,
    )
    if same:
        return Stage(StageOutcome.BLOCKED, code=doubt.code)
    return write_block(
        conn,
        state,
        doubt.code,
        authority=doubt.authority,
        compat_read=doubt.compat_read,
        details=doubt.details,
        actor=actor,
        now=now,
    )


def _still_differs(conn: Connection, state: StorageState, doubt: Doubt) -> bool:
    """Whether the rows still show what they showed. Cost: two seeks."""
    pid, place = state.progression_id, doubt.place
    if place is not None:
        found = page(conn, pid, after=place - 1, before=place + 1, limit=1)
        if doubt.expected is None:
            return not found and place < state.next_ordinal
        return found != [(place, doubt.expected)]
    if doubt.outside:
        last = page(conn, pid, limit=1, after=state.next_ordinal - 1)
        return bool(last or page(conn, pid, after=MIN_ORDINAL, before=0, limit=1))
    return True


def block_orphans(conn: Connection, /, progression_id: str, *, actor: str, now: float) -> Stage:
    """Block a progression that has item rows and no state row.

    Cost: at most five statements.
    Contract: design decision 22.
    """
    locked = lock_many(conn, [progression_id]).get(progression_id)
    if locked is None or locked.state is not None:
        return Stage(StageOutcome.MOVED)
    if (refused := refusal(conn, progression_id, Permit(), now, orders=REMOVE)) is not None:
        return refused
    if not record_orphans(conn, [progression_id]):
        return Stage(StageOutcome.UNPROVED)
    code = BlockedCode.ORPHAN_ITEMS
    details = {"code": code.value, "authority": Authority.NONE.value, "from": "json"}
    record_event(conn, "progression_migrate.block", target_id=progression_id, details=details, actor=actor, now=now)
    return Stage(StageOutcome.BLOCKED, code=code)
