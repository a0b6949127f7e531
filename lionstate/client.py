"""The runner over HTTP: a transport, the coalescing of concurrent calls, and the seam for the facade.

Knows operations only by name and codec. A write whose answer is lost after sending is `OutcomeUnknownError`.
"""

from __future__ import annotations

import asyncio
import functools
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

import aiohttp
import msgspec

from lionstate import wire
from lionstate.engine import Deferred
from lionstate.errors import (
    ClosedError,
    DaemonUnreachableError,
    DeadlineExceededError,
    InvalidInputError,
    OutcomeUnknownError,
    StateError,
)
from lionstate.facade import Facade
from lionstate.operations import operation_of

P = ParamSpec("P")
R = TypeVar("R")

__all__ = ["Call", "Coalescer", "StateClient", "Transport"]

_JSON = "application/json"
# The daemon answers a passed deadline itself, which says more than a timeout here would.
_MARGIN = 0.1
_MARGIN_SECONDS = 1.0
_IDLE_SECONDS = 30.0  # well below the daemon's own, so that no request meets a closing connection
_MAX_BATCH_OPERATIONS = 256
_MAX_BATCH_BYTES = 1024 * 1024


@dataclass(slots=True, eq=False)
class Call:
    """One call of an operation, its parameters encoded."""

    operation: str
    params: bytes
    writes: bool
    idempotent: bool
    deadline: float
    sent: bool = False
    reply: asyncio.Future[bytes | msgspec.Raw] = field(default_factory=lambda: asyncio.Future())


class Transport:
    """Requests to one daemon over reused connections."""

    def __init__(self, target: str, *, token: str | None = None, timeout: float = 30.0, connections: int = 8) -> None:
        """Take the address; nothing is connected yet.

        Args:
            target: `unix:/path/of.sock`, `http://host:port` or `https://host:port`.
            token: Bearer token; needed on TCP.
            timeout: Seconds that one call may take, waiting included.
            connections: Bound of the connections kept.
        Raises:
            InvalidInputError: The target is none of these.
        """
        self._path: str | None = None
        self._base = target.rstrip("/")
        if target.startswith("unix:"):
            self._path = target.removeprefix("unix:").removeprefix("//")
            self._base = "http://lionstated"
        elif not target.startswith(("http://", "https://")):
            raise InvalidInputError("the target must be unix:/path, http://host:port or https://host:port")
        self.timeout = timeout
        self._target = target
        self._connections = connections
        self._headers = {"Content-Type": _JSON}
        if token is not None:
            self._headers["Authorization"] = f"Bearer {token}"
        self._session: aiohttp.ClientSession | None = None

    async def open(self) -> None:
        """Make the session; a second call does nothing."""
        if self._session is not None:
            return
        connector: aiohttp.BaseConnector
        if self._path is not None:
            connector = aiohttp.UnixConnector(self._path, limit=self._connections, keepalive_timeout=_IDLE_SECONDS)
        else:
            connector = aiohttp.TCPConnector(limit=self._connections, keepalive_timeout=_IDLE_SECONDS)
        trace = aiohttp.TraceConfig()
        trace.on_request_headers_sent.append(_mark_sent)
        self._session = aiohttp.ClientSession(
            connector=connector,
            headers=self._headers,
            cookie_jar=aiohttp.DummyCookieJar(),
            trace_configs=[trace],
            auto_decompress=False,
            skip_auto_headers=("User-Agent", "Accept-Encoding"),
        )

    async def close(self) -> None:
        """Close all connections; a second call does nothing."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def request(
        self, method: str, path: str, body: bytes | None, *, deadline: float, writes: bool, idempotent: bool
    ) -> bytes:
        """Send one request and read the whole answer.

        Args:
            method: HTTP method.
            path: Path and query.
            body: JSON, or None.
            deadline: Value of `time.monotonic()`.
            writes: Whether a lost answer leaves the outcome open.
            idempotent: Whether to try once more when no connection could be made.
        Raises:
            StateError: What the daemon's problem document says.
            DaemonUnreachableError: Nothing was sent, or a read was not answered.
            OutcomeUnknownError: A write was sent and not answered.
        """
        try:
            return await self._once(method, path, body, deadline=deadline, writes=writes)
        except DaemonUnreachableError as exc:
            if not idempotent or not isinstance(exc.__cause__, aiohttp.ClientConnectorError):
                raise
            return await self._once(method, path, body, deadline=deadline, writes=writes)

    async def _once(self, method: str, path: str, body: bytes | None, *, deadline: float, writes: bool) -> bytes:
        if self._session is None:
            raise ClosedError("the client is not open")
        left = deadline - time.monotonic()
        if left <= 0:
            raise DeadlineExceededError
        asked = left - min(left * _MARGIN, _MARGIN_SECONDS)
        state = SimpleNamespace(sent=False)
        try:
            async with (
                asyncio.timeout(left),
                self._session.request(
                    method,
                    self._base + path,
                    data=body,
                    headers={"Lionstate-Deadline-Ms": str(max(1, int(asked * 1000)))},
                    timeout=aiohttp.ClientTimeout(total=None),
                    allow_redirects=False,
                    trace_request_ctx=state,
                ) as response,
            ):
                answer = await response.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as exc:
            raise self._lost(exc, sent=state.sent, writes=writes) from exc
        if response.status == 200:
            return answer
        if response.content_type != "application/problem+json":
            raise self._lost(None, sent=True, writes=writes)
        raise wire.decode_problem(answer)

    def _lost(self, exc: Exception | None, *, sent: bool, writes: bool) -> StateError:
        if writes and sent:
            return _unanswered(writes)
        if isinstance(exc, TimeoutError):
            return DaemonUnreachableError(f"no answer within {self.timeout:g} s from {self._target}")
        return DaemonUnreachableError(f"no daemon answers at {self._target}")


def _unanswered(writes: bool) -> StateError:
    if writes:
        return OutcomeUnknownError("the write was sent and not answered: it may or may not be there")
    return DaemonUnreachableError("the daemon did not answer in time")


async def _mark_sent(session: aiohttp.ClientSession, context: SimpleNamespace, params: object) -> None:
    context.trace_request_ctx.sent = True


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
            raise _unanswered(call.writes) from None

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
        answer = await self._transport.request(
            "POST",
            f"/v1/ops/{call.operation}",
            call.params,
            deadline=call.deadline,
            writes=call.writes,
            idempotent=call.idempotent,
        )
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
                call.reply.set_exception(wire.error_from_problem(reply.error))

    async def _guard(self, batch: Sequence[Call], sending: Awaitable[None]) -> None:
        # Whatever happens, every caller gets an answer: nobody else would wake it.
        try:
            await sending
        except StateError as exc:
            for call in batch:
                _fail(call, exc)
        except BaseException as exc:
            for call in batch:
                _fail(call, _unanswered(call.writes))
            if not isinstance(exc, Exception):
                raise


def _fail(call: Call, error: StateError) -> None:
    if not call.reply.done():
        # One exception object raised in several tasks would share its traceback.
        call.reply.set_exception(_copy(error))


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
    request = wire.BatchRequest([wire.BatchCall(call.operation, msgspec.Raw(call.params)) for call in calls], atomic)
    answer = await transport.request(
        "POST",
        "/v1/batch",
        msgspec.json.encode(request),
        deadline=deadline,
        writes=any(call.writes for call in calls),
        idempotent=all(call.idempotent for call in calls),
    )
    return wire.decode_batch_response(answer, expected=len(calls))


class StateClient(Facade):
    """A store behind a daemon: the same methods as StateDB, over HTTP."""

    def __init__(self, target: str, *, token: str | None = None, timeout: float = 30.0) -> None:
        """Take the address; nothing is connected yet.

        Args:
            target: `unix:/path/of.sock`, `http://host:port` or `https://host:port`.
            token: Bearer token; needed on TCP.
            timeout: Seconds that one call may take, waiting included.
        Raises:
            InvalidInputError: The target is none of these.
        """
        self._transport = Transport(target, token=token, timeout=timeout)
        self._writes = Coalescer(self._transport)
        self._reads = Coalescer(self._transport, under_way=4, max_operations=32)

    async def open(self) -> Self:
        """Make the client usable; the daemon is first contacted by the first call."""
        await self._transport.open()
        return self

    async def close(self) -> None:
        """Refuse what waits, let requests under way end, close the connections."""
        await self._writes.close()
        await self._reads.close()
        await self._transport.close()

    async def __aenter__(self) -> Self:
        """Open."""
        return await self.open()

    async def __aexit__(self, *exc_info: object) -> None:
        """Close."""
        await self.close()

    async def _call(
        self,
        operation_name: str,
        codec: wire.Codec,
        params: dict[str, Any],
        *,
        writes: bool,
        idempotent: bool,
    ) -> Any:
        call = Call(
            operation_name,
            codec.encode(params),
            writes=writes,
            idempotent=idempotent,
            deadline=time.monotonic() + self._transport.timeout,
        )
        return codec.decode_result(await (self._writes if writes else self._reads).run(call))

    async def _run(self, script: Callable[Concatenate[Any, P], R], /, *args: P.args, **kwargs: P.kwargs) -> R:
        result: R = await self._post(script, args, kwargs)
        return result

    async def _read(
        self, script: Callable[Concatenate[Any, P], Deferred[R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> R:
        result: R = await self._post(script, args, kwargs)
        return result

    async def _post(self, script: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        operation = operation_of(script)
        codec = _codec(script)
        params = operation.bind(args, kwargs)
        return await self._call(operation.name, codec, params, writes=operation.writes, idempotent=operation.idempotent)


@functools.cache
def _codec(script: Callable[..., Any]) -> wire.Codec:
    return wire.Codec.of(script)
