"""Parses of JSON collections kept between appends, tied to the text they came from."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from lionstate.engine import Observer, SilentObserver
from lionstate.errors import MalformedCollectionError
from lionstate.progression.collection import ParsedCollection, parse_for_append

__all__ = ["INLINE_BYTES", "Later", "NeedsParse", "ParsedValues", "Unreadable"]

INLINE_BYTES = 64 * 1024
_CACHE_CHARACTERS = 48 * 1024 * 1024
# What one call appends to is kept whatever its size: it would be parsed again and again otherwise.
_CACHE_LEAST = 8
_COUNTED_PROGRESSIONS = 10_000


@dataclass(frozen=True, slots=True)
class NeedsParse:
    """A call cannot be decided before this text is parsed outside the transaction; nothing was written for it."""

    progression_id: str
    text: str


@dataclass(frozen=True, slots=True)
class Later:
    """A call stands behind one that needs a parse on the same progression; nothing was written for it."""


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A text that is no JSON array: appends to it are refused until it changes."""

    text: str
    reason: str | None


class _RunPure(Protocol):
    def __call__(
        self, work: Callable[[str], ParsedCollection | Unreadable], argument: str, size_bytes: int, /
    ) -> Awaitable[ParsedCollection | Unreadable]: ...


def parse(text: object) -> ParsedCollection | Unreadable:
    """Parse one value; an unreadable one is a result, not an error. Cost: linear."""
    try:
        return parse_for_append(text)
    except MalformedCollectionError as error:
        return Unreadable(text if isinstance(text, str) else "", error.reason)


class ParsedValues:
    """The cache of one store's queue: changed on the loop's thread after COMMIT, read by the running batch.

    Bounded by characters of text, least recently used first; also counts appends that met a JSON authority
    (design decision 20).
    """

    def __init__(self, *, inline_bytes: int | None = INLINE_BYTES, observer: Observer | None = None) -> None:
        """Make an empty cache; ``inline_bytes`` None parses inside the script whatever the size."""
        self._inline_bytes = inline_bytes
        self._found: OrderedDict[str, ParsedCollection | Unreadable] = OrderedDict()
        self._characters = 0
        self._insisted: set[str] = set()
        self.observer: Observer = observer or SilentObserver()
        self.append_counts: Counter[str] = Counter()
        # Ids of message classes that a committed transaction saw; the records' own, kept here because it has the
        # same life: one for each store's queue, changed after COMMIT.
        self.class_ids: dict[str, int] = {}

    def get(self, progression_id: str, text: object) -> ParsedCollection | Unreadable | None:
        """The parse of exactly this text: cached, made here when small, None when it must be made outside."""
        found = self._found.get(progression_id)
        if found is not None and found.text == text:
            return found
        if not isinstance(text, str):
            return parse(text)
        if self._inline_bytes is None or len(text) <= self._inline_bytes or progression_id in self._insisted:
            return parse(text)
        return None

    def insist(self, progression_id: str) -> None:
        """Parse this value under its lock, until it is kept again: others changed it faster than it was parsed."""
        self._insisted.add(progression_id)

    async def learn(self, need: NeedsParse, run_pure: _RunPure) -> None:
        """Parse a text outside every transaction and keep it."""
        self.keep(need.progression_id, await run_pure(parse, need.text, len(need.text)))

    def keep(self, progression_id: str, parsed: ParsedCollection | Unreadable) -> None:
        """Keep a parse, evicting others when the bound is passed."""
        self.forget(progression_id)
        self._insisted.discard(progression_id)
        self._found[progression_id] = parsed
        self._characters += len(parsed.text)
        while self._characters > _CACHE_CHARACTERS and len(self._found) > _CACHE_LEAST:
            _, evicted = self._found.popitem(last=False)
            self._characters -= len(evicted.text)

    def forget(self, progression_id: str) -> None:
        """Drop what is kept of one progression."""
        found = self._found.pop(progression_id, None)
        if found is not None:
            self._characters -= len(found.text)

    def extend(self, progression_id: str, parsed: ParsedCollection, text: str, ids: Sequence[str]) -> None:
        """After COMMIT: the text is now ``text``, with these ids at its end; ``parsed`` is spent."""
        if parsed.is_spent:
            # One batch appended, put the same text back, and appended again.
            self.forget(progression_id)
            return
        self.keep(progression_id, parsed.extended(text, ids))

    def count_append(self, progression_id: str, appended: int) -> None:
        """Count appends seen on a progression whose authority is JSON."""
        if progression_id in self.append_counts or len(self.append_counts) < _COUNTED_PROGRESSIONS:
            self.append_counts[progression_id] += appended
