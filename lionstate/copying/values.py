"""Pure work on pages: the digest of rows, and values that a target cannot hold."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final

import msgspec

from lionstate.copying.tables import CopiedTable, Kind
from lionstate.schema.types import bare_number, decode_json, numeric_form

__all__ = [
    "DIGEST_MASK",
    "Problem",
    "digest_rows",
    "hex_of",
    "number_problems",
    "numeric_rows",
    "problems",
    "strict_rows",
]

DIGEST_MASK: Final = (1 << 128) - 1
_INT64: Final = 1 << 63
_NUMBER_STARTS: Final = frozenset("-0123456789")
_skip = msgspec.json.Decoder(msgspec.Raw)


@dataclass(frozen=True, slots=True)
class Problem:
    """A value that the target cannot hold.

    Attributes:
        place: Table and column.
        key: The primary key of its row, as text.
        reason: What is wrong with it, in words; never the value.
    """

    place: str
    key: str
    reason: str


def _plain_number(value: float) -> str:
    return str(int(value)) if math.isfinite(value) and value.is_integer() and abs(value) < _INT64 else repr(value)


def _plain_json(value: Any) -> Any:
    """One form for what the databases keep apart: SQLite turns a JSON text that is a number into the number."""
    if isinstance(value, str):
        text = value.strip()
        if text[:1] not in _NUMBER_STARTS:
            return value
        try:
            number = int(text)
        except ValueError:
            try:
                return _plain_number(float(text))
            except ValueError:
                return value
        return str(number)
    return _plain_number(value) if isinstance(value, float) else str(value) if isinstance(value, int) else value


def _plain_float(value: Any) -> Any:
    # Minus zero has no form of its own in SQLite.
    return value + 0.0 if isinstance(value, (int, float)) else value


_PLAIN: Final = {Kind.JSON: _plain_json, Kind.FLOAT: _plain_float}


def digest_rows(copied: CopiedTable, rows: Sequence[Sequence[Any]]) -> int:
    """The sum of the rows' digests, below 2**128: equal for equal rows in any order, on any database.

    Cost: about 2 µs a row.
    """
    if not rows:
        return 0
    columns: list[Iterable[Any]] = list(zip(*rows, strict=True))
    for place, kind in enumerate(copied.kinds):
        plain = _PLAIN.get(kind)
        if plain is not None:
            columns[place] = map(plain, columns[place])
    total = 0
    for row in zip(*columns, strict=True):
        total += int.from_bytes(blake2b(repr(row).encode(), digest_size=16).digest())
    return total & DIGEST_MASK


def hex_of(digest: int) -> str:
    """A digest as text."""
    return f"{digest:032x}"


def strict_rows(copied: CopiedTable, rows: Sequence[Sequence[Any]]) -> list[tuple[Any, ...]]:
    """The rows as a database with strict types takes them: numbers in JSON columns as text, whole floats as floats."""
    columns: list[Iterable[Any]] = list(zip(*rows, strict=True))
    for place, kind in enumerate(copied.kinds):
        if kind is Kind.JSON:
            columns[place] = [json.dumps(v) if isinstance(v, (int, float)) else v for v in columns[place]]
        elif kind is Kind.FLOAT:
            columns[place] = [float(v) if isinstance(v, int) else v for v in columns[place]]
    return list(zip(*columns, strict=True))


def numeric_rows(copied: CopiedTable, rows: Sequence[Sequence[Any]]) -> list[tuple[Any, ...]]:
    """The rows as a database with numeric affinity takes them: bare fractions of JSON columns as doubles."""
    columns: list[Iterable[Any]] = list(zip(*rows, strict=True))
    for place, kind in enumerate(copied.kinds):
        if kind is Kind.JSON:
            columns[place] = map(numeric_form, columns[place])
    return list(zip(*columns, strict=True))


def number_problems(copied: CopiedTable, rows: Sequence[Sequence[Any]]) -> Iterator[Problem]:
    """Bare numbers of JSON columns that a database with numeric affinity would change."""
    for place, kind in enumerate(copied.kinds):
        for row in rows if kind is Kind.JSON else ():
            number = bare_number(row[place]) if isinstance(row[place], str) else None
            if number is None or (math.isfinite(number) and (isinstance(number, float) or -_INT64 <= number < _INT64)):
                continue
            key = ", ".join(map(str, copied.key_of(row)))
            yield Problem(f"{copied.name}.{copied.columns[place].name}", key, "is a number that SQLite would change")


def problems(copied: CopiedTable, rows: Sequence[Sequence[Any]], *, max_indexed_bytes: int) -> Iterator[Problem]:
    """Values that a database with strict types cannot hold. Cost: well under that of the digest, JSON aside."""
    for place, column in enumerate(zip(*rows, strict=True)):
        kind = copied.kinds[place]
        if kind is Kind.TEXT and _all_plain_texts(column) and place not in copied.indexed:
            continue
        bits = 63 if place in copied.wide else 31
        longest = max_indexed_bytes if place in copied.indexed else None
        for row, value in zip(rows, column, strict=True):
            reason = None if value is None else _reason(kind, value, bits, longest)
            if reason is not None:
                key = ", ".join(map(str, copied.key_of(row)))
                yield Problem(f"{copied.name}.{copied.columns[place].name}", key, reason)


def _all_plain_texts(values: Sequence[Any]) -> bool:
    try:
        return "\0" not in "".join(value for value in values if value is not None)
    except TypeError:
        return False


def _reason(kind: Kind, value: Any, bits: int, longest: int | None) -> str | None:
    if kind is Kind.TEXT:
        return _text_reason(value, longest)
    if kind is Kind.JSON:
        return _json_reason(value)
    if kind is Kind.BYTES:
        return None if isinstance(value, bytes) else "is not bytes"
    if kind is Kind.FLOAT:
        return None if isinstance(value, (int, float)) else "is not a number"
    if not isinstance(value, int):
        return "is not a whole number"
    return None if -(1 << bits) <= value < 1 << bits else f"does not fit in {bits + 1} bits"


def _text_reason(value: Any, longest: int | None) -> str | None:
    if not isinstance(value, str):
        return "is not text"
    if "\0" in value:
        return "holds a NUL character"
    if longest is not None and len(value) * 4 > longest and len(value.encode()) > longest:
        return f"is longer than the {longest} bytes that an index holds"
    return None


def _json_reason(value: Any) -> str | None:
    if isinstance(value, (int, float)):
        return None if math.isfinite(value) else "is not JSON"
    if not isinstance(value, str):
        return "is not text"
    try:
        _skip.decode(value)
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        # The quick check is narrower than the database's, which takes any escape.
        if decode_json(value) is value:
            return "is not JSON"
    return None
