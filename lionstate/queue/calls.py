"""Runs operations through the queue: prepares their parameters, enters their tickets, waits for their outcomes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest
from typing import Any

from lionstate.engine import NotWritten, Observer, Outcome, Written
from lionstate.engine.offload import run_pure
from lionstate.errors import InvalidInputError, StateError
from lionstate.operations import Operation
from lionstate.queue.ending import refusal
from lionstate.queue.making import PreparedCall, TicketMaker, value_of
from lionstate.queue.receipts import RequestKey
from lionstate.queue.ticket import Ticket
from lionstate.queue.write_queue import WriteQueue

__all__ = ["OperationCalls"]


class OperationCalls:
    """The writing operations of one store; values come as the scripts return them, which may be deferred."""

    def __init__(self, queue: Callable[[], WriteQueue], tickets: TicketMaker, observer: Observer) -> None:
        """Enter tickets into what ``queue`` returns, which raises when the store is not open for writing."""
        self._queue = queue
        self._tickets = tickets
        self._observer = observer

    async def one(
        self, operation: Operation, params: Mapping[str, Any], deadline: float | None, key: RequestKey | None
    ) -> Any:
        """Run one operation; its refusal is raised."""
        if key is None and operation.prepare is None:
            prepared = PreparedCall(operation, params, None)
        else:
            prepared = await self._prepared(operation, params, key)
        ticket = self._tickets.of_operation(prepared, deadline)
        self._enter((ticket,))
        return value_of(await ticket.future)

    async def several(
        self,
        calls: Sequence[tuple[Operation, Mapping[str, Any]]],
        keys: Sequence[RequestKey | None],
        *,
        atomic: bool,
        deadline: float | None,
    ) -> list[Outcome]:
        """Run operations, each on its own in order or all in one transaction; one outcome each."""
        prepared: list[PreparedCall | NotWritten] = []
        for (operation, params), key in zip_longest(calls, keys):
            if not operation.writes:
                raise InvalidInputError(f"{operation.name} is a read and cannot be part of a batch")
            try:
                prepared.append(await self._prepared(operation, params, key))
            except StateError as error:
                if atomic:
                    return [NotWritten(error)] * len(calls)
                prepared.append(NotWritten(error))
        if atomic:
            return await self._together([call for call in prepared if isinstance(call, PreparedCall)], deadline)
        tickets = [
            self._tickets.of_operation(call, deadline) if isinstance(call, PreparedCall) else call for call in prepared
        ]
        entered = [ticket for ticket in tickets if isinstance(ticket, Ticket)]
        self._enter(entered)
        try:
            return [await ticket.future if isinstance(ticket, Ticket) else ticket for ticket in tickets]
        except asyncio.CancelledError:
            for ticket in entered:
                ticket.future.cancel()
            raise

    async def _together(self, calls: Sequence[PreparedCall], deadline: float | None) -> list[Outcome]:
        if not calls:
            return []
        ticket = self._tickets.of_batch(calls, deadline)
        self._enter((ticket,))
        outcome = await ticket.future
        if isinstance(outcome, Written):
            return [Written(value) for value in outcome.value]
        return [outcome] * len(calls)

    def _enter(self, tickets: Sequence[Ticket]) -> None:
        try:
            self._queue().submit_all(tickets)
        except StateError as error:
            for ticket in tickets:
                self._observer.operation(ticket.name, refusal(error))
            raise

    async def _prepared(self, operation: Operation, params: Mapping[str, Any], key: RequestKey | None) -> PreparedCall:
        """Check the parameters; a key is bound to them as they were sent."""
        claim = None if key is None else await self._tickets.receipts.claim(key, operation, params)
        if operation.prepare is not None:
            params = await run_pure(operation.prepare, dict(params), operation.size(params))
        return PreparedCall(operation, params, claim)
