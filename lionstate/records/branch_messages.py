"""The messages of a branch in the order of its progression: all of them, or a page."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Final, NamedTuple

from sqlalchemy import BigInteger, ColumnElement, Connection, Text, bindparam, select

from lionstate.dialects import dialect_named, dialect_of
from lionstate.dialects.statement import Statement, compiled_once
from lionstate.engine import Continued, Deferred
from lionstate.errors import InvalidInputError, StaleCursorError
from lionstate.progression.items import MAX_ORDINAL, MIN_ORDINAL
from lionstate.progression.reads import PLAIN_ITEMS, Order, get_progression, order_of, plainly_in_items
from lionstate.records.arguments import optional, page_limit, takes, whole
from lionstate.records.message_forms import MessageForm, form_of, message_columns
from lionstate.records.messages import WHOLE, message_pages, present_ids, raw_columns, usable_ids, with_classes
from lionstate.records.values import check_text
from lionstate.schema.conversation import branches, messages
from lionstate.schema.own import progression_items, progression_storage_state

__all__ = ["get_branch_messages", "page_query"]


class _Page(NamedTuple):
    """What is wanted: ``limit`` messages between two exclusive ordinals, from the lower up or from the upper down.

    Of each its ``columns``; None is all of them.
    """

    after: int
    before: int
    limit: int
    forward: bool
    columns: tuple[str, ...] | None


# Ids whose rows are looked for at once behind a page's first ones.
_STEP: Final = 500


def page_query(conn: Connection, /, *, forward: bool, plain: bool, read: tuple[str, ...] = WHOLE) -> Statement:
    """A page of the messages of item rows, which passes over those without a message.

    Args:
        plain: Of a branch (bind ``branch``) whose progression is in ``items``, no row at all for any other, with its
            generation. Otherwise of a progression (bind ``pid``), whatever its phase, with the generation that is
            given (bind ``generation``).
        read: The columns of a message, see ``raw_columns``.

    Binds: ``after``, ``before`` and ``count`` as well, and when plain those of ``plainly_in_items``.

    Cost: a primary-key range of items and a seek for each one's message.
    """
    return _page_query(dialect_of(conn).capabilities.name, forward, plain, read)


# Kept for the choices of columns that were made last.
@functools.lru_cache
def _page_query(database: str, forward: bool, plain: bool, read: tuple[str, ...]) -> Statement:
    dialect = dialect_named(database)
    item, state = progression_items.c, progression_storage_state.c
    progression: ColumnElement[str] = bindparam("pid", type_=Text)
    generation: ColumnElement[Any] = bindparam("generation", type_=BigInteger)
    if plain:
        of_branch = (
            select()
            .join_from(branches, progression_storage_state, state.progression_id == branches.c.progression_id)
            .where(branches.c.id == bindparam("branch"))
        )
        progression = of_branch.add_columns(state.progression_id).where(plainly_in_items()).scalar_subquery()
        generation = of_branch.add_columns(state.generation).scalar_subquery()
    joined = progression_items.join(messages, messages.c.id == item.message_id)
    return Statement(
        select(*raw_columns(dialect, item.ordinal, generation, read))
        .select_from(with_classes(joined, read))
        .where(item.progression_id == progression)
        .where(item.ordinal > bindparam("after", type_=BigInteger))
        .where(item.ordinal < bindparam("before", type_=BigInteger))
        .order_by(item.ordinal if forward else item.ordinal.desc())
        .limit(bindparam("count"))
    )


_ordinal = optional(whole(MIN_ORDINAL, MAX_ORDINAL))


def _bounds_need_a_limit(params: dict[str, Any]) -> dict[str, Any]:
    given = (params.get("after_ordinal"), params.get("before_ordinal"), params.get("generation"))
    if params.get("limit") is None and given != (None, None, None):
        raise InvalidInputError("after_ordinal, before_ordinal and generation need a limit")
    return params


@takes(
    _bounds_need_a_limit,
    branch_id=check_text,
    limit=optional(page_limit),
    after_ordinal=_ordinal,
    before_ordinal=_ordinal,
    generation=_ordinal,
    columns=optional(message_columns),
)
def get_branch_messages(
    conn: Connection,
    /,
    branch_id: str,
    *,
    limit: int | None = None,
    after_ordinal: int | None = None,
    before_ordinal: int | None = None,
    generation: int | None = None,
    columns: Sequence[str] | None = None,
) -> Deferred[list[dict[str, Any]]]:
    """The messages of a branch in the order of its progression, or a page; ids without a row are left out.

    Of each all columns, or those that are asked for, in that order; others are not read.
    Outside of ``items`` the order comes from one snapshot, the rows from a later one: a message is missing only if it
    was deleted.

    Raises:
        StaleCursorError: The generation of the branch's progression is not the one given.
        MalformedCollectionError: The JSON value is the authority and no JSON array.
        ProgressionBlockedError: No representation is trustworthy.
        PrefixGapError: Compat read is on and prefix and tail do not meet.

    Cost: without a limit the whole history, 500 messages per query; with one a single query in ``items``, elsewhere
    the JSON value, once, and one more query. Where messages are gone: a seek for each place passed over in ``items``,
    elsewhere one query of keys per 500 of them and one more.
    Contract: ADR-0055 D3; ADR-0117 D4; design decision 4; reference §2.1, §4 row 18.
    """
    asked = None if columns is None else tuple(columns)
    if limit is not None:
        after = MIN_ORDINAL if after_ordinal is None else after_ordinal
        before = MAX_ORDINAL if before_ordinal is None else before_ordinal
        return _page(conn, branch_id, _Page(after, before, limit, after_ordinal is not None, asked), generation)
    progression_id = _progression_of(conn, branch_id)
    if progression_id is None:
        return Deferred([], _nothing)
    order: Deferred[Any] = get_progression(conn, progression_id)
    return dataclasses.replace(order, finish=functools.partial(_then_messages, order.finish, asked))


_PROGRESSION: Final = select(branches.c.progression_id).where(branches.c.id == bindparam("branch"))


def _progression_of(conn: Connection, branch_id: str) -> str | None:
    rows = compiled_once(_PROGRESSION).rows(conn, {"branch": branch_id})
    return rows[0][0] if rows else None


def _nothing(_raw: Any) -> list[dict[str, Any]]:
    return []


def _then_messages(
    finish: Callable[[Any], Any], asked: tuple[str, ...] | None, raw: Any
) -> Continued[list[dict[str, Any]]]:
    return Continued(functools.partial(_read_messages, ids=finish(raw), form=form_of(asked, by_id=True)))


def _read_messages(conn: Connection, *, ids: Sequence[str], form: MessageForm) -> Deferred[list[dict[str, Any]]]:
    usable = usable_ids(ids)
    rows = _rows_of(conn, usable, form)
    return Deferred(rows, functools.partial(_in_order, usable, form), form.size_of(rows))


def _in_order(ids: Sequence[str], form: MessageForm, rows: Sequence[Any]) -> list[dict[str, Any]]:
    found = _by_id(form, rows)
    return [found[one] for one in ids if one in found]


def _by_id(form: MessageForm, rows: Sequence[Any]) -> dict[str, dict[str, Any]]:
    return {row[0]: found for row, found in zip(rows, form.decoded(rows), strict=True)}


def _page(conn: Connection, branch_id: str, page: _Page, generation: int | None) -> Deferred[list[dict[str, Any]]]:
    form = form_of(page.columns)
    rows = _item_rows(conn, page, {"branch": branch_id, **PLAIN_ITEMS}, plain=True)
    if rows:
        if generation not in (None, rows[0][-1]):
            raise StaleCursorError()
        return Deferred(rows, form.decoded, form.size_of(rows))
    progression_id = _progression_of(conn, branch_id)
    if progression_id is not None:
        return _in_general(conn, page, progression_id, order_of(conn, progression_id, generation=generation))
    if generation is not None:
        raise StaleCursorError()
    return Deferred([], _nothing)


def _item_rows(conn: Connection, page: _Page, named: dict[str, Any], *, plain: bool) -> list[Any]:
    """Raw rows of a page in the order of their places."""
    statement = page_query(conn, forward=page.forward, plain=plain, read=form_of(page.columns).read)
    bound = {"after": page.after, "before": page.before, "count": page.limit, **named}
    if plain:
        rows = dialect_of(conn).seek_rows(conn, statement, bound)
    else:
        dialect_of(conn).prefer_indexes(conn)
        rows = statement.rows(conn, bound)
    return rows if page.forward else rows[::-1]


def _in_general(conn: Connection, page: _Page, progression_id: str, order: Order) -> Deferred[list[dict[str, Any]]]:
    """A page in every phase: messages of item rows, and before them those of ids that stand in a JSON value."""
    tail: list[Any] = []
    if order.items_after is not None:
        behind = page._replace(after=max(page.after, order.items_after))
        tail = _item_rows(conn, behind, {"pid": progression_id, "generation": order.generation}, plain=False)
    if order.head is None:
        form = form_of(page.columns)
        return Deferred(tail, form.decoded, form.size_of(tail))
    after_head = functools.partial(_then_head, order.head.finish, page, order.generation, tail)
    return dataclasses.replace(order.head, finish=after_head)


def _then_head(
    finish: Callable[[Any], Any], page: _Page, generation: int | None, tail: list[Any], raw: Any
) -> Continued[list[dict[str, Any]]] | list[dict[str, Any]]:
    """The value is expanded once; what may be on the page is looked up in one later snapshot."""
    ids: list[Any] = finish(raw)
    first, wanted = max(page.after + 1, 0), page.limit if page.forward else page.limit - len(tail)
    ids = ids[first : max(page.before, 0)]
    if not ids or not wanted:
        return form_of(page.columns).decoded(tail)
    return Continued(
        functools.partial(_read_head, ids=ids, first=first, wanted=wanted, page=page, generation=generation, tail=tail)
    )


def _read_head(
    conn: Connection,
    *,
    ids: list[Any],
    first: int,
    wanted: int,
    page: _Page,
    generation: int | None,
    tail: list[Any],
) -> Deferred[list[dict[str, Any]]]:
    form = form_of(page.columns, by_id=True)
    places = range(len(ids)) if page.forward else range(len(ids))[::-1]
    rows = _rows_of(conn, (ids[place] for place in places[:wanted]), form)
    there = {row[0] for row in rows}
    found = _having_rows(ids, places[:wanted], there)
    if len(found) < wanted and len(places) > wanted:
        further = _next_places(conn, ids, places[wanted:], wanted - len(found))
        rows += _rows_of(conn, (ids[place] for place in further if ids[place] not in there), form)
        found += further
    placed = [(first + place, ids[place]) for place in sorted(found)]
    finish = functools.partial(_finish_head, placed, page, generation, tail)
    return Deferred(rows, finish, form.size_of(rows) + form_of(page.columns).size_of(tail))


def _rows_of(conn: Connection, ids: Iterable[Any], form: MessageForm) -> list[Any]:
    unique = list(dict.fromkeys(usable_ids(ids)))
    return [row for rows in message_pages(conn, unique, form.read) for row in rows]


def _having_rows(ids: list[Any], places: Iterable[int], there: Collection[str]) -> list[int]:
    # What stands in a legacy value beside ids may have no hash.
    return [place for place in places if isinstance(ids[place], str) and ids[place] in there]


def _next_places(conn: Connection, ids: list[Any], places: Sequence[int], count: int) -> list[int]:
    """The first ``count`` places whose messages exist. Cost: one query of keys per 500 places passed over."""
    dialect_of(conn).prefer_indexes(conn)
    found: list[int] = []
    for start in range(0, len(places), _STEP):
        some = places[start : start + _STEP]
        found += _having_rows(ids, some, present_ids(conn, usable_ids(ids[place] for place in some)))
        if len(found) >= count:
            break
    return found[:count]


def _finish_head(
    placed: list[tuple[int, str]], page: _Page, generation: int | None, tail: list[Any], rows: Sequence[Any]
) -> list[dict[str, Any]]:
    found = _by_id(form_of(page.columns, by_id=True), rows)
    head = [{**found[one], "ordinal": place, "generation": generation} for place, one in placed]
    return [*head, *form_of(page.columns).decoded(tail[: page.limit - len(head)])]
