"""The JSON value of ``progressions.collection``, pure half: read it, write it, append to its end.

Everything here whose cost grows with history may run in a worker thread; the costs are documented. The strict
verdict that decides admission is in `strict`; statements are not here.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from lionstate.errors import InvalidInputError, MalformedCollectionError
from lionstate.progression.digest import digest_of
from lionstate.progression.strict import strict_verdict

__all__ = [
    "MAX_ELEMENT_CHARS",
    "MAX_NEW_ID_BYTES",
    "SEPARATOR",
    "ParsedCollection",
    "PreparedCollection",
    "append_text",
    "check_new_id",
    "closing_bracket",
    "element",
    "encode",
    "is_valid_new_id",
    "parse_for_append",
    "parse_readable",
    "prepare",
    "text_fault",
]

MAX_NEW_ID_BYTES = 1_024

_WHITESPACE = " \t\n\r"
SEPARATOR = ", "
# An id of the greatest length, every byte of it escaped as \uXXXX, its quotes and its separator.
MAX_ELEMENT_CHARS = 6 * MAX_NEW_ID_BYTES + 2 + len(SEPARATOR)


def _unreadable(value: object, progression_id: str | None = None) -> MalformedCollectionError:
    code = strict_verdict(value).code
    return MalformedCollectionError.of(progression_id, None if code is None else code.value)


def parse_readable(value: object, progression_id: str | None = None) -> list[Any]:
    """Read a value leniently: whatever the standard parser turns into a list, non-strings and NaN included.

    Args:
        value: What the column holds. Only text is read; a BLOB, a number or NULL is refused as ``not_text``.
        progression_id: Whose value it is, for the error.
    Raises:
        MalformedCollectionError: Not text, not JSON, not an array, or nested or with a number beyond what the
            parser can hold; ``reason`` is the code of `strict_verdict`.

    Cost: linear, about 10 ms for 100,000 ids of 32 characters; holds the GIL.
    Contract: ADR-0117 "Consequences" (existing malformed JSON remains readable); decision 15.
    """
    if not isinstance(value, str):
        raise _unreadable(value, progression_id)
    try:
        decoded: object = json.loads(value)
    except (ValueError, RecursionError):
        # `from None`: the parser's exception carries the whole text.
        raise _unreadable(value, progression_id) from None
    if not isinstance(decoded, list):
        raise _unreadable(value, progression_id)
    return decoded


def encode(ids: Sequence[str]) -> str:
    """Write a whole collection as LionAGI 0.36.0 does: ASCII, ``", "`` between elements.

    Cost: linear, about 10 ms for 100,000 ids of 32 characters.
    """
    return json.dumps(list(ids))


def element(message_id: str) -> str:
    """Write one id as it stands inside a collection."""
    return json.dumps(message_id)


def closing_bracket(text: str) -> tuple[int, bool]:
    """Find where the array ends: the index of its closing bracket (-1 if none), and whether it is empty."""
    last = len(text.rstrip(_WHITESPACE)) - 1
    if last < 1 or text[last] != "]":
        return -1, False
    before = last - 1
    while before > 0 and text[before] in _WHITESPACE:
        before -= 1
    # No array element can end in a bracket that opens, so this one opens the array.
    return last, text[before] == "["


def append_text(text: str, message_id: str) -> str:
    """Add one element at the end of a readable collection by inserting it before the closing bracket.

    Nothing that stands in the text is changed or removed: what precedes the bracket is not re-encoded, and
    whitespace after it stays. So an append never makes a value valid or invalid (fault 53).

    Args:
        text: A text that `parse_readable` accepts; this is not checked again.
    Raises:
        MalformedCollectionError: The text does not even end in a closing bracket.
        InvalidInputError: The id may not be written (`check_new_id`).

    Cost: two copies of the text, under 2 ms for 4 MB.
    Contract: ADR-0117 D2; decisions 7 and 15.
    """
    check_new_id(message_id)
    end, is_empty = closing_bracket(text)
    if end < 0:
        raise _unreadable(text)
    return f"{text[:end]}{'' if is_empty else SEPARATOR}{element(message_id)}{text[end:]}"


def text_fault(value: object) -> str | None:
    """Why a value cannot be a text on both databases; None if it can."""
    if not isinstance(value, str):
        return "not text"
    if "\0" in value:
        return "holds NUL"
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            return "holds a lone surrogate"
    return None


def _fault_of(message_id: object) -> str | None:
    if isinstance(message_id, str) and message_id.isascii() and 0 < len(message_id) <= MAX_NEW_ID_BYTES:
        return "holds NUL" if "\0" in message_id else None
    if (fault := text_fault(message_id)) is not None or not isinstance(message_id, str):
        return fault
    if not message_id:
        return "empty"
    length = len(message_id) if message_id.isascii() else len(message_id.encode())
    return f"longer than {MAX_NEW_ID_BYTES} bytes" if length > MAX_NEW_ID_BYTES else None


def is_valid_new_id(message_id: object) -> bool:
    """Say whether an id may be written newly: 1 to 1,024 bytes of UTF-8, no NUL, no lone surrogate."""
    return _fault_of(message_id) is None


def check_new_id(message_id: object) -> None:
    """Refuse an id that may not be written newly.

    To be called after the membership test, so that the retry of a stored id is a no-op whatever its shape.

    Raises:
        InvalidInputError: See `is_valid_new_id`; the message never holds the id.

    Contract: decision 9.
    """
    if (fault := _fault_of(message_id)) is not None:
        raise InvalidInputError(f"the message id is not acceptable: {fault}")


@dataclass(frozen=True, slots=True)
class PreparedCollection:
    """A whole collection, checked and encoded before the transaction that writes it.

    Attributes:
        ids: In order; duplicates are kept.
        text: The JSON value.
        digest: Ordered digest of the ids (`digest_of`).
        text_bytes: UTF-8 length of the text.
        text_sha256: Hash of the text, 64 hex digits.
    """

    ids: tuple[str, ...] = field(repr=False)
    text: str = field(repr=False)
    digest: str
    text_bytes: int
    text_sha256: str

    @property
    def count(self) -> int:
        """Ids in the collection."""
        return len(self.ids)


def _check_new_ids(ids: Sequence[object]) -> None:
    for position, message_id in enumerate(ids):
        if (fault := _fault_of(message_id)) is not None:
            raise InvalidInputError(f"the message id at position {position} is not acceptable: {fault}")


def prepare(collection: Iterable[str] | None) -> PreparedCollection:
    """Check and encode the collection of a create or a replace; None is the empty one.

    Raises:
        InvalidInputError: Not an iterable of ids (a single text is not), or an id may not be written
            (`is_valid_new_id`); names its position, never the id.

    Cost: linear, about 50 ms for 100,000 ids of 32 characters.
    Contract: ADR-0117 D2 (create, wholesale set); decisions 8 and 9.
    """
    if isinstance(collection, (str, bytes)):
        raise InvalidInputError("a collection is a sequence of message ids, not one text")
    try:
        given = iter(() if collection is None else collection)
    except TypeError:
        raise InvalidInputError("a collection is a sequence of message ids") from None
    ids = tuple(given)
    _check_new_ids(ids)
    text = encode(ids)
    encoded = text.encode()
    return PreparedCollection(ids, text, digest_of(ids), len(encoded), hashlib.sha256(encoded).hexdigest())


class ParsedCollection:
    """A parsed collection kept between appends: the text, its elements, and their set for membership.

    It has one owner, the cache, and is valid for exactly the text it came from. `extended` hands its
    contents over to the successor and leaves it spent, so that an append does not copy what grows with
    history.
    """

    __slots__ = ("_elements", "_members", "text")

    def __init__(self, text: str, elements: list[Any], members: set[str]) -> None:
        """Take over the list and the set; the caller keeps no reference to them."""
        self.text = text
        self._elements: list[Any] | None = elements
        self._members: set[str] | None = members

    @property
    def elements(self) -> list[Any]:
        """Every element in order, non-strings included; not to be changed."""
        if self._elements is None:
            raise RuntimeError("this parse has been handed over to its successor")
        return self._elements

    @property
    def is_spent(self) -> bool:
        """Whether the contents went to a successor."""
        return self._elements is None

    @property
    def count(self) -> int:
        """Elements in the array."""
        return len(self.elements)

    def contains(self, message_id: str) -> bool:
        """Say whether an element equals this id; elements that are not strings never do. Cost: constant."""
        if self._members is None:
            raise RuntimeError("this parse has been handed over to its successor")
        return message_id in self._members

    def contains_within(self, message_id: str, count: int) -> bool:
        """Say whether one of the first ``count`` elements equals this id. Cost: constant, linear if there are more."""
        return self.contains(message_id) and (self.count <= count or message_id in self.elements[:count])

    def extended(self, new_text: str, ids: Sequence[str]) -> ParsedCollection:
        """Give the parse of the text with these ids appended; this object is spent afterwards.

        To be called once the append is committed, by the owner only: a script may run twice.

        Args:
            new_text: What `append_text` made of the text; not parsed again.
            ids: The ids appended, in order.

        Cost: linear in ``ids``, constant in the history.
        """
        elements, members = self.elements, self._members
        assert members is not None
        elements.extend(ids)
        members.update(ids)
        self._elements = self._members = None
        return ParsedCollection(new_text, elements, members)


def parse_for_append(text: object) -> ParsedCollection:
    """Parse a value for membership tests; readable, errors and GIL as `parse_readable`.

    Cost: linear, about 20 ms for 100,000 ids of 32 characters.
    """
    elements = parse_readable(text)
    assert isinstance(text, str)
    return ParsedCollection(text, elements, {found for found in elements if isinstance(found, str)})
