"""The runner over HTTP: the same facade, sent to a daemon."""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from lionstate import wire
from lionstate.client.coalescer import Call, Coalescer, send_batch
from lionstate.client.following import follow
from lionstate.client.migration import RemoteMigration
from lionstate.client.transport import Transport
from lionstate.engine import Deferred, NotWritten, Outcome, Refused, Unknown, Written
from lionstate.errors import OutcomeUnknownError
from lionstate.facade import Facade
from lionstate.facade.runner import BatchCall
from lionstate.operations import operation_of

__all__ = ["Call", "Coalescer", "StateClient", "Transport", "send_batch"]

P = ParamSpec("P")
R = TypeVar("R")


class StateClient(Facade):
    """A store behind a daemon: the same methods as StateDB, over HTTP.

    A write whose answer is lost is sent again, up to six times in three seconds: what is not idempotent by nature
    travels under an idempotency key of its own and happens once. When no attempt is answered,
    ``OutcomeUnknownError.idempotency_key`` is that key: ``with_key(key)`` and the same call find out.

    What is stored arrives as StateDB gives it, but for NaN, which is None. What is sent holds no lone surrogate: inside
    a JSON value StateDB takes one, as LionAGI does, and here it is ``InvalidInputError``; nothing was sent.
    """

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
        # Requests that wait hold no connection that a call needs.
        self._waiting = Transport(target, token=token, timeout=timeout, connections=0)
        self._writes = Coalescer(self._transport)
        self._reads = Coalescer(self._transport, under_way=4, max_operations=32)

    @property
    def migration(self) -> RemoteMigration:
        """The daemon's migration service (ADR-0117 D5)."""
        return RemoteMigration(self._transport)

    async def open(self) -> Self:
        """Make the client usable; the daemon is first contacted by the first call."""
        await self._transport.open()
        await self._waiting.open()
        return self

    async def close(self) -> None:
        """Refuse what waits, let requests under way end, close the connections."""
        await self._waiting.close()
        await self._writes.close()
        await self._reads.close()
        await self._transport.close()

    async def __aenter__(self) -> Self:
        """Open."""
        return await self.open()

    async def __aexit__(self, *exc_info: object) -> None:
        """Close."""
        await self.close()

    def follow_progression(
        self,
        progression_id: str,
        *,
        after_ordinal: int | None = None,
        generation: int | None = None,
        wait_seconds: float = 30.0,
    ) -> AsyncIterator[tuple[int, Any]]:
        """Give every item of a progression in order, then those that come, each once, without an end.

        Use: ``async for ordinal, message_id in client.follow_progression(…)``.

        Args:
            progression_id: A missing progression is an empty one.
            after_ordinal: Exclusive lower bound; None starts at the first item.
            generation: The one that ``after_ordinal`` was read under; None takes on the current one.
            wait_seconds: Longest wait of one request, above 0 to 60. It bounds how late an append by another process
                than the daemon is seen where the daemon does not hear of it (PostgreSQL); one through the daemon is
                given at once.
        Raises:
            StaleCursorError: The progression was replaced, deleted or rolled back: ordinals mean something else now.
            ClosedError: The client was closed.
            ProgressionError: It cannot be read.
            InvalidInputError: An argument.

        Lost connections, a daemon that restarts or is overloaded are waited for, up to 5 s between two attempts. While
        a progression is in ``json`` without a generation, a replacement is not noticed (design decision 4).
        Cost: a connection of its own while it waits; one read for each page and for each commit on the progression.
        Contract: ADR-0117 D4.
        """
        return follow(self._waiting, progression_id, after_ordinal, generation, wait_seconds)

    async def _call(
        self,
        operation_name: str,
        codec: wire.Codec,
        params: dict[str, Any],
        *,
        writes: bool,
        idempotent: bool,
        key: str | None = None,
    ) -> Any:
        call = Call(
            operation_name,
            codec.encode(params),
            writes=writes,
            idempotent=idempotent,
            deadline=time.monotonic() + self._transport.timeout,
            key=key if idempotent else key or _new_key(),
        )
        return codec.decode_result(await (self._writes if writes else self._reads).run(call))

    async def _run(self, script: Callable[Concatenate[Any, P], R | Refused], /, *args: P.args, **kwargs: P.kwargs) -> R:
        result: R = await self._post(script, args, kwargs)
        return result

    async def _read(
        self, script: Callable[Concatenate[Any, P], Deferred[R]], /, *args: P.args, **kwargs: P.kwargs
    ) -> R:
        result: R = await self._post(script, args, kwargs)
        return result

    async def _run_batch(self, calls: Sequence[BatchCall], *, atomic: bool) -> list[Outcome]:
        codecs = [wire.codec_of(operation.script) for operation, _, _ in calls]
        deadline = time.monotonic() + self._transport.timeout
        encoded = [
            Call(
                operation.name,
                codec.encode(dict(params)),
                operation.writes,
                operation.idempotent,
                deadline,
                key if operation.idempotent else key or _new_key(),
            )
            for (operation, params, key), codec in zip(calls, codecs, strict=True)
        ]
        try:
            replies = await send_batch(self._transport, encoded, atomic=atomic, deadline=deadline)
        except OutcomeUnknownError as error:
            return [Unknown(OutcomeUnknownError(str(error), idempotency_key=call.key)) for call in encoded]
        return [_outcome(codec, call, reply) for codec, call, reply in zip(codecs, encoded, replies, strict=True)]

    async def _stale(
        self, lag: float, script: Callable[Concatenate[Any, P], Any], /, *args: P.args, **kwargs: P.kwargs
    ) -> Any:
        operation, codec = operation_of(script), wire.codec_of(script)
        answer = await self._transport.request(
            "POST",
            f"/v1/ops/{operation.name}",
            codec.encode(operation.bind(args, kwargs)),
            deadline=time.monotonic() + self._transport.timeout,
            writes=False,
            idempotent=True,
            max_lag_seconds=lag,
        )
        return codec.decode_result(answer)

    async def _keyed(
        self, key: str, script: Callable[Concatenate[Any, P], R | Refused], /, *args: P.args, **kwargs: P.kwargs
    ) -> R:
        result: R = await self._post(script, args, kwargs, key)
        return result

    async def _post(
        self, script: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], key: str | None = None
    ) -> Any:
        operation = operation_of(script)
        codec = wire.codec_of(script)
        params = operation.bind(args, kwargs)
        writes, idempotent = operation.writes, operation.idempotent
        return await self._call(operation.name, codec, params, writes=writes, idempotent=idempotent, key=key)


def _new_key() -> str:
    """What makes one call its own, so that it may be sent again."""
    return uuid.uuid4().hex


def _outcome(codec: wire.Codec, call: Call, reply: wire.BatchReply) -> Outcome:
    if reply.error is None:
        return Written(codec.decode_result(reply.result))
    error = call.named(wire.error_from_problem(reply.error))
    return Unknown(error) if isinstance(error, OutcomeUnknownError) else NotWritten(error)
