"""A collection's text known from a snapshot, so that it can be told again, own appends at its end included. Pure."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any, Final

from lionstate.progression.collection import (
    MAX_ELEMENT_CHARS,
    SEPARATOR,
    closing_bracket,
    encode,
    is_valid_new_id,
)
from lionstate.progression.strict import strict_verdict

__all__ = ["MAX_TAIL_IDS", "KnownText", "hash_text"]

MAX_TAIL_IDS: Final = 1_000
# One piece holds the interpreter lock for less than a millisecond; a whole text of 36 MB did for 40.
_PIECE_CHARS: Final = 1024 * 1024


def hash_text(text: str, end: int, *, errors: str = "strict") -> tuple[int, Any]:
    """UTF-8 length and SHA-256 of a text up to a place, taken in pieces.

    Args:
        errors: What becomes of a lone surrogate, as for ``str.encode``.
    Raises:
        UnicodeEncodeError: There is one, and ``errors`` is strict.

    Cost: linear, without a copy of the text.
    """
    size, found = 0, hashlib.sha256()
    for start in range(0, end, _PIECE_CHARS):
        piece = text[start : min(start + _PIECE_CHARS, end)].encode(errors=errors)
        size += len(piece)
        found.update(piece)
    return size, found


@dataclass(frozen=True, slots=True)
class KnownText:
    """A text up to its closing bracket, which own appends leave alone, and what stands there and after.

    Attributes:
        text: The whole text, not a copy of it.
        closing: Where its closing bracket stands.
        prefix_bytes: UTF-8 length of what stands before that.
        rest: The closing bracket and the whitespace behind it.
        is_empty: Whether the bracket closes an empty array.
    """

    text: str = field(repr=False)
    closing: int
    prefix_bytes: int
    rest: str
    is_empty: bool
    _hash: Any = field(repr=False)

    @classmethod
    def of(cls, text: str) -> KnownText | None:
        """Take note of a text; None when no array can end at its end, or it cannot be written as UTF-8.

        Cost: linear, about 5 ms for 4 MB, most of it a hash.
        """
        closing, is_empty = closing_bracket(text)
        if closing < 0:
            return None
        try:
            size, found = hash_text(text, closing)
        except UnicodeEncodeError:
            return None
        return cls(text, closing, size, text[closing:], is_empty, found)

    @property
    def prefix(self) -> str:
        """The text before its closing bracket. Cost: a copy."""
        return self.text[: self.closing]

    @property
    def most_rest_bytes(self) -> int:
        """More than this never follows the prefix when only own appends were made."""
        return len(self.rest) + MAX_TAIL_IDS * MAX_ELEMENT_CHARS

    def tail(self, rest: str) -> list[str] | None:
        """Tell which ids own appends have put between the prefix and the known rest; None if anything else happened.

        Args:
            rest: What follows the prefix now.
        Returns:
            [] when nothing was appended; the ids, at most 1,000, when it is exactly what `append_text` writes; else
            None, which says nothing about the values: the texts may still mean the same.

        Cost: the parse of the tail.
        Contract: decision 7 ("or that text with own appends at its end, at most 1,000").
        """
        if rest == self.rest:
            return []
        grown = len(rest) - len(self.rest)
        if not 0 < grown <= MAX_TAIL_IDS * MAX_ELEMENT_CHARS or not rest.endswith(self.rest):
            return None
        tail = rest[:grown]
        if not self.is_empty:
            if not tail.startswith(SEPARATOR):
                return None
            tail = tail[len(SEPARATOR) :]
        ids = list(strict_verdict(f"[{tail}]").ids)
        # Only the spelling of `append_text` is an own append.
        is_own = 0 < len(ids) <= MAX_TAIL_IDS and all(map(is_valid_new_id, ids)) and encode(ids) == f"[{tail}]"
        return ids if is_own else None

    def record(self, rest: str) -> tuple[int, str]:
        """Bytes and SHA-256 (64 hex digits) of the text that is the prefix and this rest. Cost: linear in the rest."""
        encoded = rest.encode()
        whole = self._hash.copy()
        whole.update(encoded)
        return self.prefix_bytes + len(encoded), whole.hexdigest()
