"""Calls that wait at the same time travel together (design §2.2)."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Sequence
from dataclasses import dataclass, field

import msgspec

from lionstate import wire
from lionstate.client.repeating import until_answered
from lionstate.client.transport import Transport, unanswered
from lionstate.errors import ClosedError, DeadlineExceededError, OutcomeUnknownError, StateError

__all__ = ["Call", "Coalescer", "send_batch"]

_MAX_BATCH_OPERATIONS = 256
_MAX_BATCH_BYTES = 1024 * 1024


@dataclass(slots=True, eq=False)
class Call:
    """One call of an operation, its parameters encoded; its key stays its own in whatever request it travels."""

    operation: str
    params: bytes
    writes: bool
    idempotent: bool
    deadline: float
    key: str | None = None
    sent: bool = False
    reply: asyncio.Future[bytes | msgspec.Raw] = field(default_factory=lambda: asyncio.Future())

    @property
    def repeatable(self) -> bool:
        """Whether sending it twice writes what sending it once writes."""
        return self.idempotent or self.key is not None

    def named(self, error: StateError) -> StateError:
        """An error of this call: an unknown outcome says under which key to ask again."""
        if isinstance(error, OutcomeUnknownError):
            error.idempotency_key = self.key
        return error


class Coalescer:
    """Sends what waits: alone if it is one call, as one batch if there are several.

    A call that finds nothing under way leaves in the next turn of the event loop, together with all that were
    made in this one; no clock is involved. At most `under_way` requests are open; with 1, order of arrival is
    order of sending.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        under_way: int = 1,
        max_operations: int = _MAX_BATCH_OPERATIONS,
        max_bytes: int = _MAX_BATCH_BYTES,
    ) -> None:
        """Take the transport and the bounds of a batch."""
        self._transport = transport
        self._under_way = under_way
        self._max_operations = max_operations
        self._max_bytes = max_bytes
        self._waiting: deque[Call] = deque()
        self._active = 0
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self, call: Call) -> bytes | msgspec.Raw:
        """Send a call with what else waits, and return its result as JSON.

        A caller that is cancelled before its call was sent takes it out; later only the answer is dropped.

        Raises:
            DeadlineExceededError: The deadline passed before it was sent.
            StateError: As `Transport.request`, or what the daemon says of this call.
        """
        self._waiting.append(call)
        if self._active < self._under_way:
            self._active += 1
            task = asyncio.get_running_loop().create_task(self._drain())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        try:
            async with asyncio.timeout(call.deadline - time.monotonic()):
                return await call.reply
        except TimeoutError:
            if not call.sent:
                raise DeadlineExceededError from None
            raise call.named(unanswered(call.writes)) from None

    async def close(self) -> None:
        """Refuse what waits and let the requests under way end."""
        while self._waiting:
            _fail(self._waiting.popleft(), ClosedError("the client was closed"))
        if self._tasks:
            await asyncio.wait(set(self._tasks))

    async def _drain(self) -> None:
        try:
            while batch := self._take():
                await (self._alone(batch[0]) if len(batch) == 1 else self._together(batch))
        finally:
            # Here and not when the task is done: a caller woken in between would find nobody to send for it.
            self._active -= 1

    def _take(self) -> list[Call]:
        batch: list[Call] = []
        size = 0
        now = time.monotonic()
        while self._waiting and len(batch) < self._max_operations:
            call = self._waiting[0]
            if batch and size + len(call.params) > self._max_bytes:
                break
            self._waiting.popleft()
            if call.reply.done():
                continue
            if call.deadline <= now:
                _fail(call, DeadlineExceededError())
                continue
            call.sent = True
            batch.append(call)
            size += len(call.params)
        return batch

    async def _alone(self, call: Call) -> None:
        await self._guard([call], self._send_alone(call))

    async def _send_alone(self, call: Call) -> None:
        answer = await _send(self._transport, f"/v1/ops/{call.operation}", call.params, [call], call.deadline, call.key)
        if not call.reply.done():
            call.reply.set_result(answer)

    async def _together(self, batch: list[Call]) -> None:
        await self._guard(batch, self._send_together(batch))

    async def _send_together(self, batch: list[Call]) -> None:
        replies = await send_batch(self._transport, batch, atomic=False, deadline=max(c.deadline for c in batch))
        for call, reply in zip(batch, replies, strict=True):
            if call.reply.done():
                continue
            if reply.error is None:
                call.reply.set_result(reply.result)
            else:
                call.reply.set_exception(call.named(wire.error_from_problem(reply.error)))

    async def _guard(self, batch: Sequence[Call], sending: Awaitable[None]) -> None:
        # Whatever happens, every caller gets an answer: nobody else would wake it.
        try:
            await sending
        except StateError as exc:
            for call in batch:
                _fail(call, exc)
        except BaseException as exc:
            for call in batch:
                _fail(call, unanswered(call.writes))
            if not isinstance(exc, Exception):
                raise


def _fail(call: Call, error: StateError) -> None:
    if not call.reply.done():
        # One exception object raised in several tasks would share its traceback.
        call.reply.set_exception(call.named(_copy(error)))


def _copy(error: StateError) -> StateError:
    fresh = type(error)(str(error))
    fresh.__dict__.update(error.__dict__)
    fresh.__cause__ = error.__cause__
    return fresh


async def send_batch(
    transport: Transport, calls: Sequence[Call], *, atomic: bool, deadline: float
) -> list[wire.BatchReply]:
    """Send calls as one `/v1/batch`; one reply each, in order.

    Raises:
        StateError: The batch as a whole was refused, or its answer was lost.
    """
    request = wire.BatchRequest(
        [wire.BatchCall(call.operation, msgspec.Raw(call.params), call.key) for call in calls], atomic
    )
    answer = await _send(transport, "/v1/batch", msgspec.json.encode(request), calls, deadline)
    return wire.decode_batch_response(answer, expected=len(calls))


async def _send(
    transport: Transport, path: str, body: bytes, calls: Sequence[Call], deadline: float, key: str | None = None
) -> bytes:
    """Post calls; a write that may be repeated is, while its answer is lost."""
    writes = any(call.writes for call in calls)
    repeatable = all(call.repeatable for call in calls)

    def attempt() -> Awaitable[bytes]:
        return transport.request("POST", path, body, deadline=deadline, writes=writes, idempotent=repeatable, key=key)

    if not (writes and repeatable):
        return await attempt()
    return await until_answered(attempt, keyed=all(call.key is not None for call in calls), deadline=deadline)
