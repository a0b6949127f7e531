"""Who else seems to write a store: what is seen of other programs before a cutover (design decision 37)."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection

from lionstate.dialects import dialect_of
from lionstate.migration.candidates import foreign_sessions
from lionstate.progression.sightings import sighted_at

__all__ = ["ForeignWriters", "read_foreign"]

_NAMED: Final = 100


@dataclass(frozen=True, slots=True)
class ForeignWriters:
    """What was seen of other programs that write the store; no message ids.

    Attributes:
        sessions: Progressions of sessions that another program seems to write, with the time of their last message,
            epoch seconds; at most 100.
        progressions: Dual progressions that another program has written since lionstate last did, at most 100;
            always () where rows carry no versions (SQLite).
        sighted_at: When such a write was last found, epoch seconds; None if not in the last 24 hours.
    """

    sessions: tuple[tuple[str, float], ...] = ()
    progressions: tuple[str, ...] = ()
    sighted_at: float | None = None


def read_foreign(conn: Connection, /, *, seen: Container[str], now: float) -> ForeignWriters:
    """Look for other programs that write the store.

    Args:
        seen: Progressions that this process has appended to and not yet noted.

    Cost: one pass over the sessions, one over the dual progressions.
    Contract: design decision 37.
    """
    written = tuple(dialect_of(conn).written_by_others(conn, _NAMED))
    return ForeignWriters(
        sessions=tuple(found for found in foreign_sessions(conn, limit=_NAMED) if found[0] not in seen),
        progressions=written,
        sighted_at=now if written else sighted_at(conn, now),
    )
