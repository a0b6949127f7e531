"""Many ids in little memory: one text and where each id ends in it."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import overload

__all__ = ["PackedIds"]


class PackedIds(Sequence[str]):
    """An immutable sequence of ids: 40 bytes for an id of 32 characters, where a list of texts takes 90.

    It also travels to another process as two blocks instead of one object an id. An index or a slice makes the texts
    that it gives.
    """

    __slots__ = ("_ends", "_joined")

    def __init__(self, joined: str, lengths: Sequence[int]) -> None:
        """Take all ids in one text, and their lengths in characters."""
        self._joined = joined
        self._ends = array("Q", accumulate(lengths))

    def __len__(self) -> int:
        """Ids."""
        return len(self._ends)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        """One id, or a list of them. Cost: linear in what is given."""
        if isinstance(index, slice):
            return [self._at(place) for place in range(*index.indices(len(self)))]
        place = range(len(self))[index]
        return self._at(place)

    def _at(self, place: int) -> str:
        return self._joined[self._ends[place - 1] if place else 0 : self._ends[place]]

    def __iter__(self) -> Iterator[str]:
        """In order."""
        start = 0
        for end in self._ends:
            yield self._joined[start:end]
            start = end
