"""Leaving ``blocked``: from scratch, or with the items as they are (design decision 14)."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from sqlalchemy import Connection

from lionstate.audit import record_event
from lionstate.dialects import dialect_of
from lionstate.errors import (
    BackendBusyError,
    BlockedCode,
    NotFoundError,
    ParityError,
    PhaseConflictError,
    ProgressionBlockedError,
)
from lionstate.migration.port import MigrationStore, bound
from lionstate.migration.verification import Facts, in_thread, judge, read_facts, read_page
from lionstate.progression.collection import encode
from lionstate.progression.control import ensure_fence
from lionstate.progression.digest import digest_of
from lionstate.progression.items import MAX_ORDINAL, MIN_ORDINAL, delete_items_below, page
from lionstate.progression.phases import Authority, Phase, new_generation
from lionstate.progression.storage_state import StorageState, lock_many, update_state, write_collection

__all__ = ["Foreign", "Representation", "blocked_state", "retry", "unblock"]

_TRIES = 3
_UNCHANGED = "nothing was changed: unblock with rebuild writes them anew where the frozen JSON is good"
_TRUSTED = {
    Authority.JSON: "here the JSON is the authority, with all its ids: retry it, or unblock without adopt",
    Authority.NONE: "here neither is trusted: say with use which one counts, without adopt",
}


class Representation(StrEnum):
    """Which representation counts from now on, where neither was trusted."""

    JSON = "json"
    ITEMS = "items"


class Foreign(StrEnum):
    """What becomes of ids that another program appended to the JSON after the cutover."""

    ADOPT = "adopt"
    DISCARD = "discard"


def blocked_state(conn: Connection, /, progression_id: str) -> StorageState:
    """Lock a blocked progression and give its state row.

    Raises:
        NotFoundError, PhaseConflictError: There is no such progression; it is not blocked.
    """
    locked = lock_many(conn, [progression_id]).get(progression_id)
    if locked is None or (locked.state is not None and locked.state.is_tombstone):
        raise NotFoundError("there is no such progression")
    if locked.state is None or locked.state.phase is not Phase.BLOCKED:
        raise PhaseConflictError("the progression is not blocked: there is nothing to do")
    return locked.state


def retry(
    conn: Connection,
    /,
    progression_id: str,
    *,
    use_json: bool = False,
    generation: int,
    actor: str,
    reason: str | None,
    now: float,
) -> None:
    """Return a blocked progression to ``json``; its item rows are removed in chunks, then it is admitted anew.

    Args:
        use_json: Also where neither representation is trusted.
    Raises:
        NotFoundError: There is no such progression.
        PhaseConflictError: It is not blocked.
        ProgressionBlockedError: Its authority is not the JSON, which lacks what was appended since the cutover.

    Cost: at most six statements.
    Contract: design decision 14, design §5.
    """
    state = blocked_state(conn, progression_id)
    if state.authority is not Authority.JSON and not (use_json and state.authority is Authority.NONE):
        raise ProgressionBlockedError(
            "the JSON is not the authority of this progression, and lacks what was appended since: unblock it instead",
            reason=state.blocked_reason,
        )
    changes = {
        "phase": Phase.JSON.value,
        "authority": Authority.JSON.value,
        "generation": generation,
        "blocked_reason": None,
        "source_count": None,
        "backfill_next": 0,
        "next_ordinal": 0,
        "frozen_count": None,
        "source_digest": None,
        "items_digest": None,
        "text_bytes": None,
        "text_sha256": None,
        "compat_read": 0,
        "held_reason": None,
        "held_detail": None,
        "verify_misses": 0,
        "cutover_at": None,
        "shadow_rows": int(bool(page(conn, progression_id, after=MIN_ORDINAL, limit=1))),
        "updated_at": now,
    }
    update_state(conn, progression_id, changes)
    details = {"code": state.blocked_reason, "authority": state.authority.value, "reason": reason}
    record_event(conn, "progression_migrate.retry", target_id=progression_id, details=details, actor=actor, now=now)


@dataclass(frozen=True, slots=True)
class _Repair:
    """Items that were read and proved whole, and the JSON text that follows from them.

    Attributes:
        frozen_count: Elements of that text.
        foreign: Ids that only the JSON has, in its order.
        value: What stood in the column.
    """

    state: StorageState
    frozen_count: int
    text: str
    digest: str
    foreign: tuple[str, ...]
    value: object


def _encode_all(ids: Sequence[str]) -> tuple[str, str]:
    return encode(ids), digest_of(ids)


async def _read_items(store: MigrationStore, progression_id: str, state: StorageState, count: int) -> list[str] | None:
    """All item rows of one generation; None when another one was met."""
    ids: list[str] = []
    while len(ids) < count:
        generation, rows = await store.read(bound(read_page, progression_id, len(ids) - 1, count))
        if generation != state.generation:
            return None
        if not rows or [ordinal for ordinal, _ in rows] != list(range(len(ids), len(ids) + len(rows))):
            raise ParityError(
                f"the item rows have a gap at ordinal {len(ids)}: they cannot be the authority; {_UNCHANGED}"
            )
        ids += [found for _, found in rows]
    return ids


async def _prepare(store: MigrationStore, progression_id: str, *, use_items: bool) -> _Repair | None:
    facts: Facts = await store.read(bound(read_facts, progression_id))
    state = facts.state
    if facts.found is None or (state is not None and state.is_tombstone):
        raise NotFoundError("there is no such progression")
    if state is None or state.phase is not Phase.BLOCKED:
        raise PhaseConflictError("the progression is not blocked: there is nothing to do")
    if state.authority is Authority.NONE and not use_items:
        raise ProgressionBlockedError(
            "neither representation is trusted: say which one counts from now on, json or items",
            reason=state.blocked_reason,
        )
    trusted = state.authority is Authority.ITEMS
    count = state.next_ordinal if trusted else facts.items
    if facts.items != count:
        raise ParityError(
            f"there are {facts.items} item rows and the next ordinal is {count}: they cannot be the authority;"
            f" {_UNCHANGED}"
        )
    ids = await _read_items(store, progression_id, state, count)
    if ids is None:
        return None
    frozen = state.frozen_count if trusted and state.frozen_count is not None else len(ids)
    size = sum(map(len, ids))
    text, digest = await in_thread(_encode_all, ids[:frozen], size)
    if trusted and state.items_digest is not None and digest != state.items_digest:
        raise ParityError(
            "the item rows of the frozen prefix are not those of the cutover: they cannot be the authority;"
            f" {_UNCHANGED}"
        )
    verdict = await judge(facts.value)
    known = set(ids)
    foreign = tuple(dict.fromkeys(found for found in verdict.ids if found not in known)) if trusted else ()
    return _Repair(state, frozen, text, digest, foreign, facts.value)


def _write(
    conn: Connection,
    /,
    repair: _Repair,
    *,
    adopt: bool,
    generation: int,
    actor: str,
    reason: str | None,
    now: float,
) -> bool:
    """Make the items the only authority if nothing that was read has changed; False to read again."""
    pid = repair.state.progression_id
    state = blocked_state(conn, pid)
    dialect = dialect_of(conn)
    found = dialect.collection_of(conn, pid)
    if state.generation != repair.state.generation or found is None or found.value != repair.value:
        return False
    if state.authority is not Authority.ITEMS and state.next_ordinal != repair.state.next_ordinal:
        return False
    following = state.next_ordinal if state.authority is Authority.ITEMS else repair.frozen_count
    # No reader looks below 0; what lies there would block it again, and keeps its id from being adopted.
    strays = delete_items_below(conn, pid, 0)
    adopted: list[str] = []
    if adopt and repair.foreign:
        there = dialect.existing_items(conn, [(pid, found) for found in repair.foreign])
        adopted = [found for found in repair.foreign if (pid, found) not in there]
        dialect.insert_items(conn, [(pid, following + place, found) for place, found in enumerate(adopted)])
    ensure_fence(conn)
    update_state(conn, pid, {"replacing": 1})
    write_collection(conn, pid, repair.text)
    encoded = repair.text.encode()
    changes = {
        "phase": Phase.ITEMS.value,
        "authority": Authority.ITEMS.value,
        "generation": generation,
        "replacing": 0,
        "blocked_reason": None,
        "source_count": repair.frozen_count,
        "backfill_next": repair.frozen_count,
        "next_ordinal": following + len(adopted),
        "frozen_count": repair.frozen_count,
        "source_digest": repair.digest,
        "items_digest": repair.digest,
        "text_bytes": len(encoded),
        "text_sha256": hashlib.sha256(encoded).hexdigest(),
        "compat_read": 0,
        "shadow_rows": 0,
        "cutover_at": state.cutover_at or now,
        "updated_at": now,
        "last_xact": dialect.parent_version(conn, pid),
    }
    update_state(conn, pid, changes)
    details = {
        "code": state.blocked_reason,
        "authority": state.authority.value,
        "adopted": len(adopted),
        "discarded": 0 if adopt else len(repair.foreign),
        "strays": strays,
        "frozen_count": repair.frozen_count,
        "digest": repair.digest,
        "reason": reason,
    }
    record_event(conn, "progression_migrate.unblock", target_id=pid, details=details, actor=actor, now=now)
    return True


async def _check_loss(store: MigrationStore, facts: Facts, state: StorageState, foreign: Foreign | None) -> None:
    """Refuse a JSON value as the authority that cannot be migrated, or that lacks ids of the items unless told so."""
    verdict = await judge(facts.value)
    if (code := verdict.code_for(store.dialect.capabilities.max_migratable_id_bytes)) is not None:
        raise ParityError(
            f"the JSON cannot be the authority ({code.value}), and its {facts.items} item rows would be removed;"
            " nothing was changed: repair the JSON first, or use items"
        )
    known, lost, after = set(verdict.ids), 0, MIN_ORDINAL
    while rows := (await store.read(bound(read_page, state.progression_id, after, MAX_ORDINAL)))[1]:
        lost += sum(found not in known for _, found in rows)
        after = rows[-1][0]
    if lost and foreign is not Foreign.DISCARD:
        raise ProgressionBlockedError(
            f"the items hold {lost} ids that the JSON lacks, which would be removed; nothing was changed: say discard"
            " to leave them out, or use items",
            reason=state.blocked_reason,
        )


async def unblock(
    store: MigrationStore,
    progression_id: str,
    *,
    use: Representation | None,
    foreign: Foreign | None,
    actor: str,
    reason: str | None,
    now: float,
) -> str:
    """Let a blocked progression out; returns the phase that it has then.

    With the JSON as its authority: as `retry`. With the items: they are proved whole again, the JSON is written anew
    from the frozen prefix, and the phase is ``items``. With neither: ``use`` says which counts.

    Args:
        use: Only where neither representation is trusted.
        foreign: What becomes of ids that only the JSON has; needed when there are any. With ``use`` json it must be
            discard where the items hold ids that the JSON lacks.
    Raises:
        NotFoundError: There is no such progression.
        PhaseConflictError: It is not blocked, ``use`` was given where one representation is trusted, or adopt where
            the items are not.
        ProgressionBlockedError: ``use`` or ``foreign`` is needed.
        ParityError: The items are not whole, or the JSON cannot be migrated: it cannot be the authority.
        BackendBusyError: The value or the rows kept changing.

    Cost: linear in the history outside every lock; under it one comparison and one write of the JSON value.
    Contract: design decision 14.
    """
    facts: Facts = await store.read(bound(read_facts, progression_id))
    state = facts.state
    blocked = state is not None and state.phase is Phase.BLOCKED and not state.is_tombstone
    if blocked and state is not None and use is not None and state.authority is not Authority.NONE:
        raise PhaseConflictError(f"the {state.authority.value} representation is the authority: there is no choice")
    if blocked and state is not None and foreign is Foreign.ADOPT and state.authority is not Authority.ITEMS:
        raise PhaseConflictError(
            "there is nothing to adopt: that appends ids which only the JSON has to items that are trusted, and"
            f" {_TRUSTED[state.authority]}; nothing was changed"
        )
    if blocked and state is not None and (state.authority is Authority.JSON or use is Representation.JSON):
        if state.authority is Authority.NONE:
            await _check_loss(store, facts, state, foreign)
        script = bound(
            retry,
            progression_id,
            use_json=use is Representation.JSON,
            generation=new_generation(),
            actor=actor,
            reason=reason,
            now=now,
        )
        await store.maintain("progression_migrate.unblock", script, progressions=[progression_id])
        return Phase.JSON.value
    for _ in range(_TRIES):
        repair = await _prepare(store, progression_id, use_items=use is Representation.ITEMS)
        if repair is None:
            continue
        if repair.foreign and foreign is None:
            raise ProgressionBlockedError(
                f"the JSON holds {len(repair.foreign)} ids that the items lack: say adopt or discard",
                reason=BlockedCode.FOREIGN_WRITE,
            )
        options: Mapping[str, Any] = {
            "adopt": foreign is Foreign.ADOPT,
            "generation": new_generation(),
            "actor": actor,
            "reason": reason,
            "now": now,
        }
        write = bound(_write, repair, **options)
        if await store.maintain("progression_migrate.unblock", write, progressions=[progression_id]):
            return Phase.ITEMS.value
    raise BackendBusyError("the progression kept changing while it was proved; nothing was changed: try again")
