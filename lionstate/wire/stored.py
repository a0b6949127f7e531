"""What a store may hold and strict JSON encoders refuse: half of a surrogate pair, infinities, NaN, deep nesting.

All but NaN have a form in JSON's grammar, which a lenient reader takes. Only what the fast way refuses comes here.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import msgspec

__all__ = ["decode_leniently", "write_json", "written_from"]

_JSON_NAMES = {None: "null", True: "true", False: "false"}


class _Done(str):
    """A piece of the JSON that is written already."""

    __slots__ = ()


def write_json(
    obj: object, leaf: Callable[[object], bytes], *, is_sorted: bool = False, is_strict: bool = False
) -> str:
    """Write JSON without a recursion: the value must hold no cycle.

    Text becomes ASCII with escapes, a lone surrogate as ``\\ud83d``; an infinity becomes ``1e999``, which readers of
    doubles take for one; NaN has no form in JSON and becomes null. A key that is no text is written as ``json`` does.

    Args:
        obj: The value.
        leaf: Encodes what is no text, double or container.
        is_sorted: Put keys in order.
        is_strict: Refuse lone surrogates.
    Raises:
        TypeError: As ``leaf``, or a key has no form as text.
        UnicodeEncodeError: A lone surrogate.

    Cost: linear, about 90 times that of the fast encoder.
    """
    parts: list[str] = []
    todo: list[object] = [obj]
    while todo:
        one = todo.pop()
        if isinstance(one, _Done):
            parts.append(one)
        elif isinstance(one, str):
            if is_strict:
                one.encode()
            parts.append(json.dumps(one))
        elif isinstance(one, float):
            parts.append(_number(one))
        elif isinstance(one, Mapping):
            pairs = [(_key(key), value) for key, value in one.items()]
            todo += _object(sorted(pairs, key=lambda pair: pair[0]) if is_sorted else pairs)
        elif hasattr(one, "__dataclass_fields__"):
            todo += _object([(name, getattr(one, name)) for name in one.__dataclass_fields__])
        elif isinstance(one, (list, tuple, set, frozenset)):
            todo += _between("[", [([], value) for value in one], "]")
        else:
            parts.append(leaf(one).decode())
    return "".join(parts)


def _object(pairs: list[tuple[str, Any]]) -> list[object]:
    return _between("{", [([_Done(":"), key], value) for key, value in pairs], "}")


def _between(begin: str, members: list[tuple[list[object], Any]], end: str) -> list[object]:
    """What to write, the last first."""
    found: list[object] = [_Done(end)]
    for before, value in reversed(members):
        found += [value, *before, _Done(",")]
    if members:
        found.pop()
    return [*found, _Done(begin)]


def _key(key: object) -> str:
    if isinstance(key, str):
        return key
    if isinstance(key, float):
        return _number(key)
    if key is None or isinstance(key, bool):
        return _JSON_NAMES[key]
    if isinstance(key, int):
        return str(key)
    raise TypeError(f"a key of type {type(key).__name__}")


def _number(number: float) -> str:
    if math.isfinite(number):
        return repr(float(number))
    return "null" if math.isnan(number) else f"{'-' if number < 0 else ''}1e999"


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


_reader = json.JSONDecoder(parse_constant=_refuse_constant)


def decode_leniently(body: bytes | memoryview | msgspec.Raw | str) -> Any:
    """Decode JSON in which lone surrogates and numbers beyond a double stand, as ``write_json`` leaves them.

    Raises:
        ValueError: It is not JSON text in UTF-8.
        RecursionError: Nested too deeply.
    """
    return _reader.decode(body if isinstance(body, str) else bytes(body).decode())


def written_from(body: bytes | str, decoder: msgspec.json.Decoder[Any], around: Callable[[Any], Any]) -> Any:
    """Decode an envelope whose ``msgspec.Raw`` parts stay JSON; leniently where the strict decoder refuses one.

    Args:
        body: JSON.
        decoder: Of the envelope's type.
        around: Puts ``msgspec.Raw`` into the leniently decoded envelope where its type has that.
    Raises:
        ValueError: It is no such envelope.
        RecursionError: Nested too deeply.
    """
    try:
        return decoder.decode(body)
    except msgspec.DecodeError:
        return msgspec.convert(around(decode_leniently(body)), decoder.type)
