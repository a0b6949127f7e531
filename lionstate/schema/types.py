"""Column types that differ between the databases: JSON values and seconds."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, Final, NoReturn
from uuid import UUID

import msgspec
from sqlalchemy import JSON, REAL, Dialect, Double
from sqlalchemy.types import TypeDecorator, TypeEngine

__all__ = [
    "NOT_PLAIN",
    "Json",
    "RawJson",
    "Seconds",
    "bare_number",
    "decode_json",
    "decode_text",
    "encode_json",
    "numeric_form",
]


class RawJson:
    """A JSON value in its encoded form, which is stored as it is.

    No dataclass: an encoder that knows those would write an object with a text in it.
    """

    __slots__ = ("text",)

    def __init__(self, text: str) -> None:
        """Take the text over; it is proved to be JSON when it is stored."""
        self.text = text

    @property
    def __json_text__(self) -> str:
        """The text, for encoders that do not know this class."""
        return self.text


def _encode_special(value: object) -> str:
    if isinstance(value, UUID):
        return str(value)
    raise TypeError(f"a value of type {type(value).__name__} cannot be stored as JSON")


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


# Escaping to ASCII is what LionAGI does, and keeps a lone surrogate storable in UTF-8.
_encoder: Final = json.JSONEncoder(allow_nan=False, default=_encode_special)
_decoder: Final = json.JSONDecoder(parse_constant=_refuse_constant)
# In a fifth of the time, and what it takes it decodes to the same. What it does not take (a lone surrogate, a number
# beyond a double, what is no text) raises one of ``NOT_PLAIN``: `decode_json` knows what it is.
decode_text: Final[Callable[[str], Any]] = msgspec.json.Decoder().decode
NOT_PLAIN: Final = (msgspec.MsgspecError, ValueError, TypeError, RecursionError)


def encode_json(value: object) -> str:
    """Encode a value for a JSON column; None becomes the text `null`, a UUID its text, a `RawJson` is done.

    Raises:
        ValueError: The value holds inf or nan, or refers to itself.
        TypeError: The value holds something that JSON has no form for.
    """
    return value.text if isinstance(value, RawJson) else _encoder.encode(value)


def _encode_numeric(value: object) -> Any:
    return numeric_form(encode_json(value))


def decode_json(stored: Any) -> Any:
    """Decode what a JSON column of SQLite holds.

    Text that is not JSON comes back as stored. A number comes back as it is: the declared type JSON gives the
    column numeric affinity, so SQLite keeps the text `5` as the integer 5.
    """
    if not isinstance(stored, str):
        return stored
    try:
        return decode_text(stored)
    except NOT_PLAIN:
        try:
            return _decoder.decode(stored)
        except (ValueError, RecursionError):
            return stored


_NUMBER_STARTS: Final = frozenset("-0123456789")


def bare_number(text: str) -> int | float | None:
    """The number that a JSON text is as a whole; None if it is anything else. Cost: a look at its beginning."""
    begin = text[:1] if not text[:1].isspace() else text.lstrip()[:1]
    if begin not in _NUMBER_STARTS:
        return None
    try:
        found = json.loads(text)
    except ValueError:
        return None
    return found if isinstance(found, (int, float)) else None


def numeric_form(text: Any) -> Any:
    """What a column of numeric affinity is given for a JSON text: for a fraction the double itself.

    SQLite before 3.43 reads some texts of doubles as their neighbours. A whole number of 64 bits it keeps.
    """
    found = bare_number(text) if isinstance(text, str) else None
    return found if isinstance(found, float) else text


class Json(TypeDecorator[Any]):
    """A JSON column that yields decoded Python values and binds None as JSON `null`.

    Decoded exactly once: where the driver decodes (PostgreSQL), its value is final, so a text that holds JSON
    stays text; elsewhere `decode_json` applies. SQL NULL reads as None as well; only `IS NULL` tells the two
    apart.

    Contract: ADR-0055 D1 (documented decoder).
    """

    impl = JSON
    cache_ok = True

    def __init__(self, *, none_as_null: bool = False) -> None:
        """Build the type.

        Args:
            none_as_null: Bind None as SQL NULL instead of JSON `null`.
        """
        super().__init__(none_as_null=none_as_null)
        self.none_as_null = none_as_null

    def bind_processor(self, dialect: Dialect) -> Callable[[Any], str | float | None]:
        """Return the encoder; the engine's own serializer would let inf and nan through."""
        decodes_itself = self.impl_instance.dialect_impl(dialect).result_processor(dialect, None) is None
        encode = encode_json if decodes_itself else _encode_numeric
        if self.none_as_null:
            return lambda value: None if value is None else encode(value)
        return encode

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[Any], Any] | None:
        """Return the decoder, or None where the driver has decoded already."""
        native = self.impl_instance.dialect_impl(dialect).result_processor(dialect, coltype)
        return None if native is None else decode_json


# 8 bytes on both databases: PostgreSQL's REAL has 4, which is minutes off for an epoch time.
Seconds: Final[TypeEngine[float]] = Double().with_variant(REAL(), "sqlite")
