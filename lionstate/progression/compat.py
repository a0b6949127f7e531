"""Compat read: the frozen JSON prefix joined with the relational tail, or nothing (ADR-0117 D4, decision 3).

The allocator and the ends of the tail are checked inside the snapshot; the prefix is parsed and its digest compared
outside, by the ``finish_`` functions, which are pure.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Final

from sqlalchemy import Connection, bindparam, select

from lionstate.dialects import Statement
from lionstate.errors import InvalidInputError, MalformedCollectionError, PrefixGapError
from lionstate.progression import items
from lionstate.progression.collection import parse_readable
from lionstate.progression.control import COMPAT_READ_KEY, switch_is_on
from lionstate.progression.digest import digest_of
from lionstate.progression.phases import Phase
from lionstate.progression.storage_state import StorageState
from lionstate.schema.own import progression_orders

__all__ = [
    "CompatPage",
    "Prefix",
    "compat_is_on",
    "finish_all",
    "finish_count",
    "finish_page",
    "frozen_ids",
    "proved_prefix",
]


_NO_COMPAT: Final = (
    "It is read because compat read is on: switch that off (lionstate progression-migrate compat-read --disable), or"
    " where it is blocked see blocked show"
)


@dataclass(frozen=True, slots=True)
class Prefix:
    """The JSON text with what the state row says of its frozen part; ``text_size`` chooses where it is parsed."""

    progression_id: str
    text: object = field(repr=False)
    count: int
    digest: str

    @property
    def size(self) -> int:
        """Characters of the text, the cost of proving it."""
        return len(self.text) if isinstance(self.text, (str, bytes)) else 0


@dataclass(frozen=True, slots=True)
class CompatPage:
    """A page over prefix and tail: exclusive bounds, and the tail's own rows between them."""

    prefix: Prefix
    tail: list[items.Item] = field(repr=False)
    after: int
    before: int
    limit: int
    newest_first: bool


_END = Statement(
    select(progression_orders.c.expires_at).where(
        progression_orders.c.progression_id == bindparam("pid"), progression_orders.c.kind == "compat_read"
    )
)


def _is_over(conn: Connection, progression_id: str) -> bool:
    """Whether the switch of one progression had an end, and that is past. Cost: one seek."""
    return any(end is not None and end <= time.time() for (end,) in _END.rows(conn, {"pid": progression_id}))


def compat_is_on(conn: Connection, /, state: StorageState) -> bool:
    """Whether reads of a row whose authority is the items go through the frozen prefix.

    While blocked only the row's own switch counts: the block set it, by which of the two representations it trusts.
    """
    if state.compat_read and (state.phase is not Phase.ITEMS or not _is_over(conn, state.progression_id)):
        return True
    return state.phase is Phase.ITEMS and switch_is_on(conn, COMPAT_READ_KEY)


def proved_prefix(conn: Connection, /, state: StorageState, text: object) -> Prefix:
    """Check the tail against the allocator and hand out the prefix to be proved.

    Raises:
        PrefixGapError: No frozen prefix is recorded, or the tail does not reach from it to the allocator.

    Cost: two seeks.
    Contract: ADR-0117 D4; design decision 3.
    """
    frozen, digest = state.frozen_count, state.source_digest
    if frozen is None or digest is None:
        raise PrefixGapError("no frozen prefix is recorded")
    found = items.ends(conn, state.progression_id, first=frozen)
    expected = (frozen, state.next_ordinal - 1) if state.next_ordinal > frozen else None
    if state.next_ordinal < frozen or found != expected:
        raise PrefixGapError(
            f"the tail does not reach from the frozen prefix ({frozen}) to the allocator ({state.next_ordinal})"
        )
    return Prefix(state.progression_id, text, frozen, digest)


def frozen_ids(prefix: Prefix) -> list[str]:
    """The frozen ids, proved; what a foreign writer put behind them is not served. Cost: linear."""
    try:
        frozen = parse_readable(prefix.text)[: prefix.count]
    except MalformedCollectionError as error:
        raise MalformedCollectionError.of(prefix.progression_id, error.reason, _NO_COMPAT) from None
    try:
        is_same = len(frozen) == prefix.count and digest_of(frozen) == prefix.digest
    except InvalidInputError:
        is_same = False
    if not is_same:
        raise PrefixGapError(f"the JSON value does not begin with the {prefix.count} ids that were frozen")
    return frozen


def finish_all(raw: tuple[Prefix, list[str]]) -> list[str]:
    """Every id: the proved prefix, then the tail. Cost: linear."""
    prefix, tail = raw
    return frozen_ids(prefix) + tail


def finish_count(raw: tuple[Prefix, int]) -> int:
    """Positions: the proved prefix and the rows of the tail. Cost: linear in the prefix."""
    prefix, tail = raw
    return len(frozen_ids(prefix)) + tail


def finish_page(raw: CompatPage) -> list[items.Item]:
    """One page over both parts. Cost: linear in the prefix, which is proved whole."""
    frozen = frozen_ids(raw.prefix)
    positions = range(max(raw.after + 1, 0), min(raw.before, len(frozen)))
    if raw.newest_first:
        wanted = list(reversed(positions))[: max(0, raw.limit - len(raw.tail))]
        return [*raw.tail, *((place, frozen[place]) for place in wanted)]
    head = [(place, frozen[place]) for place in positions[: raw.limit]]
    return [*head, *raw.tail[: raw.limit - len(head)]]
