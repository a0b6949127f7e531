"""Keys that stand twice in one JSON object: decoders take one of the two without a word, and not all the same one."""

from __future__ import annotations

import json
from typing import Any

from lionstate.errors import InvalidInputError

__all__ = ["refuse_doubled_keys"]

_NAME_LIMIT = 64


class _DoubledError(ValueError):
    """An object has a key twice."""


def _looked_at(pairs: list[tuple[str, Any]]) -> None:
    if len(dict(pairs)) != len(pairs):
        raise _DoubledError


# Nothing is built: an object becomes None, a number the length of its text.
_looking = json.JSONDecoder(object_pairs_hook=_looked_at, parse_int=len, parse_float=len, strict=False)
_pairs_of = json.JSONDecoder(object_pairs_hook=list, parse_int=len, parse_float=len, strict=False)


def refuse_doubled_keys(operation: str, body: bytes, keys: int) -> None:
    """Refuse a body in which an object, at any depth, has a key twice, however it is escaped.

    Args:
        operation: For the error.
        body: JSON that has been decoded before.
        keys: How many the outermost object had then.
    Raises:
        InvalidInputError: Names a parameter, never a key of what is stored; or it is no JSON after all.
        RecursionError: Nested too deeply.

    Cost: one pass in C and a call for each object; without objects in it next to nothing.
    """
    if body.count(b":") == keys:
        return  # As many colons as keys: nothing stands below them, and none twice.
    try:
        _looking.decode(body.decode())
    except _DoubledError:
        raise InvalidInputError(f"{operation}: {_doubled(body)}; nothing was done") from None
    except ValueError:
        # In what a batch keeps as it is for the time being.
        raise InvalidInputError(f"{operation}: the body is not valid JSON text in UTF-8") from None


def _doubled(body: bytes) -> str:
    names: set[str] = set()
    for name, _ in _pairs_of.decode(body.decode()):
        if name in names:
            return f"{name[:_NAME_LIMIT]!a} is given twice, and which one counts is not said"
        names.add(name)
    return "an object inside of the parameters has a key twice, and which one counts is not said"
