"""Makes tickets of operations: their call, fold, keys and size."""

from __future__ import annotations

import asyncio
import copy
import functools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection

from lionstate.engine import Outcome, Refused, Reply, Written
from lionstate.operations import Operation
from lionstate.progression.parsed import ParsedValues
from lionstate.queue.ticket import Fold, Ticket, TicketClass

__all__ = ["TicketMaker", "value_of"]

_SCRIPT_BYTES = 256


def value_of(outcome: Outcome) -> Any:
    """The value of a written call; else its error is raised."""
    if isinstance(outcome, Written):
        return outcome.value
    # Many callers may share one refusal; each raises a copy, so that tracebacks do not grow on it.
    raise copy.copy(outcome.error) from outcome.error.__cause__


class TicketMaker:
    """Makes the tickets of one store; the folds share the store's parsed values."""

    def __init__(self, parsed: ParsedValues) -> None:
        """Use ``parsed`` in every fold."""
        self._parsed = parsed
        self._folds: dict[str, Fold] = {}

    def of_operation(self, operation: Operation, params: Mapping[str, Any], deadline: float | None) -> Ticket:
        """One call of an operation; its parameters are prepared."""
        fold = self._fold(operation)
        if fold is None:
            call: Callable[[Connection], Any] = functools.partial(operation.script, **params)
        else:
            single = fold

            def call(conn: Connection) -> Any:
                return single(conn, [params])[0]

        return _ticket(
            operation.name, call, operation.keys(params), operation.size(params), deadline, params=params, fold=fold
        )

    def of_script(
        self,
        name: str,
        script: Callable[[Connection], Any],
        keys: frozenset[str] | None,
        deadline: float | None,
        kind: TicketClass,
        size_bytes: int = _SCRIPT_BYTES,
    ) -> Ticket:
        """A script that is no operation."""
        return _ticket(name, script, keys, size_bytes, deadline, kind=kind)

    def of_batch(self, calls: Sequence[tuple[Operation, Mapping[str, Any]]], deadline: float | None) -> Ticket:
        """All calls in one transaction, all or none; the ticket has the union of their keys."""
        scripts = [functools.partial(operation.script, **params) for operation, params in calls]
        keys: frozenset[str] | None = frozenset()
        for operation, params in calls:
            found = operation.keys(params)
            keys = None if keys is None or found is None else keys | found
        size = sum(operation.size(params) for operation, params in calls)
        return _ticket("batch", functools.partial(_run_all, scripts), keys, size, deadline)

    def _fold(self, operation: Operation) -> Fold | None:
        if operation.fold is None:
            return None
        found = self._folds.get(operation.name)
        if found is None:
            function, parsed = operation.fold, self._parsed

            def found(conn: Connection, calls: Sequence[Mapping[str, Any]], /) -> Sequence[Any]:
                return function(conn, calls, parsed)

            self._folds[operation.name] = found
        return found


def _run_all(scripts: Sequence[Callable[[Connection], Any]], conn: Connection) -> Any:
    """Run the scripts of an atomic batch; the first refusal is raised and undoes the others."""
    values: list[Any] = []
    effects: list[Callable[[], None]] = []
    for script in scripts:
        value = script(conn)
        if isinstance(value, Refused):
            raise value.error
        if isinstance(value, Reply):
            effects.append(value.after_commit)
            value = value.value
        values.append(value)

    def after_commit() -> None:
        for effect in effects:
            effect()

    return Reply(values, after_commit)


def _ticket(
    name: str,
    call: Callable[[Connection], Any],
    keys: frozenset[str] | None,
    size_bytes: int,
    deadline: float | None,
    *,
    params: Mapping[str, Any] | None = None,
    fold: Fold | None = None,
    kind: TicketClass = TicketClass.REQUEST,
) -> Ticket:
    progressions = frozenset([key[2:] for key in keys or () if key.startswith("p:")])
    future = asyncio.get_running_loop().create_future()
    now = time.monotonic()
    return Ticket(name, call, params or {}, fold, keys, progressions, size_bytes, deadline, kind, future, now)
