"""Shadow reads: what a read got from the JSON of a ``dual`` progression, compared with its rows after the answer."""

from __future__ import annotations

import random
import time
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from sqlalchemy import Connection

from lionstate.migration.memory import Memory
from lionstate.migration.port import MigrationStore, bound
from lionstate.progression.items import Item, page
from lionstate.progression.phases import Phase
from lionstate.progression.storage_state import StorageState, get_state

__all__ = ["ShadowReads"]

_WAITING: Final = 8
_HELD_IDS: Final = 200_000
_ROWS: Final = 1_000


@dataclass(frozen=True, slots=True)
class _Read:
    """One answer that is to be compared: ids from the first position on, or (ordinal, id) pairs."""

    progression_id: str
    generation: int
    found: Sequence[Any] = field(repr=False)

    def expected(self) -> dict[int, Any]:
        """Ids by place."""
        if isinstance(self.found[0], (tuple, list)):
            return dict(self.found)
        return dict(enumerate(self.found))


def _read_rows(
    conn: Connection, /, progression_id: str, after: int, before: int
) -> tuple[StorageState | None, list[Item]]:
    rows = page(conn, progression_id, after=after, before=before, limit=_ROWS)
    return get_state(conn, progression_id), rows


class ShadowReads:
    """Takes answers as they go out, and compares a sampled share of them later; the oldest first.

    At most eight answers and 200,000 ids wait; what comes beyond that, and what a turn has no time for, is dropped. A
    mismatch asks for a scrub and blocks nothing.

    Attributes:
        ratio: Share of the reads in ``dual`` that are compared, 0 to 1.
    """

    def __init__(self, store: MigrationStore, memory: Memory, *, sample: Callable[[], float] = random.random) -> None:
        """Prepare; ``sample`` gives numbers from 0 to 1."""
        self.ratio = 0.0
        self._store = store
        self._memory = memory
        self._sample = sample
        self._waiting: deque[_Read] = deque()
        self._held = 0

    def offer(self, progression_id: str, generation: int, found: Sequence[Any]) -> None:
        """Take note of an answer; called on the event loop, costs a random number."""
        if not found or self._sample() >= self.ratio:
            return
        if len(self._waiting) >= _WAITING or self._held + len(found) > _HELD_IDS:
            self._memory.shadow_reads["dropped"] += 1
            return
        self._waiting.append(_Read(progression_id, generation, found))
        self._held += len(found)

    async def compare(self, *, max_seconds: float) -> Counter[str]:
        """Compare what waits, in short snapshots; what is left after that time is dropped.

        Returns:
            Reads by outcome: ``match``, ``mismatch``, ``dropped``, and ``moved`` where the rows are others now.
        """
        before = Counter(self._memory.shadow_reads)
        give_up = time.monotonic() + max_seconds
        while self._waiting:
            read = self._waiting.popleft()
            self._held -= len(read.found)
            outcome = "dropped" if time.monotonic() >= give_up else await self._compare(read)
            self._memory.shadow_reads[outcome] += 1
            if outcome == "mismatch":
                self._memory.ask(read.progression_id)
        return self._memory.shadow_reads - before

    async def _compare(self, read: _Read) -> str:
        expected = read.expected()
        after, last = min(expected) - 1, max(expected)
        while after < last:
            until = min(after + _ROWS, last)
            state, rows = await self._store.read(bound(_read_rows, read.progression_id, after, until + 1))
            if state is None or state.generation != read.generation or state.phase is not Phase.DUAL:
                return "moved"
            there = dict(rows)
            for place in range(after + 1, until + 1):
                is_copied = place < state.backfill_next or place >= (state.source_count or 0)
                # A page may have places that the answer does not have: nothing is known of them.
                if is_copied and place in expected and there.get(place) != expected[place]:
                    return "mismatch"
            after = until
        return "match"
