"""The generic operation handler and its relatives: decode, hand to the store, encode."""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeVar

import anyio
import msgspec
from starlette.types import Receive, Scope, Send

from lionstate import wire
from lionstate.engine.offload import run_pure
from lionstate.errors import InvalidInputError, NotFoundError, OutcomeUnknownError, StateError, WireError
from lionstate.migration import acting_as
from lionstate.queue import RequestKey

from ..logs import get_logger
from ..metrics import Metrics
from .access import actor_of, caller_of, require
from .contracts import (
    GENERATION_HEADER,
    QUERY_NAMES,
    READS,
    NewsLike,
    OperationLike,
    StoreLike,
    Verb,
    rights_for,
)
from .failures import StoreFailures
from .problems import REPLAYED, Headers, HttpProblem, respond
from .request_head import header, key_of, lag_of, progression_id_of, query_of, wait_seconds_of
from .server import connection_of
from .tracing import call_it

__all__ = ["OperationHandlers", "VerbHandler"]

T = TypeVar("T")
_CLOSE = (b"connection", b"close")
_INLINE_BYTES = 64 * 1024


async def read_json_body(scope: Scope, receive: Receive, limit_bytes: int) -> bytes:
    """Read a JSON body of bounded size.

    Raises:
        InvalidInputError: Another content type.
        HttpProblem: 413, too large.
    """
    content_type = header(scope, b"content-type") or b""
    if content_type.split(b";", 1)[0].strip().lower() != b"application/json":
        raise InvalidInputError("the content type must be application/json")
    length = header(scope, b"content-length")
    if length is not None and int(length) > limit_bytes:
        raise _too_large(limit_bytes)
    chunks: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise InvalidInputError("the connection ended before the body did")
        chunk: bytes = message.get("body", b"")
        size += len(chunk)
        if size > limit_bytes:
            raise _too_large(limit_bytes)
        chunks.append(chunk)
        if not message.get("more_body", False):
            return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def _too_large(limit_bytes: int) -> HttpProblem:
    return HttpProblem(InvalidInputError(f"the body is larger than {limit_bytes} bytes"), 413, [_CLOSE])


async def while_connected(scope: Scope, work: Awaitable[T]) -> T | None:
    """Await `work`, cancelled when the caller goes away; None then, and nobody to answer."""
    connection, task = connection_of(scope), asyncio.current_task()
    if connection is None or task is None:
        return await work
    is_gone = False

    def gone() -> None:
        nonlocal is_gone
        is_gone = True
        task.cancel()

    # No scope of anyio's, which costs as much as the rest of this handler.
    connection.on_lost = gone
    try:
        found = await work
    except asyncio.CancelledError:
        if not is_gone or task.cancelling() > 1:
            raise
        return None
    finally:
        connection.on_lost = None
        if is_gone:
            task.uncancel()
    return None if is_gone else found


async def _decoded(operation: OperationLike, codec: wire.Codec, body: bytes | msgspec.Raw) -> dict[str, Any]:
    """The parameters; decoding much of them would stop every other request for as long."""
    size = memoryview(body).nbytes
    if size <= _INLINE_BYTES:
        # A part of a batch: the whole of it has been looked through for doubled keys.
        return codec.decode_params(body, is_proved=isinstance(body, msgspec.Raw))
    return await run_pure(wire.decode_call, (operation.script, bytes(body)), size)


class _BatchCall(NamedTuple):
    """One operation of a batch, decoded."""

    operation: OperationLike
    codec: wire.Codec
    params: dict[str, Any]
    key: RequestKey | None


class OperationHandlers:
    """All routes that run operations."""

    def __init__(
        self,
        store: StoreLike,
        operations: Mapping[str, OperationLike],
        *,
        metrics: Metrics,
        limit_bytes: int,
        limit_operations: int,
        deadline_ms: int,
        news: NewsLike | None,
        failures: StoreFailures,
    ) -> None:
        """Build the codecs of all operations, once."""
        self._news = news
        self._store = store
        self._metrics = metrics
        self._limit_bytes = limit_bytes
        self._limit_operations = limit_operations
        self._deadline_ms = deadline_ms
        self._failures = failures
        self.table = {name: (op, wire.codec_of(op.script)) for name, op in operations.items()}

    def _find(self, name: str) -> tuple[OperationLike, wire.Codec]:
        found = self.table.get(name)
        if found is None:
            self._metrics.operation("", "refused")
            raise NotFoundError("there is no such operation")
        return found

    def _deadline(self, scope: Scope) -> float:
        given = header(scope, b"lionstate-deadline-ms")
        milliseconds = self._deadline_ms
        if given is not None:
            if not given.isdigit() or len(given) > 12:
                raise InvalidInputError("Lionstate-Deadline-Ms must be a whole number of milliseconds")
            milliseconds = min(int(given), milliseconds)
        return time.monotonic() + milliseconds / 1000

    async def operation(self, scope: Scope, receive: Receive, send: Send) -> None:
        """`POST /v1/ops/{operation}`."""
        operation, codec = self._find(scope["path_params"]["operation"])
        call_it(scope, operation.name)
        require(scope, rights_for(operation))
        deadline = self._deadline(scope)
        given = key_of(scope)
        key = None if given is None else RequestKey(caller_of(scope), given)
        lag = lag_of(scope)
        body = await read_json_body(scope, receive, self._limit_bytes)
        try:
            params = await _decoded(operation, codec, body)
        except InvalidInputError:
            self._metrics.operation(operation.name, "refused")
            raise
        result = await while_connected(scope, self._run(operation, codec, params, deadline, key, lag))
        if result is not None:
            await respond(send, 200, result, (REPLAYED,) if key is not None and key.replayed else ())

    async def _run(
        self,
        operation: OperationLike,
        codec: wire.Codec,
        params: Mapping[str, Any],
        deadline: float,
        key: RequestKey | None = None,
        lag: float | None = None,
    ) -> bytes:
        try:
            stale = {} if lag is None else {"max_lag_seconds": lag}
            value = await self._store.run(operation, params, deadline=deadline, key=key, **stale)
            self._failures.answered(wrote=operation.writes)
        except StateError as exc:
            self._failures.note(exc, wrote=operation.writes)
            raise
        except Exception as exc:
            get_logger().error("operation_failed", operation=operation.name, exc_info=True)
            if operation.writes:
                raise OutcomeUnknownError.after("internal error") from exc
            raise StateError("internal error") from exc
        return _encode(operation, codec, value)

    async def batch(self, scope: Scope, receive: Receive, send: Send) -> None:
        """`POST /v1/batch`."""
        call_it(scope, "batch")
        require(scope, "read")
        deadline = self._deadline(scope)
        body = await read_json_body(scope, receive, self._limit_bytes)
        request = await run_pure(wire.decode_batch_request, body, len(body))
        if len(request.operations) > self._limit_operations:
            raise InvalidInputError(f"a batch has at most {self._limit_operations} operations")
        refused: dict[int, wire.BatchReply] = {}
        calls: list[_BatchCall] = []
        caller = caller_of(scope)
        for index, call in enumerate(request.operations):
            try:
                operation, codec = self._find(call.operation)
                require(scope, rights_for(operation))
                key = None if call.idempotency_key is None else RequestKey(caller, call.idempotency_key)
                params = await _decoded(operation, codec, call.params)
                calls.append(_BatchCall(operation, codec, params, key))
            except (StateError, HttpProblem) as exc:
                if request.atomic:
                    raise
                refused[index] = _failed(exc) if isinstance(exc, StateError) else _failed(exc.error, exc.status)
        replies = await while_connected(scope, self._run_batch(calls, request.atomic, deadline))
        if replies is None:
            return
        rest = iter(replies)
        results = [refused[index] if index in refused else next(rest) for index in range(len(request.operations))]
        await respond(send, 200, msgspec.json.encode(wire.BatchResponse(results)))

    async def _run_batch(self, calls: Sequence[_BatchCall], atomic: bool, deadline: float) -> list[wire.BatchReply]:
        if not atomic and not any(call.operation.writes for call in calls):
            return await self._run_reads(calls, deadline)
        outcomes = await self._store.run_batch(
            [(call.operation, call.params) for call in calls],
            atomic=atomic,
            deadline=deadline,
            keys=[call.key for call in calls],
        )
        replies: list[wire.BatchReply] = []
        for call, outcome in zip(calls, outcomes, strict=True):
            error: StateError | None = getattr(outcome, "error", None)
            if error is not None:
                self._failures.note(error, wrote=call.operation.writes)
            else:
                self._failures.answered(wrote=call.operation.writes)
            replies.append(_done(call, outcome.value) if error is None else _failed(error))
        return replies

    async def _run_reads(self, calls: Sequence[_BatchCall], deadline: float) -> list[wire.BatchReply]:
        # Reads take no turn of the writer: the store's readers run them side by side.
        replies: dict[int, wire.BatchReply] = {}

        async def one(index: int) -> None:
            operation, codec, params, key = calls[index]
            try:
                result = await self._run(operation, codec, params, deadline, key)
                replies[index] = wire.BatchReply("written", msgspec.Raw(result))
            except StateError as exc:
                replies[index] = _failed(exc)

        async with anyio.create_task_group() as group:
            for index in range(len(calls)):
                group.start_soon(one, index)
        return [replies[index] for index in range(len(calls))]

    async def read(self, scope: Scope, receive: Receive, send: Send) -> None:
        """`GET /v1/progressions/{id}` and `/items`: the two reads people do with curl; the second one may wait."""
        page = scope["path"].endswith("/items")
        name = READS["/v1/progressions/{id}/items" if page else "/v1/progressions/{id}"]
        call_it(scope, name)
        require(scope, "read")
        query = query_of(scope)
        wait_seconds = wait_seconds_of(query) if page else 0.0
        for short, full in QUERY_NAMES.items():
            if short in query:
                query[full] = query.pop(short)
        query["progression_id"] = progression_id_of(scope, is_page=page)
        params = self._find(name)[1].decode_query(query)
        deadline = self._deadline(scope)
        found = await while_connected(scope, self._followed(name, params, deadline, wait_seconds))
        if found is not None:
            await respond(send, 200, *found)

    async def _followed(
        self, name: str, params: Mapping[str, Any], deadline: float, wait_seconds: float
    ) -> tuple[bytes, Headers]:
        """Read now, and while that finds nothing again after each commit that may have changed it."""
        if self._news is None or wait_seconds <= 0:
            return await self._read(name, params, deadline)
        end = time.monotonic() + wait_seconds
        with self._news.listen(f"p:{params['progression_id']}") as listener, self._metrics.followers.track_inprogress():
            while True:
                found = await self._read(name, params, deadline)
                # The last look is for what a process wrote that nobody hears of.
                if found[0] != b"[]" or (left := end - time.monotonic()) <= 0:
                    return found
                await listener.wait(left)

    async def _read(self, name: str, params: Mapping[str, Any], deadline: float) -> tuple[bytes, Headers]:
        headers: list[tuple[bytes, bytes]] = []
        if "get_progression_generation" in self.table:
            # Before the rows: a replacement in between makes the cursor stale, never silently valid.
            progression = {"progression_id": params["progression_id"]}
            value = await self._run(*self.table["get_progression_generation"], progression, deadline)
            headers.append((GENERATION_HEADER.encode(), value))
        return await self._run(*self.table[name], params, deadline), headers


class VerbHandler:
    """`/v1/migration/{verb}`: a table of verbs, given by the composition root."""

    def __init__(self, verbs: Mapping[str, Verb], *, limit_bytes: int, failures: StoreFailures) -> None:
        """Build the codecs of all verbs."""
        self._failures = failures
        self._limit_bytes = limit_bytes
        self.table = {name: (verb, wire.Codec.of(verb.call, skip_first=False)) for name, verb in verbs.items()}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one verb."""
        found = self.table.get(scope["path_params"]["verb"])
        if found is None:
            raise NotFoundError("there is no such migration verb")
        verb, codec = found
        call_it(scope, f"migration {scope['path_params']['verb']}")
        require(scope, "read" if verb.method == "GET" else "admin")
        if scope["method"] not in (verb.method, "HEAD" if verb.method == "GET" else verb.method):
            allow = [(b"allow", verb.method.encode())]
            raise HttpProblem(InvalidInputError(f"this verb is called with {verb.method}"), 405, allow)
        if verb.method == "GET":
            params = codec.decode_query(query_of(scope))
        else:
            params = codec.decode_params(await read_json_body(scope, receive, self._limit_bytes))
        call = functools.partial(verb.call, **params)
        with acting_as(actor_of(scope)):
            await self._answer(scope, send, verb, codec, call)

    async def _answer(
        self, scope: Scope, send: Send, verb: Verb, codec: wire.Codec, call: Callable[[], Awaitable[Any]]
    ) -> None:
        if not verb.ends_with_caller:
            found = await self._failures.unless_mute(call, reads=verb.method == "GET")
            await respond(send, 200, codec.encode_result(found))
            return
        # In a list: None is an answer, and no answer at all is another thing.
        answer = await while_connected(scope, _listed(call()))
        if answer is not None:
            await respond(send, 200, codec.encode_result(answer[0]))


async def _listed(work: Awaitable[T]) -> list[T]:
    return [await work]


def _encode(operation: OperationLike, codec: wire.Codec, value: object) -> bytes:
    try:
        return codec.encode_result(value)
    except InvalidInputError as exc:
        # The write is there; only its result cannot travel. `not_written` would be a lie.
        said = f"the result of {operation.name} has no JSON form"
        if operation.writes:
            raise OutcomeUnknownError(f"{said}, but it was written: read it back instead of sending it again") from exc
        raise WireError(said) from exc


def _done(call: _BatchCall, value: object) -> wire.BatchReply:
    replayed = call.key is not None and call.key.replayed
    try:
        return wire.BatchReply("written", msgspec.Raw(_encode(call.operation, call.codec, value)), replayed=replayed)
    except StateError as exc:
        return _failed(exc)


def _failed(error: StateError, status: int | None = None) -> wire.BatchReply:
    outcome: Literal["unknown", "not_written"] = "unknown" if isinstance(error, OutcomeUnknownError) else "not_written"
    return wire.BatchReply(outcome, error=wire.problem(error, status=status), replayed=error.replayed)
