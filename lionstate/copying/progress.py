"""How far a copy is: one row of the target, moved on by every page in the page's own transaction."""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from sqlalchemy import Connection, bindparam, insert, select, update

from lionstate.copying.tables import PROGRESS_KEY, Key
from lionstate.dialects import Statement
from lionstate.errors import ConflictError
from lionstate.schema.own import migration_control as control

__all__ = ["Progress", "StepProgress", "advance", "load", "start"]

_ACTOR: Final = "lionstate copy"

_LOAD = Statement(select(control.c.value).where(control.c.key == PROGRESS_KEY))
# The old value is part of the question: of two copies at once, one finds that the other was there.
_ADVANCE = Statement(
    update(control)
    .where(control.c.key == bindparam("progress"))
    .where(control.c.value == bindparam("before"))
    .values(value=bindparam("after"), updated_at=bindparam("now"))
)


@dataclass(frozen=True, slots=True)
class StepProgress:
    """One table, or the references of a table to itself.

    Attributes:
        after: Primary key of the last row done; None before the first.
        rows: Rows done.
        size_bytes: Their size, without keys.
        digest: Sum of the digests of the rows as they were read, as in ``values.digest_rows``.
        is_done: Nothing is left.
    """

    after: Key | None = None
    rows: int = 0
    size_bytes: int = 0
    digest: int = 0
    is_done: bool = False


@dataclass(frozen=True, slots=True)
class Progress:
    """A copy that was begun.

    Attributes:
        source: Fingerprint of the source.
        steps: By name; one that was not begun is missing.
        finished_at: Epoch seconds when all was verified; None before.
    """

    source: str
    steps: dict[str, StepProgress] = field(default_factory=dict)
    finished_at: float | None = None

    def step(self, name: str) -> StepProgress:
        """How far a step is."""
        return self.steps.get(name, StepProgress())

    def with_step(self, name: str, step: StepProgress) -> Progress:
        """The same with one step further on."""
        return Progress(self.source, {**self.steps, name: step}, self.finished_at)

    def finished(self, now: float) -> Progress:
        """The same, finished."""
        return Progress(self.source, self.steps, now)

    def encode(self) -> str:
        """The text that is stored."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def decode(cls, text: str) -> Progress:
        """Read what ``encode`` wrote."""
        stored: dict[str, Any] = json.loads(text)
        steps = {name: StepProgress(**{**step, "after": _key(step["after"])}) for name, step in stored["steps"].items()}
        return cls(stored["source"], steps, stored["finished_at"])


def _key(stored: list[Any] | None) -> Key | None:
    return None if stored is None else tuple(stored)


def load(conn: Connection, /) -> Progress | None:
    """The copy that was begun or finished in this store; None if it was not made by one. Cost: one seek."""
    rows = _LOAD.rows(conn)
    return Progress.decode(rows[0][0]) if rows else None


def start(conn: Connection, /, progress: Progress) -> None:
    """Note the beginning of a copy."""
    row = {"key": PROGRESS_KEY, "value": progress.encode(), "actor": _ACTOR, "updated_at": time.time()}
    conn.execute(insert(control).values(row))


def advance(conn: Connection, /, before: Progress, after: Progress) -> None:
    """Move on; first of all in a transaction, so that of two copies at once only one writes.

    Raises:
        ConflictError: The copy is not where this process left it.
    """
    values = {"before": before.encode(), "after": after.encode(), "now": time.time(), "progress": PROGRESS_KEY}
    if _ADVANCE.run(conn, values) != 1:
        raise ConflictError("another process copies into the same target")
