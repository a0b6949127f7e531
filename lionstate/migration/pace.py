"""How large the next chunk is, and how long to rest after it. Pure."""

from __future__ import annotations

from lionstate.migration.knobs import Knobs

__all__ = ["CheckpointDues", "ChunkSize", "rest_seconds"]

_SHRINK = 0.5
_GROW = 1.25
# A quarter of the way up, in logarithms: holds scatter, and the target is what most of them should keep.
_GENTLY = 0.25
_TARGETS_OF_ONE = 50.0
_MOST_REST_SECONDS = 1.0
# What maintenance takes where nobody is seen to write; a process that begins to finds the lock free as often as not.
_SHARE_ALONE = 0.5
# Of the time, for the checkpoints that copied pages ask for: they keep every writer out, each for longer than a chunk.
_CHECKPOINT_SHARE = 0.003
_MOST_DUES = 2.0


class ChunkSize:
    """Fits the elements of a chunk to a lock hold: down by half at most, up by a quarter at most.

    Begins at the configured size and never at the least: a first guess that is small stays small for as long as
    nobody looks. Contract: design decision 36; ADR-0117 D3.
    """

    def __init__(self, *, concurrent_writers: bool = False) -> None:
        """Nothing is measured yet.

        Args:
            concurrent_writers: A hold keeps out the writers of one progression and nobody else. It may last 50 times
                as long, as an append to its JSON does too: round trips alone take the hold target.
        """
        self._items: float | None = None
        self._targets = _TARGETS_OF_ONE if concurrent_writers else 1.0

    @staticmethod
    def bounds(knobs: Knobs) -> tuple[int, int]:
        """The fewest and the most elements of a chunk that nothing else cuts short."""
        return min(knobs.min_items, knobs.max_items), knobs.max_items

    def items(self, knobs: Knobs) -> int:
        """Elements of the next chunk, between ``min_items`` and ``max_items``."""
        if self._items is None:
            return knobs.max_items
        least, most = self.bounds(knobs)
        return int(min(most, max(self._items, least)))

    def learn(self, taken: int, hold_seconds: float, knobs: Knobs) -> None:
        """Take note of a chunk of ``taken`` elements that held the lock for so long.

        A chunk that was cut short by something else says nothing about what a longer one may take.
        """
        wanted = knobs.hold_target_seconds * self._targets / max(hold_seconds, 1e-9)
        size = self.items(knobs)
        if wanted < 1 or taken >= size:
            fitted = size * (max(_SHRINK, wanted) if wanted < 1 else min(_GROW, wanted**_GENTLY))
            # What the bounds hide must not be unlearned first when they move.
            least, most = self.bounds(knobs)
            self._items = min(float(most), max(fitted, float(least)))


def rest_seconds(hold_seconds: float, knobs: Knobs, *, is_alone: bool) -> float:
    """How long to leave the lock alone after a hold, so that the holds take their share of the time.

    Args:
        is_alone: Nobody else writes: half of the time, or ``nice_ratio`` if that is more.
    """
    share = max(_SHARE_ALONE, knobs.nice_ratio) if is_alone else knobs.nice_ratio
    return min(_MOST_REST_SECONDS, hold_seconds * (1 / share - 1))


class CheckpointDues:
    """Spreads the rest that a checkpoint asks for over the chunks after it, as long as others write.

    A chunk of new ids changes a page of the log for each, so every few seconds a checkpoint of 10 ms and more follows.
    One in a hundred appends would meet one if chunks came as fast as their own holds allow.
    """

    def __init__(self) -> None:
        """Nothing is due."""
        self._seconds = 0.0

    def note(self, checkpoint_seconds: float) -> None:
        """A checkpoint has ended; what was left of an earlier one is forgotten."""
        self._seconds = checkpoint_seconds / _CHECKPOINT_SHARE

    def pay(self, rest: float) -> float:
        """What is added to a rest: at most twice as much again, and no more than what is due."""
        paid = min(self._seconds, _MOST_DUES * rest, _MOST_REST_SECONDS - rest)
        self._seconds -= paid
        return paid
