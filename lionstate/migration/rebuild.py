"""Writing the item rows of a frozen prefix anew from its JSON, where that is good and the rows are not (decision 2)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from sqlalchemy import Connection

from lionstate.audit import record_event
from lionstate.dialects import dialect_of
from lionstate.errors import BackendBusyError, NotFoundError, ParityError, PhaseConflictError
from lionstate.migration.port import MigrationStore, bound
from lionstate.migration.unblock import blocked_state
from lionstate.migration.verification import Facts, in_thread, judge, read_facts, read_page
from lionstate.progression.digest import digest_of
from lionstate.progression.items import Item, delete_items_between
from lionstate.progression.phases import Authority, Phase, new_generation
from lionstate.progression.storage_state import StorageState, update_state

__all__ = ["rebuild"]

_TRIES: Final = 3
# As a chunk of the copying (ADR-0117 D3).
_CHUNK_ROWS: Final = 500


@dataclass(slots=True)
class _Rows:
    """The rows of a progression, held against its frozen ids as they come.

    Attributes:
        wrong: Rows of the prefix that differ or are missing.
        chunks: First ordinals of the chunks that hold one of them.
        following: The ordinal that the tail goes on with.
    """

    ids: Sequence[str]
    wrong: int = 0
    chunks: dict[int, None] = field(default_factory=dict)
    following: int = 0
    _due: int = 0

    def __post_init__(self) -> None:
        self.following = len(self.ids)

    def take(self, rows: Sequence[Item]) -> None:
        """Go on with a page, in ordinal order."""
        for ordinal, found in rows:
            if ordinal >= len(self.ids):
                self.following += ordinal == self.following
                continue
            self._lack(ordinal)
            self._due = ordinal + 1
            if self.ids[ordinal] != found:
                self._note(ordinal)

    def end(self) -> None:
        """There are no more."""
        self._lack(len(self.ids))

    def _lack(self, until: int) -> None:
        for ordinal in range(self._due, until):
            self._note(ordinal)

    def _note(self, ordinal: int) -> None:
        self.wrong += 1
        self.chunks[ordinal - ordinal % _CHUNK_ROWS] = None


@dataclass(frozen=True, slots=True)
class _Plan:
    """What a look found: the state row, the digest of the frozen ids, and the rows held against them."""

    state: StorageState
    digest: str
    rows: _Rows


def _refuse(facts: Facts) -> StorageState:
    state = facts.state
    if facts.found is None or (state is not None and state.is_tombstone):
        raise NotFoundError("there is no such progression")
    if state is None or state.phase is not Phase.BLOCKED:
        raise PhaseConflictError("the progression is not blocked: there is nothing to do")
    if state.authority is not Authority.ITEMS or state.frozen_count is None:
        instead = "retry it" if state.authority is Authority.JSON else "say with use which one counts"
        raise PhaseConflictError(
            "rebuild writes the rows of a progression anew that was cut over and whose frozen JSON is good; here the"
            f" authority is {state.authority.value}: {instead}; nothing was changed"
        )
    return state


async def _look(store: MigrationStore, progression_id: str) -> _Plan | None:
    """Hold the rows against the frozen ids, and see that the tail is whole; None when they are other rows now."""
    facts: Facts = await store.read(bound(read_facts, progression_id))
    state = _refuse(facts)
    frozen = state.frozen_count or 0
    ids = (await judge(facts.value)).ids[:frozen]
    digest = await in_thread(digest_of, ids, sum(map(len, ids)))
    if len(ids) != frozen or digest != state.source_digest:
        raise ParityError(
            "the JSON is not that of the cutover: the item rows cannot be rebuilt from it; nothing was changed"
        )
    found, after = _Rows(ids), -1
    while True:
        generation, rows = await store.read(bound(read_page, progression_id, after, state.next_ordinal))
        if generation != state.generation:
            return None
        if not rows:
            break
        found.take(rows)
        after = rows[-1][0]
    found.end()
    if found.following != state.next_ordinal:
        raise ParityError(
            f"the rows behind the cutover lack ordinal {found.following}, and so does the JSON: rebuild cannot mend"
            " that; nothing was changed"
        )
    return _Plan(state, digest, found)


def _rewrite(
    conn: Connection,
    /,
    plan: _Plan,
    first: int | None,
    *,
    expected: int,
    generation: int,
    audit: Mapping[str, object] | None,
    actor: str,
    now: float,
) -> bool:
    """Write one chunk of the prefix, if the rows are still those of the generation; record its digest.

    Args:
        first: Ordinal of the chunk; None writes no row.
        audit: What the audit row tells; None writes none.
    """
    pid = plan.state.progression_id
    state = blocked_state(conn, pid)
    if state.generation != expected or state.authority is not Authority.ITEMS:
        return False
    if first is not None:
        chunk = plan.rows.ids[first : first + _CHUNK_ROWS]
        delete_items_between(conn, pid, first, first + len(chunk))
        rows = [(pid, ordinal, found) for ordinal, found in enumerate(chunk, first)]
        dialect_of(conn).insert_items(conn, rows)
    # What decision 2 trusts stays the JSON, read with the tail, until `unblock` has proved the rows.
    update_state(conn, pid, {"generation": generation, "items_digest": plan.digest, "updated_at": now})
    if audit is not None:
        record_event(conn, "progression_migrate.rebuild", target_id=pid, details=audit, actor=actor, now=now)
    return True


async def rebuild(store: MigrationStore, progression_id: str, *, actor: str, reason: str | None, now: float) -> int:
    """Write the rows of the frozen prefix that are wrong anew from the frozen JSON; those behind it stay.

    The progression stays blocked, and is read and appended to as before, between two chunks too: one that is cut
    short is begun again. `unblock` proves everything afterwards.

    Returns:
        Rows that were wrong or missing.
    Raises:
        NotFoundError: There is no such progression.
        PhaseConflictError: It is not blocked, or the items are not its authority.
        ParityError: The JSON is not that of the cutover, or the tail is not whole; nothing was changed.
        BackendBusyError: The rows were replaced again and again.

    Cost: linear in the history outside every lock; under it 500 rows for each chunk that holds a wrong one.
    Contract: design decisions 2, 4, 14.
    """
    for _ in range(_TRIES):
        plan = await _look(store, progression_id)
        if plan is not None and await _carry_out(store, plan, actor=actor, reason=reason, now=now):
            return plan.rows.wrong
    raise BackendBusyError("the progression was replaced while it was rebuilt: try again")


async def _carry_out(store: MigrationStore, plan: _Plan, *, actor: str, reason: str | None, now: float) -> bool:
    pid, expected = plan.state.progression_id, plan.state.generation
    code, rows = plan.state.blocked_reason, plan.rows
    audit: Mapping[str, object] | None = {
        "code": code,
        "rows": rows.wrong,
        "chunks": len(rows.chunks),
        "frozen_count": len(rows.ids),
        "digest": plan.digest,
        "reason": reason,
    }
    for first in rows.chunks or (None,):
        generation = new_generation()
        options: Mapping[str, Any] = {"audit": audit, "actor": actor, "now": now}
        script = bound(_rewrite, plan, first, expected=expected, generation=generation, **options)
        if not await store.maintain("progression_migrate.rebuild", script, progressions=[pid]):
            return False
        expected, audit = generation, None
    return True
