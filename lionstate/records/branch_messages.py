"""The messages of a branch in the order of its progression: all of them, or a page."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from sqlalchemy import BigInteger, Connection, Select, bindparam, select

from lionstate.dialects import dialect_of
from lionstate.dialects.statement import compiled_once
from lionstate.engine import Continued, Deferred
from lionstate.errors import InvalidInputError
from lionstate.progression.items import MAX_ORDINAL, MIN_ORDINAL, Item
from lionstate.progression.reads import PLAIN_ITEMS, get_progression, list_progression_items, plainly_in_items
from lionstate.records.arguments import optional, page_limit, takes, whole
from lionstate.records.messages import (
    decoded_by_id,
    decoded_rows,
    message_pages,
    raw_columns,
    size_of,
    usable_ids,
    with_classes,
)
from lionstate.records.values import check_text
from lionstate.schema.conversation import branches, messages
from lionstate.schema.own import progression_items, progression_storage_state

__all__ = ["get_branch_messages", "page_query"]


class _Page(NamedTuple):
    """What is wanted: ``limit`` messages between two exclusive ordinals, from the lower up or from the upper down."""

    after: int
    before: int
    limit: int
    forward: bool


_PAGES_FOR: dict[tuple[str, bool], Select[Any]] = {}


def page_query(conn: Connection, /, *, forward: bool) -> Select[Any]:
    """A page of a branch whose progression is in ``items``, no row at all for any other.

    Binds: ``branch``, ``after``, ``before``, ``count`` and those of ``plainly_in_items``.

    Cost: a primary-key range of items and a seek for each one's message.
    """
    dialect = dialect_of(conn)
    key = (dialect.capabilities.name, forward)
    if key not in _PAGES_FOR:
        item, state = progression_items.c, progression_storage_state.c
        progression = (
            select(state.progression_id)
            .join_from(branches, progression_storage_state, state.progression_id == branches.c.progression_id)
            .where(branches.c.id == bindparam("branch"), plainly_in_items())
            .scalar_subquery()
        )
        joined = progression_items.join(messages, messages.c.id == item.message_id)
        _PAGES_FOR[key] = (
            select(*raw_columns(dialect, item.ordinal))
            .select_from(with_classes(joined))
            .where(item.progression_id == progression)
            .where(item.ordinal > bindparam("after", type_=BigInteger))
            .where(item.ordinal < bindparam("before", type_=BigInteger))
            .order_by(item.ordinal if forward else item.ordinal.desc())
            .limit(bindparam("count"))
        )
    return _PAGES_FOR[key]


_ordinal = optional(whole(MIN_ORDINAL, MAX_ORDINAL))


def _bounds_need_a_limit(params: dict[str, Any]) -> dict[str, Any]:
    if params.get("limit") is None and (params.get("after_ordinal"), params.get("before_ordinal")) != (None, None):
        raise InvalidInputError("after_ordinal and before_ordinal need a limit")
    return params


@takes(
    _bounds_need_a_limit,
    branch_id=check_text,
    limit=optional(page_limit),
    after_ordinal=_ordinal,
    before_ordinal=_ordinal,
)
def get_branch_messages(
    conn: Connection,
    /,
    branch_id: str,
    *,
    limit: int | None = None,
    after_ordinal: int | None = None,
    before_ordinal: int | None = None,
) -> Deferred[list[dict[str, Any]]]:
    """The messages of a branch in the order of its progression, or a page; ids without a row are left out.

    Outside of ``items`` the order comes from one snapshot, the rows from a later one: a message is missing only if it
    was deleted.

    Raises:
        MalformedCollectionError: The JSON value is the authority and no JSON array.
        ProgressionBlockedError: No representation is trustworthy.
        PrefixGapError: Compat read is on and prefix and tail do not meet.

    Cost: without a limit the whole history, 500 messages per query; with one a single query in ``items``, elsewhere
    the JSON value and one more query.
    Contract: ADR-0055 D3; ADR-0117 D4; reference §2.1, §4 row 18.
    """
    if limit is not None:
        after = MIN_ORDINAL if after_ordinal is None else after_ordinal
        before = MAX_ORDINAL if before_ordinal is None else before_ordinal
        return _page(conn, branch_id, _Page(after, before, limit, after_ordinal is not None))
    progression_id = _progression_of(conn, branch_id)
    if progression_id is None:
        return Deferred([], _nothing)
    order: Deferred[Any] = get_progression(conn, progression_id)
    return dataclasses.replace(order, finish=functools.partial(_then_messages, order.finish))


_PROGRESSION: Final = select(branches.c.progression_id).where(branches.c.id == bindparam("branch"))


def _progression_of(conn: Connection, branch_id: str) -> str | None:
    rows = compiled_once(_PROGRESSION).rows(conn, {"branch": branch_id})
    return rows[0][0] if rows else None


def _nothing(_raw: Any) -> list[dict[str, Any]]:
    return []


def _then_messages(finish: Callable[[Any], Any], raw: Any) -> Continued[list[dict[str, Any]]]:
    return Continued(functools.partial(_read_messages, ids=finish(raw)))


def _read_messages(conn: Connection, ids: Sequence[str]) -> Deferred[list[dict[str, Any]]]:
    usable = usable_ids(ids)
    return _messages(conn, usable, functools.partial(_in_order, usable))


def _messages(conn: Connection, usable: Sequence[str], finish: Callable[[Any], Any]) -> Deferred[list[dict[str, Any]]]:
    rows = [row for page in message_pages(conn, list(dict.fromkeys(usable))) for row in page]
    return Deferred(rows, finish, size_of(rows))


def _in_order(ids: Sequence[str], rows: Sequence[Any]) -> list[dict[str, Any]]:
    found = decoded_by_id(rows)
    return [found[one] for one in ids if one in found]


def _page(conn: Connection, branch_id: str, page: _Page) -> Deferred[list[dict[str, Any]]]:
    bound = {"branch": branch_id, "after": page.after, "before": page.before, "count": page.limit, **PLAIN_ITEMS}
    rows = dialect_of(conn).seek_rows(conn, compiled_once(page_query(conn, forward=page.forward)), bound)
    if rows:
        if not page.forward:
            rows.reverse()
        return Deferred(rows, decoded_rows, size_of(rows))
    progression_id = _progression_of(conn, branch_id)
    return Deferred([], _nothing) if progression_id is None else _places(conn, progression_id, page, [])


def _places(
    conn: Connection, progression_id: str, page: _Page, held: list[dict[str, Any]]
) -> Deferred[list[dict[str, Any]]]:
    """The general way, in every phase: a page of places, then their messages, and again while ids have no row."""
    order: Deferred[Any] = list_progression_items(
        conn,
        progression_id,
        after_ordinal=page.after,
        before_ordinal=page.before,
        limit=page.limit,
        newest_first=not page.forward,
    )
    return dataclasses.replace(order, finish=functools.partial(_then_page, order.finish, progression_id, page, held))


def _then_page(
    finish: Callable[[Any], Any], progression_id: str, page: _Page, held: list[dict[str, Any]], raw: Any
) -> Continued[list[dict[str, Any]]] | list[dict[str, Any]]:
    places: list[Item] = finish(raw)
    if not places:
        return held
    return Continued(functools.partial(_read_page, progression_id=progression_id, page=page, held=held, places=places))


def _read_page(
    conn: Connection, progression_id: str, page: _Page, held: list[dict[str, Any]], places: list[Item]
) -> Deferred[list[dict[str, Any]]]:
    usable = usable_ids(one for _, one in places)
    return _messages(conn, usable, functools.partial(_placed, progression_id, page, held, places))


def _placed(
    progression_id: str, page: _Page, held: list[dict[str, Any]], places: list[Item], rows: Sequence[Any]
) -> Continued[list[dict[str, Any]]] | list[dict[str, Any]]:
    found = decoded_by_id(rows)
    # What stands in a legacy value beside ids may have no hash.
    there = [(place, found[one]) for place, one in places if isinstance(one, str) and one in found]
    new = [{**message, "ordinal": place} for place, message in there]
    held = [*held, *new] if page.forward else [*reversed(new), *held]
    if len(held) >= page.limit or len(places) < page.limit:
        return held[: page.limit] if page.forward else held[-page.limit :]
    last = places[-1][0]
    rest = page._replace(after=last) if page.forward else page._replace(before=last)
    return Continued(functools.partial(_places, progression_id=progression_id, page=rest, held=held))
