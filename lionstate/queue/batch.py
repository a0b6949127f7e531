"""What the queue hands to a writer: the tickets of one transaction, and the probe for locked rows."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from sqlalchemy import Connection

from lionstate.dialects import Dialect
from lionstate.engine import Unit
from lionstate.queue.plan import arranged
from lionstate.queue.ticket import Ticket

__all__ = ["Probe", "QueuedBatch"]


class QueuedBatch:
    """The tickets of one lane's next transaction; what is still alive is decided under the writer's lock."""

    def __init__(
        self, dialect: Dialect, claim: Callable[[Sequence[Ticket], float], list[Ticket]], tickets: Sequence[Ticket]
    ) -> None:
        """Keep the tickets; ``claim`` picks the living ones, once."""
        self._dialect = dialect
        self._claim = claim
        self._units: Sequence[Unit] | None = None
        self.tickets = tickets
        self.lane = tickets[0].kind.value
        self.taken: Sequence[Ticket] = ()
        self.began_at = 0.0
        self.beside = 1

    def wanted(self) -> bool:
        """Whether any caller still waits; asked on the writer's thread."""
        now = time.monotonic()
        return any(not ticket.is_late(now) and not ticket.future.done() for ticket in self.tickets)

    def take(self) -> Sequence[Unit]:
        """Claim what is alive and plan it; a second call returns the same."""
        if self._units is None:
            self.began_at = time.monotonic()
            self.taken, self._units = arranged(self._claim(self.tickets, self.began_at))
        return self._units

    def lock(self, conn: Connection) -> None:
        """Lock every progression of the batch in id order."""
        ids = {progression for ticket in self.taken for progression in ticket.progressions}
        if ids:
            self._dialect.lock_progressions(conn, sorted(ids))


class Probe:
    """A batch of one script that tells which progressions are locked by others right now."""

    lane = "request"

    def __init__(self, dialect: Dialect, ids: Sequence[str]) -> None:
        """Ask about ``ids``."""
        self._dialect = dialect
        self._ids = ids
        self.locked: set[str] = set()

    def wanted(self) -> bool:
        """The probe waits for nothing."""
        return True

    def take(self) -> Sequence[Unit]:
        """The one script."""
        return [Unit([self._look])]

    def lock(self, conn: Connection) -> None:
        """The probe waits for nothing."""

    def _look(self, conn: Connection) -> None:
        # Absence is never concluded from SKIP LOCKED: a plain read says which exist.
        existing = self._dialect.existing_progressions(conn, self._ids)
        self.locked = existing - self._dialect.free_progressions(conn, self._ids)
