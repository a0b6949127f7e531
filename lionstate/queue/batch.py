"""The batches that the queue hands to its writer."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from sqlalchemy import Connection

from lionstate.dialects import Dialect
from lionstate.engine import Unit, Writer
from lionstate.queue.plan import plan, units_of
from lionstate.queue.ticket import Ticket

__all__ = ["Probe", "QueuedBatch"]


class QueuedBatch:
    """The tickets of one lane's next transaction; what is still alive is decided under the writer's lock."""

    def __init__(
        self, dialect: Dialect, claim: Callable[[Sequence[Ticket], float], list[Ticket]], tickets: Sequence[Ticket]
    ) -> None:
        """Keep the tickets; ``claim`` says which of them are still wanted."""
        self._dialect = dialect
        self._claim = claim
        self.tickets = tickets
        self.taken: list[Ticket] = []
        self.began_at = 0.0

    def take(self) -> Sequence[Unit]:
        """Claim, plan and fold."""
        self.began_at = time.monotonic()
        runs = plan(self._claim(self.tickets, self.began_at))
        self.taken = [ticket for run in runs for ticket in run.tickets]
        return units_of(runs)

    def lock(self, conn: Connection) -> None:
        """Lock all progressions of the batch in id order."""
        ids = {progression for ticket in self.taken for progression in ticket.progressions}
        if ids:
            self._dialect.lock_progressions(conn, sorted(ids))


class Probe:
    """A batch of one script that tells which progressions are locked by others right now."""

    def __init__(self, writer: Writer, ids: Sequence[str]) -> None:
        """Look at these progressions."""
        self._writer = writer
        self._ids = ids
        self.locked: set[str] = set()

    def take(self) -> Sequence[Unit]:
        """The one script."""
        return [Unit([self._look])]

    def lock(self, conn: Connection) -> None:
        """The probe waits for nothing."""

    def _look(self, conn: Connection) -> None:
        dialect = self._writer.dialect
        self.locked = dialect.existing_progressions(conn, self._ids) - dialect.free_progressions(conn, self._ids)
