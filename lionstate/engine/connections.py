"""How many connections to the database a store holds, counted in memory."""

from __future__ import annotations

from typing import NamedTuple

from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.pool import QueuePool

__all__ = ["Connections", "of_pool"]


class Connections(NamedTuple):
    """Connections that are open: those that wait for work, and those that have some (or are being made for it)."""

    idle: int = 0
    in_use: int = 0

    def and_(self, other: Connections) -> Connections:
        """Both together."""
        return Connections(self.idle + other.idle, self.in_use + other.in_use)


def of_pool(engine: AsyncEngine) -> Connections:
    """The connections of an engine's pool, without a look at the database."""
    pool = engine.pool
    assert isinstance(pool, QueuePool)
    return Connections(pool.checkedin(), pool.checkedout())
