"""What an operation is: a script and what the queue, the wire and a client must know of it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from sqlalchemy import Connection

from lionstate.errors import InvalidInputError
from lionstate.progression.parsed import ParsedValues
from lionstate.records.schemas import Schema, schemas_of
from lionstate.schema.types import RawJson

__all__ = [
    "FoldFunction",
    "KeysFunction",
    "Operation",
    "estimated_size",
    "everything",
    "operation",
    "progression_key",
    "touching",
]

FoldFunction: TypeAlias = Callable[[Connection, Sequence[Mapping[str, Any]], ParsedValues], Sequence[Any]]
KeysFunction: TypeAlias = Callable[[Mapping[str, Any]], frozenset[str] | None]


@dataclass(frozen=True, slots=True)
class Operation:
    """One operation.

    Attributes:
        name: Its name on the wire, in metrics and on the facade.
        script: ``def f(conn, /, …)``; the wire's parameters and result follow its signature.
        writes: Whether it goes through the write queue.
        idempotent: Whether running it twice leaves what running it once leaves; a client retries only those.
        keys: What a call may touch (``p:`` progressions, ``s:`` sessions, other prefixes by family); None: all.
        fold: Runs several calls in a handful of statements.
        prepare: Pure work on the parameters before the transaction: validation, encoding, digests. Returns the
            parameters to use instead; its errors refuse the call before anything is written.
        size: Estimated bytes of a call's parameters.
        schemas: JSON Schema of parameters, by name, where it says more than the type.
    """

    name: str
    script: Callable[..., Any]
    writes: bool
    idempotent: bool
    keys: KeysFunction
    fold: FoldFunction | None
    prepare: Callable[[dict[str, Any]], dict[str, Any]] | None
    size: Callable[[Mapping[str, Any]], int]
    schemas: Mapping[str, Schema]
    parameters: tuple[inspect.Parameter, ...] = field(default=())
    _shape: tuple[tuple[str, ...], frozenset[str], frozenset[str], bool] = field(
        default=((), frozenset(), frozenset(), True)
    )

    def bind(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Name the arguments of a call; defaults stay out, what a script takes as ``**changes`` stands beside them.

        Raises:
            InvalidInputError: Too many, unknown, doubled or missing arguments.
        """
        names, known, required, closed = self._shape
        bound = dict(zip(names, args, strict=False))
        if not kwargs and len(args) == len(names):
            return bound
        extra = closed and kwargs and not kwargs.keys() <= known
        if len(args) > len(names) or extra or not bound.keys().isdisjoint(kwargs):
            raise InvalidInputError(f"{self.name} does not take these arguments")
        bound.update(kwargs)
        if not required <= bound.keys():
            raise InvalidInputError(f"{self.name} needs {', '.join(sorted(required - bound.keys()))}")
        return bound


def _shape(
    parameters: tuple[inspect.Parameter, ...],
) -> tuple[tuple[str, ...], frozenset[str], frozenset[str], bool]:
    """The names that a call may give in order and as a set, those that it must give, whether it may give no others."""
    named = [parameter for parameter in parameters if parameter.kind is not parameter.VAR_KEYWORD]
    required = frozenset(parameter.name for parameter in named if parameter.default is parameter.empty)
    names = tuple(parameter.name for parameter in named)
    return names, frozenset(names), required, len(named) == len(parameters)


def everything(_params: Mapping[str, Any]) -> frozenset[str] | None:
    """The keys of an operation that may touch anything."""
    return None


def touching(*what: str) -> KeysFunction:
    """The keys of an operation on rows that its parameters name.

    Args:
        what: ``prefix:parameter``, or ``prefix:parameter.key`` when the parameter is a mapping. A parameter that is
            absent or None names no row.
    """
    parts = [(prefix, *path.partition(".")[::2]) for prefix, _, path in (word.partition(":") for word in what)]

    def keys(params: Mapping[str, Any]) -> frozenset[str] | None:
        found = set()
        for prefix, name, key in parts:
            value = params.get(name)
            if key and isinstance(value, Mapping):
                value = value.get(key)
            if value is not None:
                found.add(f"{prefix}:{value}")
        return frozenset(found)

    return keys


_CALL_BYTES = 256
_VALUE_BYTES = 16


def estimated_size(params: Mapping[str, Any]) -> int:
    """Bytes that a call's parameters take in the queue, roughly: what the queue's bound is counted in.

    Cost: one step per value; a text counts its characters.
    """
    size = _CALL_BYTES
    waiting: list[Any] = list(params.values())
    while waiting:
        value = waiting.pop()
        if isinstance(value, (str, bytes, bytearray)):
            size += len(value)
        elif isinstance(value, RawJson):
            size += len(value.text)
        elif isinstance(value, Mapping):
            waiting.extend(value.keys())
            waiting.extend(value.values())
        elif isinstance(value, (list, tuple, set, frozenset)):
            waiting.extend(value)
        size += _VALUE_BYTES
    return size


def progression_key(params: Mapping[str, Any]) -> frozenset[str]:
    """The key of an operation on one progression."""
    return frozenset((f"p:{params['progression_id']}",))


def operation(
    script: Callable[..., Any],
    *,
    writes: bool = False,
    idempotent: bool = True,
    keys: KeysFunction = everything,
    fold: FoldFunction | None = None,
    prepare: Callable[[dict[str, Any]], dict[str, Any]] | None = None,
    size: Callable[[Mapping[str, Any]], int] = estimated_size,
    schemas: Mapping[str, Schema] | None = None,
) -> Operation:
    """Make the entry of a script; its name and parameters are the script's.

    A script that declares its arguments with ``takes`` is prepared by that check and described by its schemas.
    """
    if schemas is None:
        schemas = schemas_of(script)
    prepare = prepare or getattr(script, "check", None)
    parameters = tuple(inspect.signature(script).parameters.values())[1:]
    shape = _shape(parameters)
    return Operation(script.__name__, script, writes, idempotent, keys, fold, prepare, size, schemas, parameters, shape)
