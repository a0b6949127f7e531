"""Checks of what callers hand over, before anything is written; pure.

A mapping is checked against the columns of its table and becomes a `CheckedRow`; checking that again costs nothing, so
a script may be called with either.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from sqlalchemy import Float, Integer, Table, Text

from lionstate.errors import InvalidInputError, MissingKeyError
from lionstate.records.schemas import NUMBER, TEXT, described
from lionstate.schema.types import Json, RawJson, bare_number, encode_json

__all__ = [
    "MAX_PAGE",
    "CheckedJson",
    "CheckedRow",
    "check_choice",
    "check_page",
    "check_text",
    "checked_row",
    "encoded_json",
    "finite_number",
    "require_keys",
    "rough_size",
]

MAX_PAGE = 1_000
_ENOUGH = 128 * 1024


class CheckedJson(RawJson):
    """A value that `encoded_json` made or proved; it is not looked at again."""

    __slots__ = ()


class CheckedRow(dict[str, Any]):
    """Values by column that passed `checked_row`; JSON values are encoded."""


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


@described(TEXT)
def check_text(name: str, value: object) -> str:
    """Return the text; it must be storable on both databases: no NUL, no lone surrogate."""
    if not isinstance(value, str):
        raise InvalidInputError(f"{name} must be text, not {type(value).__name__}")
    if "\0" in value:
        raise InvalidInputError(f"{name} holds NUL")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise InvalidInputError(f"{name} holds a lone surrogate") from None
    return value


@described(NUMBER)
def finite_number(name: str, value: object) -> float:
    """Return the number as a float; bool, inf and nan are refused."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InvalidInputError(f"{name} must be a number, not {type(value).__name__}")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise InvalidInputError(f"{name} must be finite")
    return number


def _whole_number(name: str, value: object) -> int:
    if not isinstance(value, int):
        raise InvalidInputError(f"{name} must be a whole number, not {type(value).__name__}")
    if not -(2**31) <= value < 2**31:
        raise InvalidInputError(f"{name} is out of range")
    return int(value)


def encoded_json(name: str, value: object) -> CheckedJson:
    """Encode a value for a JSON column; a ``RawJson`` is stored as it is once it is proved to be JSON.

    A value that is one number as a whole must be a double or a whole number of 64 bits: SQLite stores it as such, and
    would change any other. Inside of an array or an object every number keeps its digits.

    Cost: linear; nothing for what was checked before.
    """
    if isinstance(value, CheckedJson):
        return value
    try:
        if isinstance(value, RawJson):
            json.loads(value.text, parse_constant=_refuse_constant)
            check_text(name, value.text)
        text = encode_json(value)
    except (ValueError, TypeError, RecursionError) as error:
        raise InvalidInputError(f"{name} cannot be stored as JSON: {type(error).__name__}") from error
    _check_bare_number(name, text)
    return CheckedJson(text)


def _check_bare_number(name: str, text: str) -> None:
    number = bare_number(text)
    if isinstance(number, int) and not -(2**63) <= number < 2**63:
        raise InvalidInputError(f"{name} is a whole number of more than 64 bits; put it into an object or a text")
    if isinstance(number, float) and not math.isfinite(number):
        raise InvalidInputError(f"{name} is a number beyond a double")


def check_choice(name: str, value: object, words: Collection[str], *, optional: bool = True) -> None:
    """Refuse a value outside a closed vocabulary; None passes when ``optional``."""
    if value is None and optional:
        return
    if not isinstance(value, str) or value not in words:
        raise InvalidInputError(f"{name} is not one of {', '.join(sorted(words))}")


def check_page(limit: object, offset: object = 0) -> None:
    """Refuse a page that is not 1 to 1,000 rows from an offset of 0 or more."""
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= MAX_PAGE:
        raise InvalidInputError(f"limit must be 1 to {MAX_PAGE}")
    if isinstance(offset, bool) or not isinstance(offset, int) or not 0 <= offset < 2**63:
        raise InvalidInputError("offset must be 0 or more")


def checked_row(
    what: str, table: Table, names: Iterable[str], given: Mapping[str, Any], *, required: Iterable[str] = ()
) -> CheckedRow:
    """Take the columns ``names`` that are given, each in the form that its type is stored in.

    Args:
        what: Names the argument in errors.
        table: Whose column types decide.
        names: Columns that may be given; other keys are left alone, as a mapping is read by key.
        given: The caller's mapping.
        required: Columns that must be there and not None.
    Raises:
        MissingKeyError: It lacks a required one.
        InvalidInputError: Names the column, never the value.
    """
    if not isinstance(given, Mapping):
        raise InvalidInputError(f"{what} must be a mapping, not {type(given).__name__}")
    require_keys(what, given, required)
    empty = [name for name in required if given[name] is None]
    if empty:
        raise InvalidInputError(f"{what} needs a value for {', '.join(empty)}, not None")
    return CheckedRow({name: _stored(table, name, given[name]) for name in names if name in given})


def require_keys(what: str, given: Mapping[str, Any], names: Iterable[str]) -> None:
    """Refuse a mapping without these keys: the one rule of every method that takes one, ``create_…`` before all.

    The error is a ``KeyError``, as with LionAGI, and an ``InvalidInputError`` with all that goes with it (400).
    """
    missing = [name for name in names if name not in given]
    if missing:
        raise MissingKeyError(f"{what} needs {', '.join(missing)}")


def _stored(table: Table, name: str, value: object) -> Any:
    kind = table.c[name].type
    if isinstance(kind, Json):
        return None if value is None and kind.none_as_null else encoded_json(name, value)
    if value is None:
        return None
    if isinstance(kind, Text):
        return check_text(name, value)
    if isinstance(kind, Float):
        return finite_number(name, value)
    assert isinstance(kind, Integer)
    return _whole_number(name, value)


def rough_size(value: object) -> int:
    """Estimate the encoded size of a value, giving up above 128 KB: enough to decide where to encode it."""
    total = 0
    left: list[object] = [value]
    while left and total < _ENOUGH:
        found = left.pop()
        if isinstance(found, (str, bytes)):
            total += len(found)
        elif isinstance(found, RawJson):
            total += len(found.text)
        elif isinstance(found, (dict, Mapping)):
            left.extend(found)
            left.extend(found.values())
        elif isinstance(found, (list, tuple)):
            left.extend(found)
        total += 4
    return total
