"""Appends in every phase, one or many: lock, look, decide, then write one row per progression and item."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, select

from lionstate.dialects import dialect_of
from lionstate.dialects.statement import compiled_once
from lionstate.engine import Refused, Reply
from lionstate.errors import (
    BlockedCode,
    MalformedCollectionError,
    ProgressionBlockedError,
    StateError,
)
from lionstate.progression.collection import ParsedCollection, append_text, check_new_id
from lionstate.progression.items_append import append_alone
from lionstate.progression.parsed import Later, NeedsParse, ParsedValues, Unreadable
from lionstate.progression.phases import AppendTarget, Authority, Phase, append_target
from lionstate.progression.sightings import note_sighting, was_written_by_others
from lionstate.progression.storage_state import (
    AppendState,
    LockedForAppend,
    StorageState,
    lock_for_append,
    record_orphans,
    update_state,
    write_collection,
)
from lionstate.progression.stored_json import stored_json
from lionstate.schema.conversation import progressions

__all__ = ["Appender", "append_many", "append_to_progression", "with_effects"]

_COLLECTIONS_FOR: dict[str, Any] = {}


def _collections_query(conn: Connection) -> Any:
    name = conn.dialect.name
    if name not in _COLLECTIONS_FOR:
        _COLLECTIONS_FOR[name] = select(progressions.c.id, progressions.c.collection).where(
            dialect_of(conn).among(progressions.c.id, "ids")
        )
    return _COLLECTIONS_FOR[name]


def _read_collections(conn: Connection, ids: Sequence[str]) -> dict[str, Any]:
    if not ids:
        return {}
    bound = {"ids": dialect_of(conn).bind_ids(ids)}
    return stored_json(conn, compiled_once(_collections_query(conn)), bound, ids)


class _Fact:
    """What is known of one progression under its lock, and what the batch will append to it."""

    __slots__ = ("accepted", "in_items", "in_json", "parsed", "state", "target", "was_written_by_others")

    def __init__(self, version: int | None, state: AppendState | StorageState | None) -> None:
        """Take its locked rows; ``state`` is None when it has no state row."""
        if state is None:
            target = append_target(None, None, None)
        else:
            target = append_target(state.phase, state.authority, state.blocked_reason)
        self.target = target
        self.state = state
        self.in_json = target is AppendTarget.JSON or target is AppendTarget.DUAL
        self.in_items = target is AppendTarget.ITEMS or target is AppendTarget.DUAL
        self.was_written_by_others = was_written_by_others(version, state)
        self.parsed: ParsedCollection | Unreadable | NeedsParse | None = None
        self.accepted: dict[str, None] = {}


class Appender:
    """Decides and writes the appends of one batch.

    Use: make it with every pair that the batch may append, ``offer`` the pairs of each call, at the end ``write``.

    Contract: ADR-0117 D2; design §2.2, decisions 9, 11, 12, 16.
    """

    def __init__(
        self,
        conn: Connection,
        pairs: Sequence[tuple[str, str]],
        parsed: ParsedValues,
        locked: LockedForAppend | None = None,
    ) -> None:
        """Lock the progressions unless the caller has, read their phases and test membership.

        A progression without a state row that has item rows is blocked here, and the batch commits that whatever
        becomes of the appends (decision 22).

        Cost: at most five statements: parents, state rows, orphans of those without one, JSON values, membership. On
        SQLite one for the first two, and for up to four pairs one each for all that an append to item rows needs.
        """
        self._conn = conn
        self._values = parsed
        self._dialect = dialect_of(conn)
        parents, members = lock_for_append(conn, pairs) if locked is None else locked
        facts = self._facts = {pid: _Fact(version, state) for pid, version, state in parents}
        stateless = [pid for pid, fact in facts.items() if fact.state is None]
        if stateless:
            for pid, orphaned in record_orphans(conn, stateless).items():
                facts[pid] = _Fact(None, orphaned)
        wanted = [pid for pid, fact in facts.items() if fact.in_json or _doubts_items(fact)]
        if wanted:
            self._read_json(wanted)
        if members is None:
            in_rows = {pid for pid, fact in facts.items() if fact.target is AppendTarget.ITEMS}
            seek = {pair for pair in pairs if pair[0] in in_rows}
            members = self._dialect.existing_items(conn, sorted(seek)) if seek else set()
        self._members = members

    def _read_json(self, wanted: Sequence[str]) -> None:
        for progression, text in _read_collections(self._conn, wanted).items():
            found = self._values.get(progression, text)
            self._facts[progression].parsed = found if found is not None else NeedsParse(progression, text)

    def offer(self, pairs: Sequence[tuple[str, str]]) -> StateError | NeedsParse | None:
        """Append all pairs of a call, or none of them; what forbids it, None when nothing does.

        An id that is there already and a missing progression are no obstacle and add nothing.
        """
        new: list[tuple[_Fact, str]] = []
        for pair in pairs:
            fact = self._facts.get(pair[0])
            if fact is None or fact.target is AppendTarget.NOOP:
                continue
            obstacle = _obstacle_of(pair[0], fact)
            if obstacle is not None:
                return obstacle
            if not self._is_member(fact, pair):
                try:
                    check_new_id(pair[1])
                except StateError as error:
                    return error
                new.append((fact, pair[1]))
        for fact, message_id in new:
            fact.accepted[message_id] = None
        return None

    def _is_member(self, fact: _Fact, pair: tuple[str, str]) -> bool:
        message_id = pair[1]
        if message_id in fact.accepted:
            return True
        # Rows of any other phase decide nothing: a rollback leaves some behind for a while.
        in_rows = fact.target is AppendTarget.ITEMS
        if in_rows and pair in self._members:
            return True
        if not isinstance(fact.parsed, ParsedCollection):
            return False
        if in_rows and fact.state is not None:
            return fact.parsed.contains_within(message_id, fact.state.frozen_count or 0)
        return fact.parsed.contains(message_id)

    def write(self) -> list[Callable[[], None]]:
        """Write what was accepted; what is returned is applied in memory after COMMIT.

        Cost: one UPDATE per JSON or dual progression; one insert of all items; one UPDATE of all allocators.
        """
        effects: list[Callable[[], None]] = []
        items: list[tuple[str, int, str]] = []
        following: dict[str, int] = {}
        now = time.time()
        for progression, fact in self._facts.items():
            ids = list(fact.accepted)
            if not ids:
                continue
            if fact.was_written_by_others:
                # This write brings the version on the state row up to date: what it covers is kept.
                note_sighting(self._conn, progression, now=now)
            if fact.in_json:
                effects.append(self._write_json(progression, fact, ids))
            if fact.in_items and fact.state is not None and not self._drifted(progression, fact, now):
                first = fact.state.next_ordinal
                items += [(progression, first + position, mid) for position, mid in enumerate(ids)]
                following[progression] = first + len(ids)
            if fact.state is not None and fact.state.phase is Phase.BLOCKED:
                authority = fact.state.authority.value
                effects.append(functools.partial(self._values.observer.blocked_append, authority))
        self._dialect.insert_items(self._conn, items)
        self._dialect.advance_states(self._conn, following)
        return effects

    def _write_json(self, progression: str, fact: _Fact, ids: list[str]) -> Callable[[], None]:
        parsed = fact.parsed
        assert isinstance(parsed, ParsedCollection)
        text = parsed.text
        for message_id in ids:
            text = append_text(text, message_id)
        write_collection(self._conn, progression, text)

        def apply() -> None:
            self._values.extend(progression, parsed, text, ids)
            self._values.count_append(progression, len(ids))

        return apply

    def _drifted(self, progression: str, fact: _Fact, now: float) -> bool:
        """A dual value whose length is not the allocator's was written by somebody else: block, JSON only."""
        if fact.target is not AppendTarget.DUAL or fact.state is None:
            return False
        assert isinstance(fact.parsed, ParsedCollection)
        if fact.parsed.count == fact.state.next_ordinal:
            return False
        changes = {
            "phase": Phase.BLOCKED.value,
            "authority": Authority.JSON.value,
            "blocked_reason": BlockedCode.FOREIGN_WRITE.value,
            "updated_at": now,
        }
        update_state(self._conn, progression, changes)
        return True


def _obstacle_of(progression_id: str, fact: _Fact) -> StateError | NeedsParse | None:
    """What forbids every append to this progression now."""
    reason = fact.state.blocked_reason if fact.state is not None else None
    if fact.target is AppendTarget.REFUSED:
        return ProgressionBlockedError(reason=reason)
    parsed = fact.parsed
    if parsed is None or isinstance(parsed, ParsedCollection):
        return None
    if isinstance(parsed, NeedsParse):
        return parsed
    if fact.target is AppendTarget.ITEMS:
        # The frozen JSON is what vouches for the prefix while its items are in doubt.
        return ProgressionBlockedError(reason=reason)
    return MalformedCollectionError.of(progression_id, parsed.reason)


def _doubts_items(fact: _Fact) -> bool:
    """Blocked with the items as authority and compat read forced: the frozen JSON decides membership as well."""
    state = fact.state
    return state is not None and state.phase is Phase.BLOCKED and fact.in_items and state.compat_read


def append_many(conn: Connection, calls: Sequence[Mapping[str, Any]], parsed: ParsedValues, /) -> list[Any]:
    """The fold of ``append_to_progression``: a value, ``Reply``, ``Refused``, ``NeedsParse`` or ``Later`` per call.

    Cost: one statement for a single call in items on PostgreSQL. Else, whatever the number of calls and the length of
    the histories: two statements that lock, one that looks for orphans, one that reads JSON values, one that tests
    membership, one that inserts items, one that advances allocators; and one UPDATE per JSON or dual progression.
    SQLite runs membership once an id.
    """
    pairs = [(call["progression_id"], call["message_id"]) for call in calls]
    locked: LockedForAppend | None = None
    if len(pairs) == 1:
        found = append_alone(conn, pairs[0])
        if not isinstance(found, LockedForAppend):
            return [found]
        locked = found
    appender = Appender(conn, pairs, parsed, locked)
    results: list[Any] = []
    waiting: set[str] = set()
    for pair in pairs:
        if pair[0] in waiting:
            results.append(Later())
            continue
        obstacle = appender.offer((pair,))
        if isinstance(obstacle, NeedsParse):
            waiting.add(pair[0])
            results.append(obstacle)
        else:
            results.append(None if obstacle is None else Refused(obstacle))
    return with_effects(results, appender.write())


def with_effects(results: list[Any], effects: Sequence[Callable[[], None]]) -> list[Any]:
    """Let the first accepted call, whose result is None, carry what is applied in memory after COMMIT."""
    if not effects:
        return results

    def apply() -> None:
        for effect in effects:
            effect()

    results[results.index(None)] = Reply(None, apply)
    return results


def append_to_progression(conn: Connection, /, progression_id: str, message_id: str) -> None:
    """Append one id unless it is there; a missing progression is a no-op.

    Raises:
        ProgressionBlockedError: Blocked with no trustworthy authority.
        MalformedCollectionError: The JSON value is the authority and not readable.
        InvalidInputError: The id is new and not acceptable.

    Cost: five statements in json, six in dual, where the value is rewritten; one in items on PostgreSQL, three on
    SQLite.
    Contract: ADR-0055 D3, ADR-0117 D2.
    """
    call = {"progression_id": progression_id, "message_id": message_id}
    (result,) = append_many(conn, [call], ParsedValues(inline_bytes=None))
    if isinstance(result, Refused):
        raise result.error
