"""What a database may do at once for a single append."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

from sqlalchemy import Connection

__all__ = ["AppendIntents", "NoTries", "ParentRow", "TriedAppend"]


@dataclass(frozen=True, slots=True)
class ParentRow:
    """A locked ``progressions`` row: its id and the version token of its text (None where there is none)."""

    progression_id: str
    version: int | None


class TriedAppend(NamedTuple):
    """Whether an append is done, because it was written or its id was there; if not, nothing was written.

    ``parents`` is the parent row by its id, which is locked then, or nothing for a progression that is missing; None
    where that was not looked at.
    """

    is_settled: bool
    parents: dict[str, ParentRow] | None


class AppendIntents(Protocol):
    """The part of the seam for a single append.

    Attributes:
        tries_appends: Whether trying one is cheaper than looking first.
    """

    tries_appends: bool

    def try_append(self, conn: Connection, progression_id: str, message_id: str) -> TriedAppend:
        """Append an acceptable id to a progression in ``items`` about which there is nothing else to know.

        Cost: at most one statement, which locks the parent row, then the state row.
        """
        ...


class NoTries:
    """Where a statement costs so little that looking first is as good."""

    tries_appends = False

    def try_append(self, conn: Connection, progression_id: str, message_id: str) -> TriedAppend:
        return TriedAppend(False, None)
