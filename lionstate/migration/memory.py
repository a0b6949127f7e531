"""What a migration service remembers between steps; all of it can be lost without harm."""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from lionstate.migration.cutover import Mark
from lionstate.migration.lane import Lane
from lionstate.migration.port import MigrationStore
from lionstate.migration.speed import SpeedKeeper
from lionstate.migration.verification import Prover

__all__ = ["Memory", "Sources"]

_SOURCE_IDS: Final = 2_000_000
_MARKS: Final = 1_000
_ASKED: Final = 1_000


class Sources:
    """Admission prefixes by generation, so that a value is parsed once per migration and not once per chunk.

    An append only adds at the end of a value and everything else draws a new generation, so the prefix of a
    generation does not change. Bounded by ids, least recently used first.
    """

    def __init__(self) -> None:
        """Start empty."""
        self._kept: OrderedDict[str, tuple[int, Sequence[str]]] = OrderedDict()

    def get(self, progression_id: str, generation: int) -> Sequence[str] | None:
        """The ids of this generation; None when they must be parsed."""
        found = self._kept.get(progression_id)
        if found is None or found[0] != generation:
            return None
        self._kept.move_to_end(progression_id)
        return found[1]

    def keep(self, progression_id: str, generation: int, ids: Sequence[str]) -> None:
        """Keep the ids of one generation."""
        self._kept[progression_id] = (generation, ids)
        self._kept.move_to_end(progression_id)
        while len(self._kept) > 1 and sum(len(found) for _, found in self._kept.values()) > _SOURCE_IDS:
            self._kept.popitem(last=False)

    def forget(self, progression_id: str) -> None:
        """Drop one progression."""
        self._kept.pop(progression_id, None)


@dataclass(slots=True)
class Memory:
    """Parses, proofs under way and marks of one service.

    Attributes:
        stepping: Held by the running step. Two at once would read on in the same walk over the rows, and each would
            take the rows that the other has read for a gap.
        marks: The store's token at the last chunk of a progression.
        speed: What the last steps measured.
        parses: Values parsed for chunks so far.
        scrubbing: Held by the running slice of the scrubber.
        asked: Progressions that a scrub was asked for, oldest first; see `ask`.
        lengths_checked_at: When all recorded lengths had been compared last, epoch seconds.
        shadow_reads: Shadow reads so far, by outcome.
        lane: Attempts that failed, and what others were told.
    """

    prover: Prover
    stepping: asyncio.Lock = field(default_factory=asyncio.Lock)
    sources: Sources = field(default_factory=Sources)
    marks: OrderedDict[str, Mark] = field(default_factory=OrderedDict)
    speed: SpeedKeeper = field(default_factory=SpeedKeeper)
    parses: int = 0
    scrubbing: asyncio.Lock = field(default_factory=asyncio.Lock)
    asked: OrderedDict[str, None] = field(default_factory=OrderedDict)
    lengths_checked_at: float | None = None
    shadow_reads: Counter[str] = field(default_factory=Counter)
    lane: Lane = field(default_factory=Lane)

    @classmethod
    def of(cls, store: MigrationStore) -> Memory:
        """An empty memory."""
        return cls(Prover(store))

    def note_mark(self, progression_id: str, mark: Mark) -> None:
        """Keep the newest mark of a progression."""
        self.marks[progression_id] = mark
        self.marks.move_to_end(progression_id)
        while len(self.marks) > _MARKS:
            self.marks.popitem(last=False)

    def ask(self, progression_id: str) -> None:
        """Ask for a scrub of one progression; at most 1,000 wait, the others are met by the pass."""
        if len(self.asked) < _ASKED:
            self.asked[progression_id] = None

    def forget(self, progression_id: str) -> None:
        """Drop everything about one progression."""
        self.sources.forget(progression_id)
        self.prover.forget(progression_id)
        self.marks.pop(progression_id, None)
