"""What a database may do at once for a single append."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

from sqlalchemy import Connection, bindparam, exists, select

from lionstate.dialects.statement import Row, Statement
from lionstate.schema.conversation import progressions
from lionstate.schema.own import progression_items, progression_storage_state

__all__ = ["LOOK", "AppendIntents", "ParentRow", "TriedAppend", "look_at"]


@dataclass(frozen=True, slots=True)
class ParentRow:
    """A locked ``progressions`` row: its id and the version token of its text (None where there is none)."""

    progression_id: str
    version: int | None


_state = progression_storage_state.c
LOOK: Final = Statement(
    select(
        exists(
            select(progression_items.c.ordinal)
            .where(progression_items.c.progression_id == bindparam("pid"))
            .where(progression_items.c.message_id == bindparam("mid"))
        ),
        # Not the id, which is known: to read it took 2 of the 46 us of an append's statements.
        _state.phase,
        _state.authority,
        _state.generation,
        _state.next_ordinal,
        _state.frozen_count,
        _state.blocked_reason,
        _state.compat_read,
        _state.last_xact,
    )
    .select_from(progressions.outerjoin(progression_storage_state, _state.progression_id == progressions.c.id))
    .where(progressions.c.id == bindparam("pid"))
)
"""What one append has to know, in one row: membership, then of the state row what an append needs, all None without
one; no row without the progression. For where the transaction is the lock."""


def look_at(conn: Connection, pairs: Sequence[tuple[str, str]]) -> list[Row | None]:
    """What ``LOOK`` finds of each append; None without the progression. Cost: one statement each."""
    driver, sql = LOOK.on_driver(conn)
    execute = driver.execute
    return [execute(sql, (progression, message, progression)).fetchone() for progression, message in pairs]


class TriedAppend(NamedTuple):
    """Whether an append is done, because it was written or its id was there; if not, nothing was written.

    Attributes:
        is_settled: Whether it is done.
        parents: The parent row by its id, which is locked then, or nothing for a progression that is missing; None
            where that was not looked at.
        looked: Where the transaction is the lock, what ``LOOK`` found, if it is not done.
        generation: Of the progression, where its rows tell whether the append was committed.
    """

    is_settled: bool
    parents: dict[str, ParentRow] | None = None
    looked: tuple[Row | None] | None = None
    generation: int | None = None


class AppendIntents(Protocol):
    """The part of the seam for a single append."""

    def try_append(self, conn: Connection, progression_id: str, message_id: str) -> TriedAppend:
        """Append an acceptable id to a progression in ``items`` about which there is nothing else to know.

        Cost: on PostgreSQL one statement, which locks the parent row, then the state row; on SQLite one that looks,
            one insert, one UPDATE.
        """
        ...
