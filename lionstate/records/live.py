"""The way a message gets into the store: its row, its places in progressions, the activity of its session.

Contract: ADR-0055 D1, D3; ADR-0117 D2; design §2.2, decision 29.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, Float, Text, bindparam, literal_column, or_, select, type_coerce

from lionstate.dialects import Statement, dialect_of
from lionstate.dialects.records import MESSAGE_COLUMNS
from lionstate.engine import Refused, Reply
from lionstate.errors import InvalidInputError, StateError
from lionstate.progression.append import Appender, with_effects
from lionstate.progression.items_append import PlainAppends, plain_appends
from lionstate.progression.parsed import Later, NeedsParse, ParsedValues
from lionstate.progression.storage_state import LockedForAppend, look_for_append, looked_at
from lionstate.records.message_types import UNKNOWN_CLASS, class_ids
from lionstate.records.messages import MessageRow, checked_message
from lionstate.records.values import check_text, finite_number
from lionstate.schema.conversation import messages as message_table
from lionstate.schema.conversation import sessions
from lionstate.schema.types import numeric_form

__all__ = [
    "Recording",
    "checked_record",
    "insert_message",
    "insert_message_many",
    "insert_messages",
    "insert_messages_many",
    "message_of",
    "record_many",
    "record_message",
    "recording_of",
    "several_of",
]

# Compared in the database, so that nothing is read which may be damaged; all but the time of creation, which stays.
_COMPARED = MESSAGE_COLUMNS[2:]
_IS_STORED = Statement(
    select(literal_column("1"))
    .where(message_table.c.id == bindparam("mid"))
    .where(
        *(
            type_coerce(message_table.c[name], Text).is_not_distinct_from(bindparam(name, type_=Text))
            for name in _COMPARED
        )
    )
)
_IS_BEHIND = Statement(
    select(literal_column("1"))
    .where(sessions.c.id == bindparam("session"))
    .where(
        or_(
            sessions.c.last_message_at.is_(None),
            sessions.c.last_message_at < bindparam("at", type_=Float),
            sessions.c.updated_at < bindparam("at", type_=Float),
        )
    )
)
_IDS = ("session_id", "branch_progression_id", "session_progression_id", "system_branch_id")


@dataclass(slots=True)
class Recording:
    """What one call records; all of it or nothing.

    Attributes:
        messages: Checked, in order.
        progressions: Each gets all messages at its end, the ones it has already excepted.
        session: Whose activity moves forward.
        activity_at: To which time; None is now.
        system: A branch and the message that becomes its system message.
    """

    messages: Sequence[MessageRow]
    progressions: Sequence[str] = ()
    session: str | None = None
    activity_at: float | None = None
    system: tuple[str, str] | None = None

    def pairs(self) -> list[tuple[str, str]]:
        """Every append that it asks for."""
        return [(progression, message.id) for progression in self.progressions for message in self.messages]

    def keys(self) -> set[str]:
        """What it touches, as the planner names it."""
        found = {f"p:{progression}" for progression in self.progressions}
        found.update(f"m:{message.id}" for message in self.messages)
        if self.session is not None:
            found.add(f"s:{self.session}")
        if self.system is not None:
            found.add(f"b:{self.system[0]}")
        return found


class _Rows:
    """What the accepted calls of a batch write beside their appends, merged to one row each."""

    def __init__(self, now: float) -> None:
        self._now = now
        self._messages: dict[str, MessageRow] = {}
        self._created: dict[str, float] = {}
        self._activity: dict[str, float] = {}
        self._system: dict[str, str] = {}
        self._written: list[tuple[Any, ...]] = []

    def add(self, recording: Recording) -> None:
        for message in recording.messages:
            # Last content, first creation time: what one call after the other would leave.
            self._created.setdefault(message.id, message.created_at)
            self._messages[message.id] = message
        if recording.session is not None:
            at = self._now if recording.activity_at is None else recording.activity_at
            self._activity[recording.session] = max(at, self._activity.get(recording.session, at))
        if recording.system is not None:
            self._system[recording.system[0]] = recording.system[1]

    def write_messages(self, conn: Connection, known: Mapping[str, int]) -> dict[str, int]:
        """Upsert in id order, so that two transactions never wait for each other; return class ids to learn."""
        merged = [self._messages[found] for found in sorted(self._messages)]
        learned = class_ids(conn, {row.lion_class for row in merged if row.lion_class is not None}, known)
        rows = [(row.id, self._created[row.id], *row.stored, _type_of(row, known, learned)) for row in merged]
        dialect_of(conn).upsert_messages(conn, rows)
        self._written = rows
        return learned

    def write_rest(self, conn: Connection) -> None:
        dialect = dialect_of(conn)
        dialect.touch_sessions(conn, self._activity)
        dialect.set_system_messages(conn, self._system)

    def stand(self, conn: Connection) -> bool:
        """Whether the messages and the activity of sessions stand in the store, or later activity. For SQLite."""
        for mid, _, metadata, content, *others in self._written:
            values = (numeric_form(metadata), numeric_form(content), *others)
            if not _IS_STORED.rows(conn, {"mid": mid, **dict(zip(_COMPARED, values, strict=True))}):
                return False
        return not any(_IS_BEHIND.rows(conn, {"session": session, "at": at}) for session, at in self._activity.items())


def _type_of(row: MessageRow, known: Mapping[str, int], learned: Mapping[str, int]) -> int:
    name = row.lion_class
    return UNKNOWN_CLASS if name is None else known[name] if name in known else learned[name]


def record(conn: Connection, recordings: Sequence[Recording], parsed: ParsedValues, /) -> list[Any]:
    """Decide all calls under the locks of all their progressions, then write what was accepted.

    Returns:
        Per call: None (the first accepted one as ``Reply``), ``Refused``, ``NeedsParse`` or ``Later``. A call goes
        round whole, and so does each later one that shares anything with it.

    Cost: a number of statements that does not depend on the number of calls (on SQLite executions of as many
    prepared statements), plus one per JSON or dual progression.
    """
    pairs = [pair for recording in recordings for pair in recording.pairs()]
    locked: LockedForAppend | None = None
    if pairs and len(recordings) == 1 and (looked := look_for_append(conn, pairs)) is not None:
        plain = plain_appends(looked, pairs)
        if plain is not None:
            if isinstance(plain, StateError):
                return [Refused(plain)]
            return [_record_plain(conn, recordings[0], plain, parsed)]
        locked = looked_at(zip(pairs, looked, strict=True))
    appender = Appender(conn, pairs, parsed, locked) if pairs else None
    rows = _Rows(time.time())
    results: list[Any] = []
    waiting: set[str] = set()
    for recording in recordings:
        result = _decide(recording, appender, waiting)
        results.append(result)
        if result is None:
            rows.add(recording)
        elif not isinstance(result, Refused):
            waiting |= recording.keys()
    if None not in results:
        return results
    learned = rows.write_messages(conn, parsed.class_ids)
    effects = appender.write() if appender is not None else []
    rows.write_rest(conn)
    if learned:
        effects.append(functools.partial(parsed.class_ids.update, learned))
    return with_effects(results, effects)


def _record_plain(conn: Connection, recording: Recording, appends: PlainAppends, parsed: ParsedValues) -> Reply:
    """One call whose progressions are all in ``items``."""
    rows = _Rows(time.time())
    rows.add(recording)
    learned = rows.write_messages(conn, parsed.class_ids)
    appends.write(conn)
    rows.write_rest(conn)
    # Another process may have recorded the same ids meanwhile: then they tell nothing unless all else stands as well.
    tells = bool(appends.items) and recording.system is None
    look = functools.partial(_stands, rows=rows, appends=appends) if tells else None
    learn = functools.partial(parsed.class_ids.update, learned) if learned else None
    return Reply(None, learn, look)


def _stands(conn: Connection, *, rows: _Rows, appends: PlainAppends) -> bool | None:
    """Whether all that one call wrote stands in the store; None where that cannot be told."""
    found = appends.are_there(conn)
    return (rows.stand(conn) or None) if found else found


def _decide(recording: Recording, appender: Appender | None, waiting: set[str]) -> Refused | NeedsParse | Later | None:
    if waiting and not waiting.isdisjoint(recording.keys()):
        return Later()
    if appender is None:
        return None
    obstacle = appender.offer(recording.pairs())
    return Refused(obstacle) if isinstance(obstacle, StateError) else obstacle


def _alone(conn: Connection, recording: Recording) -> None:
    (result,) = record(conn, [recording], ParsedValues(inline_bytes=None))
    if isinstance(result, Refused):
        raise result.error


def checked_record(params: Mapping[str, Any]) -> dict[str, Any]:
    """Check the parameters of ``record_message``, ``insert_message`` or ``insert_messages`` and encode the messages.

    Raises:
        InvalidInputError: Before anything is written.

    Cost: linear in the content; nothing for a message that is checked already.
    """
    found = dict(params)
    if "msg" in found:
        found["msg"] = checked_message(found["msg"])
    if "msgs" in found:
        found["msgs"] = [_checked_at(place, msg) for place, msg in enumerate(_several("msgs", found["msgs"]))]
    if "progression_ids" in found:
        ids = _several("progression_ids", found["progression_ids"])
        found["progression_ids"] = [check_text("progression_ids", one) for one in ids]
    for name in _IDS:
        if found.get(name) is not None:
            check_text(name, found[name])
    if found.get("activity_at") is not None:
        found["activity_at"] = finite_number("activity_at", found["activity_at"])
    return found


def _checked_at(place: int, msg: Any) -> MessageRow:
    try:
        return checked_message(msg)
    except InvalidInputError as error:
        raise type(error)(f"msgs[{place}]: {error}") from error


def _several(name: str, value: object) -> Iterable[Any]:
    if isinstance(value, (str, bytes, Mapping)) or not isinstance(value, Iterable):
        raise InvalidInputError(f"{name} must be a list, not {type(value).__name__}")
    return value


def recording_of(call: Mapping[str, Any]) -> Recording:
    """What a checked call of ``record_message`` records."""
    message = call["msg"]
    branch = call.get("system_branch_id")
    progressions = (call.get("branch_progression_id"), call.get("session_progression_id"))
    return Recording(
        (message,),
        tuple(dict.fromkeys(found for found in progressions if found is not None)),
        call["session_id"],
        call.get("activity_at"),
        None if branch is None else (branch, message.id),
    )


def record_many(conn: Connection, calls: Sequence[Mapping[str, Any]], parsed: ParsedValues, /) -> list[Any]:
    """The fold of ``record_message``."""
    return record(conn, [recording_of(call) for call in calls], parsed)


def record_message(
    conn: Connection,
    /,
    msg: Mapping[str, Any],
    session_id: str,
    branch_progression_id: str | None = None,
    session_progression_id: str | None = None,
    system_branch_id: str | None = None,
    system_branch_update_before_activity: bool = False,
    activity_at: float | None = None,
) -> None:
    """Store a message, append it to its branch and its session, move the session's activity forward.

    Contract: ADR-0055 D1, D3; ADR-0117 D2; design decision 29.
    """
    call = {
        "msg": msg,
        "session_id": session_id,
        "branch_progression_id": branch_progression_id,
        "session_progression_id": session_progression_id,
        "system_branch_id": system_branch_id,
        "activity_at": activity_at,
    }
    _alone(conn, recording_of(checked_record(call)))


def message_of(call: Mapping[str, Any]) -> Recording:
    """What a checked call of ``insert_message`` records."""
    return Recording((call["msg"],))


def insert_message_many(conn: Connection, calls: Sequence[Mapping[str, Any]], parsed: ParsedValues, /) -> list[Any]:
    """The fold of ``insert_message``."""
    return record(conn, [message_of(call) for call in calls], parsed)


def insert_message(conn: Connection, /, msg: Mapping[str, Any]) -> None:
    """Store a message; the same id again overwrites everything but ``created_at``.

    Contract: ADR-0055 D1; reference §2.1.
    """
    _alone(conn, message_of(checked_record({"msg": msg})))


def several_of(call: Mapping[str, Any]) -> Recording:
    """What a checked call of ``insert_messages`` records; nothing at all for no messages."""
    rows = call["msgs"]
    if not rows:
        return Recording(())
    progressions = tuple(dict.fromkeys(call.get("progression_ids") or ()))
    return Recording(rows, progressions, call.get("session_id"), call.get("activity_at"))


def insert_messages_many(conn: Connection, calls: Sequence[Mapping[str, Any]], parsed: ParsedValues, /) -> list[Any]:
    """The fold of ``insert_messages``."""
    return record(conn, [several_of(call) for call in calls], parsed)


def insert_messages(
    conn: Connection,
    /,
    msgs: Sequence[Mapping[str, Any]],
    *,
    progression_ids: Sequence[str] = (),
    session_id: str | None = None,
    activity_at: float | None = None,
) -> None:
    """Store messages, append them in order to each progression, move the session's activity forward.

    Contract: ADR-0055 D1, D3; reference §2.1.
    """
    call = {
        "msgs": msgs,
        "progression_ids": progression_ids,
        "session_id": session_id,
        "activity_at": activity_at,
    }
    _alone(conn, several_of(checked_record(call)))
