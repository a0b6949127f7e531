"""The forms in which messages are read: whole, or as the columns that a caller asks for."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from lionstate.errors import InvalidInputError
from lionstate.records.messages import LARGE, WHOLE, decoded_rows, size_of, unpacked
from lionstate.records.schemas import choice, described, list_of
from lionstate.schema.types import NOT_PLAIN, decode_json, decode_text

__all__ = ["MessageForm", "form_of", "message_columns"]

_NAME_LIMIT = 64
_PLACE = ("ordinal", "generation")


@described({**list_of(choice(WHOLE)), "minItems": 1, "uniqueItems": True})
def message_columns(name: str, value: Any) -> tuple[str, ...]:
    """Names of columns of a message, at least one, none twice."""
    if isinstance(value, (str, bytes)) or not isinstance(value, Sequence):
        raise _refused(name, f"is {type(value).__name__}")
    for one in value:
        if one not in WHOLE:
            raise _refused(name, f"has {ascii(one[:_NAME_LIMIT]) if isinstance(one, str) else type(one).__name__}")
    if not value:
        raise _refused(name, "is empty")
    if len(set(value)) < len(value):
        raise _refused(name, "has a name twice")
    return tuple(value)


def _refused(name: str, what: str) -> InvalidInputError:
    return InvalidInputError(f"{name} {what}; it takes a sequence of one or more of {', '.join(WHOLE)}, each once")


@dataclass(frozen=True, slots=True)
class MessageForm:
    """How messages are read.

    Attributes:
        read: The columns that are selected, names of ``WHOLE`` in its order, whatever order they were asked in.
        decoded: Makes messages of raw rows; pure, linear.
        large: Of a raw row the values that can be large.
    """

    read: tuple[str, ...]
    decoded: Callable[[Sequence[Any]], list[dict[str, Any]]]
    large: Sequence[Callable[[Sequence[Any]], Any]]

    def size_of(self, rows: Sequence[Sequence[Any]]) -> int:
        """How much decoding raw rows take, to choose where it is done."""
        return size_of(rows, self.large)


_WHOLE: Final = MessageForm(WHOLE, decoded_rows, LARGE)


@functools.lru_cache
def form_of(asked: tuple[str, ...] | None, *, by_id: bool = False) -> MessageForm:
    """The form of the columns asked for, None for all of them.

    Args:
        by_id: Raw rows are to be found by their ids, which come first then, asked for or not.
    """
    if asked is None:
        return _WHOLE
    read = tuple(name for name in WHOLE if name in asked or (by_id and name == "id"))
    large = [operator.itemgetter(place) for place, name in enumerate(read) if name in _DECODERS]
    return MessageForm(read, functools.partial(_decoded_columns, asked, read), large)


def _decoded_columns(asked: Sequence[str], read: Sequence[str], rows: Sequence[Any]) -> list[dict[str, Any]]:
    """Decode raw rows a column at a time, which takes less than a row at a time where the columns are not fixed."""
    if not rows:
        return []
    messages: list[dict[str, Any]] = [{} for _ in rows]
    found = dict(zip((*read, *_PLACE), zip(*rows, strict=True), strict=True))
    for name in asked if rows[0][-len(_PLACE)] is None else (*asked, *_PLACE):
        decode = _DECODERS.get(name)
        values = decode(found[name]) if decode else found[name]
        for message, value in zip(messages, values, strict=True):
            message[name] = value
    return messages


def _decoded_json(stored: Sequence[Any]) -> Sequence[Any]:
    # Loops of Python's own: in one of C the interpreter lock would not change hands until all is decoded.
    decode = decode_text
    try:
        return [decode(value) for value in stored]
    except NOT_PLAIN:
        return [_decoded_value(value) for value in stored]


def _decoded_value(stored: Any) -> Any:
    try:
        return None if stored is None else decode_text(stored)
    except NOT_PLAIN:
        return decode_json(stored)


def _unpacked_all(stored: Sequence[Any]) -> Sequence[Any]:
    return [unpacked(value) for value in stored]


_DECODERS: Final[Mapping[str, Callable[[Sequence[Any]], Sequence[Any]]]] = {
    "node_metadata": _decoded_json,
    "content": _decoded_json,
    "embedding": _unpacked_all,
}
