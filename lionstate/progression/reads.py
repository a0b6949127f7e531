"""Reads of a progression: the source follows the phase, phase and data come from one snapshot (ADR-0117 D4)."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

from sqlalchemy import BigInteger, ColumnElement, Connection, and_, bindparam, exists, not_, select

from lionstate.dialects import Statement, dialect_of
from lionstate.engine import Deferred, Observer
from lionstate.errors import BlockedCode, InvalidInputError, PrefixGapError, ProgressionBlockedError, StaleCursorError
from lionstate.progression import compat, items
from lionstate.progression.collection import parse_readable
from lionstate.progression.control import COMPAT_READ_KEY
from lionstate.progression.phases import Authority, Phase, ReadSource, read_source
from lionstate.progression.storage_state import StorageState, check_id, get_state
from lionstate.progression.stored_json import stored_json
from lionstate.schema.conversation import progressions
from lionstate.schema.own import migration_control, progression_items, progression_storage_state

__all__ = [
    "MAX_LIMIT",
    "PLAIN_ITEMS",
    "PLAIN_PAGE",
    "PLAIN_PAGE_BACK",
    "Order",
    "count_progression_items",
    "get_progression",
    "get_progression_generation",
    "list_progression_items",
    "note_failure",
    "order_of",
    "plainly_in_items",
]

MAX_LIMIT = 1_000

_COLLECTION = Statement(
    select(progressions.c.id, progressions.c.collection).where(progressions.c.id == bindparam("pid"))
)


def _route(conn: Connection, progression_id: str) -> tuple[ReadSource, StorageState | None]:
    """Choose the source of a read; raises when nothing is trustworthy. Cost: at most two seeks."""
    state = get_state(conn, progression_id)
    if state is None:
        if dialect_of(conn).with_items(conn, [progression_id]):
            raise ProgressionBlockedError(reason=BlockedCode.ORPHAN_ITEMS.value)
        return ReadSource.JSON, None
    in_doubt = state.authority is Authority.ITEMS and compat.compat_is_on(conn, state)
    source = read_source(state.phase, state.authority, compat=in_doubt, reason=state.blocked_reason)
    if source is ReadSource.CLOSED:
        raise ProgressionBlockedError(reason=state.blocked_reason)
    if source in (ReadSource.ITEMS, ReadSource.COMPAT):
        dialect_of(conn).prefer_indexes(conn)
    return source, state


def _checked_route(
    conn: Connection, progression_id: str, generation: int | None
) -> tuple[ReadSource, StorageState | None, int | None]:
    """The source of a page and the generation that it has, which must be the one given, if one is."""
    source, state = _route(conn, progression_id)
    current = state.generation if state is not None and source is not ReadSource.MISSING else None
    if generation not in (None, current):
        raise StaleCursorError()
    return source, state, current


# What ``plainly_in_items`` binds. A switch that was turned off leaves this value behind.
PLAIN_ITEMS: Final = {
    "items_twice": Phase.ITEMS.value + Authority.ITEMS.value,
    "compat_no": 0,
    "compat_key": COMPAT_READ_KEY,
    "compat_off": json.dumps({"enabled": False}),
}


def plainly_in_items() -> ColumnElement[bool]:
    """That the item rows of a state row are served, and no compat read may be on, in one query with those rows.

    Where it is false nothing is said: ``list_progression_items`` knows the source then.
    """
    state, control = progression_storage_state.c, migration_control.c
    switched = exists().where(control.key == bindparam("compat_key"), control.value != bindparam("compat_off"))
    return and_(
        # Together, so that no planner takes the index of phases, under which nearly every row may stand.
        state.phase.concat(state.authority) == bindparam("items_twice"),
        state.compat_read == bindparam("compat_no"),
        not_(switched),
    )


_c = progression_items.c
_plain_range = (
    select(_c.ordinal, _c.message_id)
    .where(
        _c.progression_id
        == select(progression_storage_state.c.progression_id)
        .where(progression_storage_state.c.progression_id == bindparam("pid"), plainly_in_items())
        .scalar_subquery()
    )
    .where(_c.ordinal > bindparam("after", type_=BigInteger))
    .where(_c.ordinal < bindparam("before", type_=BigInteger))
    .limit(bindparam("count"))
)
PLAIN_PAGE: Final = Statement(_plain_range.order_by(_c.ordinal))
PLAIN_PAGE_BACK: Final = Statement(_plain_range.order_by(_c.ordinal.desc()))


def _plain_page(
    conn: Connection, progression_id: str, after: int, before: int, limit: int, newest_first: bool
) -> list[items.Item]:
    """A page where the item rows are served; nothing at all elsewhere, and for an empty page. Cost: one statement."""
    check_id(progression_id)
    bound = {"pid": progression_id, "after": after, "before": before, "count": limit, **PLAIN_ITEMS}
    statement = PLAIN_PAGE_BACK if newest_first else PLAIN_PAGE
    return cast(list[items.Item], dialect_of(conn).seek_rows(conn, statement, bound))


def _text(conn: Connection, progression_id: str) -> tuple[object, int]:
    """The JSON value and its size; an empty array for a progression that does not exist."""
    value = stored_json(conn, _COLLECTION, {"pid": progression_id}, [progression_id]).get(progression_id, "[]")
    return value, len(value) if isinstance(value, (str, bytes)) else 0


def _prefix(conn: Connection, state: StorageState) -> compat.Prefix:
    return compat.proved_prefix(conn, state, _text(conn, state.progression_id)[0])


def _note_compat(observer: Observer) -> None:
    observer.compat_read()


def _shown(state: StorageState | None) -> Callable[[Observer, Any], None] | None:
    """What shows an answer to the observer, where rows of the same places may be there to compare."""
    if state is None or state.phase is not Phase.DUAL:
        return None
    return functools.partial(_show, state)


def _show(state: StorageState, observer: Observer, found: Sequence[Any]) -> None:
    observer.dual_read(state.progression_id, state.generation, found)


def note_failure(observer: Observer, name: str, params: Mapping[str, Any], error: Exception) -> None:
    """Tell the observer of a read that failed, and whether what it met contradicts itself (design decision 2)."""
    observer.operation(name, "failed")
    orphaned = isinstance(error, ProgressionBlockedError) and error.reason == BlockedCode.ORPHAN_ITEMS
    if (orphaned or isinstance(error, PrefixGapError)) and "progression_id" in params:
        observer.doubted(params["progression_id"])


def _same(found: Any) -> Any:
    return found


def get_progression(conn: Connection, /, progression_id: str) -> Deferred[list[Any]]:
    """Every message id in order; [] for a missing and for an empty progression.

    A JSON value that no lionstate wrote may hold members that are no strings; they are returned as they are.

    Raises:
        MalformedCollectionError: The JSON value is the authority and no JSON array.
        ProgressionBlockedError: No representation is trustworthy.
        PrefixGapError: Compat read is on and prefix and tail do not meet.

    Cost: the whole history; items in pages of 1,000.
    Contract: ADR-0055 D3, ADR-0117 D1, D4.
    """
    source, state = _route(conn, progression_id)
    if source is ReadSource.MISSING:
        return Deferred([], _same)
    if source is ReadSource.ITEMS:
        return Deferred(_ids(conn, progression_id, after=-1), _same)
    if source is ReadSource.COMPAT and state is not None:
        prefix = _prefix(conn, state)
        tail = _ids(conn, progression_id, after=prefix.count - 1)
        return Deferred((prefix, tail), compat.finish_all, prefix.size, _note_compat)
    text, size = _text(conn, progression_id)
    return Deferred(text, _parse_of(progression_id), size, answered=_shown(state))


def _ids(conn: Connection, progression_id: str, *, after: int) -> list[str]:
    return [message_id for page in items.pages(conn, progression_id, after=after) for _, message_id in page]


def list_progression_items(
    conn: Connection,
    /,
    progression_id: str,
    *,
    after_ordinal: int | None = None,
    before_ordinal: int | None = None,
    limit: int = 500,
    newest_first: bool = False,
    generation: int | None = None,
) -> Deferred[list[tuple[int, Any]]]:
    """One page in ordinal order; the facade's method says all of it.

    Raises:
        InvalidInputError: The limit or a bound is not acceptable.
        StaleCursorError: The progression's generation is not the one given.
        ProgressionBlockedError: No representation is trustworthy.
        PrefixGapError: Compat read is on and prefix and tail do not meet.
        MalformedCollectionError: The JSON value is the authority and no JSON array.

    Cost: in items one statement, a primary-key range scan of ``limit`` rows; in json, dual and compat read the whole
    JSON value.
    Contract: ADR-0117 D1, D4; design decisions 3, 4.
    """
    after, before = _bounds(after_ordinal, before_ordinal, limit)
    if generation is None and (rows := _plain_page(conn, progression_id, after, before, limit, newest_first)):
        return Deferred(rows, _same)
    source, state, _ = _checked_route(conn, progression_id, generation)
    if source is ReadSource.MISSING:
        return Deferred([], _same)
    if source is ReadSource.ITEMS:
        found = items.page(conn, progression_id, after=after, before=before, limit=limit, newest_first=newest_first)
        return Deferred(found, _same)
    if source is ReadSource.COMPAT and state is not None:
        prefix = _prefix(conn, state)
        tail = items.page(
            conn,
            progression_id,
            after=max(after, prefix.count - 1),
            before=before,
            limit=limit,
            newest_first=newest_first,
        )
        page = compat.CompatPage(prefix, tail, after, before, limit, newest_first)
        return Deferred(page, compat.finish_page, prefix.size, _note_compat)
    text, size = _text(conn, progression_id)
    expand = functools.partial(_finish_json_page, parse=_parse_of(progression_id))
    return Deferred((text, after, before, limit, newest_first), expand, size, answered=_shown(state))


def _bounds(after: object, before: object, limit: object) -> tuple[int, int]:
    for name, value in (("limit", limit), ("after_ordinal", after), ("before_ordinal", before)):
        if isinstance(value, bool) or (not isinstance(value, int) and (value is not None or name == "limit")):
            raise InvalidInputError(f"{name} is not an integer")
    assert isinstance(limit, int)
    if not 1 <= limit <= MAX_LIMIT:
        raise InvalidInputError(f"limit is not between 1 and {MAX_LIMIT}")
    lowest = after if isinstance(after, int) else -1
    highest = before if isinstance(before, int) else items.MAX_ORDINAL
    return max(-1, min(lowest, items.MAX_ORDINAL)), max(-1, min(highest, items.MAX_ORDINAL))


def _parse_of(progression_id: str) -> Callable[[object], list[Any]]:
    """Parse the value of this progression; can go to another process."""
    return functools.partial(parse_readable, progression_id=progression_id)


def _finish_json_page(
    raw: tuple[object, int, int, int, bool], *, parse: Callable[[object], list[Any]]
) -> list[items.Item]:
    """Expand the JSON value and cut the page; an index is the ordinal. Cost: linear in the value."""
    text, after, before, limit, newest_first = raw
    elements = parse(text)
    positions = range(max(after + 1, 0), min(before, len(elements)))
    wanted = positions[::-1][:limit] if newest_first else positions[:limit]
    return [(place, elements[place]) for place in wanted]


@dataclass(frozen=True, slots=True)
class Order:
    """Where the positions of a progression stand.

    Attributes:
        generation: Theirs; None without a state row and for a missing progression.
        head: The first ids, each at the ordinal that is its index, still to be expanded; None if there are none.
        items_after: The item rows above this ordinal come behind them; None if no item row is served.
    """

    generation: int | None
    head: Deferred[list[Any]] | None = field(default=None, repr=False)
    items_after: int | None = None


def order_of(conn: Connection, /, progression_id: str, *, generation: int | None = None) -> Order:
    """Where to read a progression from, for those who join its item rows themselves.

    Raises:
        StaleCursorError: The progression's generation is not the one given.
        ProgressionBlockedError: No representation is trustworthy.
        PrefixGapError: Compat read is on and prefix and tail do not meet.

    Cost: some seeks, and the JSON value where it is served.
    Contract: ADR-0117 D1, D4; design decisions 3, 4.
    """
    source, state, current = _checked_route(conn, progression_id, generation)
    if source is ReadSource.MISSING:
        return Order(current)
    if source is ReadSource.ITEMS:
        return Order(current, None, items.MIN_ORDINAL)
    if source is ReadSource.COMPAT and state is not None:
        prefix = _prefix(conn, state)
        head = Deferred(prefix, compat.frozen_ids, prefix.size, _note_compat)
        return Order(current, head, prefix.count - 1)
    text, size = _text(conn, progression_id)
    return Order(current, Deferred(text, _parse_of(progression_id), size))


def count_progression_items(conn: Connection, /, progression_id: str) -> Deferred[int]:
    """Positions of a progression, repeated ids included; 0 when it is missing.

    Cost: in items one primary-key range; in json, dual and compat read the whole JSON value.
    Contract: ADR-0117 D1, D4; design decision 5.
    """
    source, state = _route(conn, progression_id)
    if source is ReadSource.MISSING:
        return Deferred(0, _same)
    if source is ReadSource.ITEMS:
        return Deferred(items.count_items(conn, progression_id), _same)
    if source is ReadSource.COMPAT and state is not None:
        prefix = _prefix(conn, state)
        tail = items.count_items(conn, progression_id, first=prefix.count)
        return Deferred((prefix, tail), compat.finish_count, prefix.size, _note_compat)
    text, size = _text(conn, progression_id)
    return Deferred(text, functools.partial(_finish_json_count, parse=_parse_of(progression_id)), size)


def _finish_json_count(text: object, *, parse: Callable[[object], list[Any]]) -> int:
    return len(parse(text))


def get_progression_generation(conn: Connection, /, progression_id: str) -> int | None:
    """The token that changes whenever positions are replaced; None without a state row or when being deleted.

    Cost: one seek.
    Contract: design decision 4.
    """
    state = get_state(conn, progression_id)
    if state is None or state.is_tombstone:
        return None
    return state.generation
