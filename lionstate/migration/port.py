"""What migration needs of an open store; the store itself is a room above."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from sqlalchemy import Connection

from lionstate.dialects import Dialect
from lionstate.engine import StoreURL
from lionstate.engine.load import Load
from lionstate.progression.parsed import ParsedValues

__all__ = ["MigrationStore", "bound"]

P = ParamSpec("P")
R = TypeVar("R")


def bound(
    script: Callable[Concatenate[Connection, P], R], /, *args: P.args, **kwargs: P.kwargs
) -> Callable[[Connection], R]:
    """Give a script its arguments; what is left takes the connection."""

    def call(conn: Connection) -> R:
        return script(conn, *args, **kwargs)

    return call


class MigrationStore(Protocol):
    """Reads in snapshots, writes through the queue as maintenance, and what is known in memory.

    Attributes:
        url: Where the store is.
        dialect: The database's side of the seam.
        parsed: Counts the appends that met a JSON authority.
        load: What the store's writer feels; holds of maintenance among it.
        explicit_transactions: How many transactions that may hold any SQL were begun so far.
    """

    url: StoreURL
    dialect: Dialect
    parsed: ParsedValues
    load: Load

    @property
    def explicit_transactions(self) -> int: ...

    async def read(self, script: Callable[[Connection], Any]) -> Any:
        """Run a read script in one snapshot."""
        ...

    async def maintain(
        self, name: str, script: Callable[[Connection], Any], *, progressions: Sequence[str] = ()
    ) -> Any:
        """Run a write script as a maintenance ticket; without progressions it may run beside any other."""
        ...
