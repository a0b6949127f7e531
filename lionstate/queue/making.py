"""Makes tickets of operations: their call, fold, keys and size."""

from __future__ import annotations

import asyncio
import copy
import functools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from sqlalchemy import Connection

from lionstate.engine import Outcome, Refused, Reply, Written
from lionstate.operations import Operation
from lionstate.progression.parsed import ParsedValues
from lionstate.queue.receipts import Claim, Receipts
from lionstate.queue.ticket import Fold, Ticket, TicketClass

__all__ = ["PreparedCall", "TicketMaker", "value_of"]

_SCRIPT_BYTES = 256


def value_of(outcome: Outcome) -> Any:
    """The value of a written call; else its error is raised."""
    if isinstance(outcome, Written):
        return outcome.value
    # Many callers may share one refusal; each raises a copy, so that tracebacks do not grow on it.
    raise copy.copy(outcome.error) from outcome.error.__cause__


class PreparedCall(NamedTuple):
    """A call whose parameters are prepared, and the claim to its receipt if it has a key."""

    operation: Operation
    params: Mapping[str, Any]
    claim: Claim | None = None

    def keys(self) -> frozenset[str] | None:
        """What it may touch, its receipt included; None is everything."""
        keys = self.operation.keys(self.params)
        return keys if keys is None or self.claim is None else keys | {self.claim.queue_key}


class TicketMaker:
    """Makes the tickets of one store; the folds share the store's parsed values.

    Attributes:
        receipts: Those of the store.
    """

    def __init__(self, parsed: ParsedValues, receipts: Receipts) -> None:
        """Use ``parsed`` in every fold."""
        self._parsed = parsed
        self._folds: dict[str, Fold] = {}
        self.receipts = receipts

    def of_operation(self, prepared: PreparedCall, deadline: float | None) -> Ticket:
        """One call of an operation; with a key it is folded with no other, so that its receipt is its own."""
        operation, params, claim = prepared
        fold = self._fold(operation)
        if fold is None:
            call: Callable[[Connection], Any] = functools.partial(operation.script, **params)
        else:
            call = functools.partial(_alone, fold, (params,))

        if claim is not None:
            call, fold = self.receipts.once(claim, call), None
        size = operation.size(params)
        return _ticket(operation.name, call, prepared.keys(), size, deadline, params=params, fold=fold)

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

    def of_batch(self, calls: Sequence[PreparedCall], deadline: float | None) -> Ticket:
        """All calls in one transaction, all or none; the ticket has the union of their keys."""
        scripts = [self._script(call) for call in calls]
        keys: frozenset[str] | None = frozenset()
        for call in calls:
            found = call.keys()
            keys = None if keys is None or found is None else keys | found
        size = sum(call.operation.size(call.params) for call in calls)
        return _ticket("batch", functools.partial(_run_all, scripts), keys, size, deadline)

    def _script(self, call: PreparedCall) -> Callable[[Connection], Any]:
        script = functools.partial(call.operation.script, **call.params)
        return script if call.claim is None else self.receipts.once(call.claim, script)

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


def _alone(fold: Fold, params: Sequence[Mapping[str, Any]], conn: Connection) -> Any:
    return fold(conn, params)[0]


def _run_all(scripts: Sequence[Callable[[Connection], Any]], conn: Connection) -> Any:
    """Run the scripts of an atomic batch; the first refusal is raised and undoes the others."""
    values: list[Any] = []
    effects: list[Callable[[], None]] = []
    for script in scripts:
        value = script(conn)
        if isinstance(value, Refused):
            raise value.error
        if isinstance(value, Reply):
            if value.after_commit is not None:
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
    future = asyncio.get_running_loop().create_future()
    now = time.monotonic()
    return Ticket(name, call, params or {}, fold, keys, size_bytes, deadline, kind, future, now)
