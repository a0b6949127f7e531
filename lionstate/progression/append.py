"""Appends in every phase, one or many: lock, look, decide, then write one row per progression and item."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import Connection, bindparam, select, update

from lionstate.dialects import Statement, dialect_of
from lionstate.dialects.statement import compiled_once
from lionstate.engine import Refused, Reply
from lionstate.errors import (
    BlockedCode,
    MalformedCollectionError,
    ProgressionBlockedError,
    StateError,
)
from lionstate.progression.collection import ParsedCollection, append_text, check_new_id
from lionstate.progression.parsed import Later, NeedsParse, ParsedValues, Unreadable
from lionstate.progression.phases import AppendTarget, Authority, Phase, append_target
from lionstate.progression.sightings import note_sighting, was_written_by_others
from lionstate.progression.storage_state import StorageState, lock_many, record_orphans, update_state
from lionstate.schema.conversation import progressions

__all__ = ["Appender", "append_many", "append_to_progression"]

_SET_COLLECTION = Statement(
    update(progressions).where(progressions.c.id == bindparam("pid")).values(collection=bindparam("text"))
)
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
    rows = compiled_once(_collections_query(conn)).rows(conn, {"ids": dialect_of(conn).bind_ids(ids)})
    return {row[0]: row[1] for row in rows}


@dataclass(slots=True)
class _Fact:
    """What is known of one progression under its lock, and what the batch will append to it."""

    target: AppendTarget
    state: StorageState | None
    was_written_by_others: bool = False
    parsed: ParsedCollection | Unreadable | NeedsParse | None = None
    accepted: dict[str, None] = field(default_factory=dict)

    @property
    def in_json(self) -> bool:
        return self.target in (AppendTarget.JSON, AppendTarget.DUAL)

    @property
    def in_items(self) -> bool:
        return self.target in (AppendTarget.DUAL, AppendTarget.ITEMS)


class Appender:
    """Decides and writes the appends of one batch.

    Use: make it with every pair that the batch may append, call ``obstacle`` for all pairs of a call and, when none
    has one, ``accept`` them; at the end ``write`` once.

    Contract: ADR-0117 D2; design §2.2, decisions 9, 11, 12, 16.
    """

    def __init__(self, conn: Connection, pairs: Sequence[tuple[str, str]], parsed: ParsedValues) -> None:
        """Lock the progressions, read their phases and test membership.

        A progression without a state row that has item rows is blocked here, and the batch commits that whatever
        becomes of the appends (decision 22).

        Cost: at most five statements: parents, state rows, orphans of those without one, JSON values, membership.
        """
        self._conn = conn
        self._values = parsed
        self._dialect = dialect_of(conn)
        self._facts: dict[str, _Fact] = {}
        ids = sorted({progression for progression, _ in pairs})
        for progression, locked in lock_many(conn, ids).items():
            self._facts[progression] = _fact(locked.state, was_written_by_others(locked))
        stateless = [progression for progression, fact in self._facts.items() if fact.state is None]
        for progression, orphaned in record_orphans(conn, stateless).items():
            self._facts[progression] = _fact(orphaned)
        self._read_json(ids)
        seek = {pair for pair in pairs if (fact := self._facts.get(pair[0])) and fact.target is AppendTarget.ITEMS}
        self._members = self._dialect.existing_items(conn, sorted(seek)) if seek else set()

    def _read_json(self, ids: Sequence[str]) -> None:
        wanted = [pid for pid in ids if (fact := self._facts.get(pid)) and (fact.in_json or _doubts_items(fact))]
        for progression, text in _read_collections(self._conn, wanted).items():
            found = self._values.get(progression, text)
            self._facts[progression].parsed = found if found is not None else NeedsParse(progression, text)

    def obstacle(self, progression: str, message_id: str) -> StateError | NeedsParse | None:
        """What forbids this append now; None when it may be accepted (a no-op included)."""
        fact = self._facts.get(progression)
        if fact is None or fact.target is AppendTarget.NOOP:
            return None
        if fact.target is AppendTarget.REFUSED:
            reason = fact.state.blocked_reason if fact.state is not None else None
            return ProgressionBlockedError(reason=reason)
        if isinstance(fact.parsed, NeedsParse):
            return fact.parsed
        if isinstance(fact.parsed, Unreadable):
            if fact.state is not None and fact.target is AppendTarget.ITEMS:
                # The frozen JSON is what vouches for the prefix while its items are in doubt.
                return ProgressionBlockedError(reason=fact.state.blocked_reason)
            return MalformedCollectionError(reason=fact.parsed.reason)
        if not self._is_member(fact, progression, message_id):
            try:
                check_new_id(message_id)
            except StateError as error:
                return error
        return None

    def _is_member(self, fact: _Fact, progression: str, message_id: str) -> bool:
        if message_id in fact.accepted or (progression, message_id) in self._members:
            return True
        if not isinstance(fact.parsed, ParsedCollection):
            return False
        if fact.target is AppendTarget.ITEMS and fact.state is not None:
            return fact.parsed.contains_within(message_id, fact.state.frozen_count or 0)
        return fact.parsed.contains(message_id)

    def accept(self, progression: str, message_id: str) -> None:
        """Append at the end unless the id is there already or the progression is missing."""
        fact = self._facts.get(progression)
        if fact is None or fact.target is AppendTarget.NOOP:
            return
        if not self._is_member(fact, progression, message_id):
            fact.accepted[message_id] = None

    def write(self) -> Callable[[], None]:
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
        self._dialect.advance_states(self._conn, following, now)

        def apply() -> None:
            for effect in effects:
                effect()

        return apply

    def _write_json(self, progression: str, fact: _Fact, ids: list[str]) -> Callable[[], None]:
        parsed = fact.parsed
        assert isinstance(parsed, ParsedCollection)
        text = parsed.text
        for message_id in ids:
            text = append_text(text, message_id)
        _SET_COLLECTION.run(self._conn, {"pid": progression, "text": text})

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


def _fact(state: StorageState | None, was_written_by_others: bool = False) -> _Fact:
    if state is None:
        return _Fact(append_target(None, None, reason=None), None)
    target = append_target(state.phase, state.authority, reason=state.blocked_reason)
    return _Fact(target, state, was_written_by_others)


def _doubts_items(fact: _Fact) -> bool:
    """Blocked with the items as authority and compat read forced: the frozen JSON decides membership as well."""
    state = fact.state
    return state is not None and state.phase is Phase.BLOCKED and fact.in_items and state.compat_read


def append_many(conn: Connection, calls: Sequence[Mapping[str, Any]], parsed: ParsedValues, /) -> list[Any]:
    """The fold of ``append_to_progression``: a value, ``Refused``, ``NeedsParse`` or ``Later`` per call.

    Cost: whatever the number of calls and the length of the histories: two statements that lock, one that looks for
    orphans, one that reads JSON values, one that tests membership, one that inserts items, one that advances
    allocators; and one UPDATE per JSON or dual progression. SQLite runs membership once an id.
    """
    pairs = [(call["progression_id"], call["message_id"]) for call in calls]
    appender = Appender(conn, pairs, parsed)
    results: list[Any] = []
    waiting: set[str] = set()
    for progression, message_id in pairs:
        if progression in waiting:
            results.append(Later())
            continue
        obstacle = appender.obstacle(progression, message_id)
        if isinstance(obstacle, NeedsParse):
            waiting.add(progression)
            results.append(obstacle)
        elif obstacle is not None:
            results.append(Refused(obstacle))
        else:
            appender.accept(progression, message_id)
            results.append(None)
    effects = appender.write()
    for position, result in enumerate(results):
        if result is None:
            results[position] = Reply(None, effects)
            break
    return results


def append_to_progression(conn: Connection, /, progression_id: str, message_id: str) -> None:
    """Append one id unless it is there; a missing progression is a no-op.

    Raises:
        ProgressionBlockedError: Blocked with no trustworthy authority.
        MalformedCollectionError: The JSON value is the authority and not readable.
        InvalidInputError: The id is new and not acceptable.

    Cost: five statements in json and in items, six in dual; in json and dual the value is rewritten.
    Contract: ADR-0055 D3, ADR-0117 D2.
    """
    call = {"progression_id": progression_id, "message_id": message_id}
    (result,) = append_many(conn, [call], ParsedValues(inline_bytes=None))
    if isinstance(result, Refused):
        raise result.error
