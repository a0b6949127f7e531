"""What every writer offers, whatever its database."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol, TypeAlias

from sqlalchemy import Connection

from lionstate.dialects import Dialect
from lionstate.engine.connections import Connections
from lionstate.engine.script import Batch, Look, Outcome

__all__ = ["BatchLog", "Ended", "Writer"]

# What a writer calls on the loop when a batch has ended: one outcome per call of ``batch.take()``, or the error that
# ended the writer without any.
Ended: TypeAlias = Callable[[Sequence[Outcome] | None, BaseException | None], None]


class BatchLog(Protocol):
    """Numbers batches in a row of the store, so that a COMMIT that raised can be looked up afterwards."""

    def record(self, conn: Connection) -> Look:
        """Write the number of the running batch; what is returned tells whether it is the last one in the store."""
        ...

    def settle(self, conn: Connection) -> None:
        """Write a row, under a number that no batch has, so that a commit follows whatever is in the log."""
        ...

    def forget(self, conn: Connection) -> None:
        """Remove what was recorded; the writer's last act."""
        ...


class Writer(Protocol):
    """Runs batches in transactions; ``lanes`` of them may run at once."""

    dialect: Dialect
    lanes: int

    def start(self, batch: Batch, ended: Ended) -> None:
        """Begin to run a batch; ``ended`` is called from the loop, never before this returns."""
        ...

    async def run(self, batch: Batch) -> list[Outcome]:
        """Run a batch; a cancelled caller does not stop it."""
        ...

    def transaction(self) -> AbstractAsyncContextManager[Any]:
        """Hold one explicit write transaction."""
        ...

    async def tick(self) -> None:
        """Called every second."""
        ...

    def connections(self) -> Connections:
        """Its connections now, from memory."""
        ...

    def seconds_since_sign_of_life(self) -> float:
        """Age of the last sign of life of running work; 0 while idle."""
        ...

    async def close(self) -> None:
        """Stop after the running work."""
        ...
