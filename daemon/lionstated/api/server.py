"""uvicorn on sockets of ours: no signal handling, no idle polling, bounded heads, who calls, lost connections."""

from __future__ import annotations

import asyncio
import contextlib
import math
import socket
import struct
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import anyio
import uvicorn
from starlette.types import ASGIApp, Scope
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from lionstate import wire
from lionstate.errors import InvalidInputError, OverloadedError, StateError

from ..logs import Seldom, get_logger
from ..sockets import BoundSocket
from .tracing import REQUEST_ID, name_request, request_id_of

__all__ = ["ApiServer", "Connection", "ConnectionLimits", "Peer", "connection_of"]

_EXTENSION = "lionstate.connection"
# Request line and headers together. An id of 1,024 bytes takes 3 KiB of an address; there is nothing longer in either.
_HEAD_BYTES = 16 * 1024
_LINGER_SECONDS = 1.0
_TOLD_SECONDS = 10.0


class Peer(NamedTuple):
    """Credentials of the process at the other end of a Unix socket."""

    pid: int
    uid: int
    gid: int


@dataclass(slots=True)
class Connection:
    """What a handler may know of its connection."""

    peer: Peer | None = None
    on_lost: Callable[[], None] | None = None


def connection_of(scope: Scope) -> Connection | None:
    """The connection of a request; None outside `ApiServer`."""
    connection: Connection | None = scope.get("extensions", {}).get(_EXTENSION)
    return connection


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """What a listener allows its clients; each in the settings by this name."""

    max_connections: int = 1000
    header_seconds: float = 10.0
    transfer_seconds: float = 30.0
    idle_seconds: float = 75.0


class _Config(uvicorn.Config):
    limits = ConnectionLimits()
    cut_off: Seldom


class _HeadTooLargeError(Exception):
    """Raised inside the parser, which then stops as at any malformed request."""


class _Protocol(HttpToolsProtocol):
    """Adds the connection to every scope and bounds what the parser collects; rests on uvicorn's internals, tests of
    ours watch it.
    """

    _connection: Connection
    _head_bytes = 0
    # Since the parser last had a whole head or some of a body: it keeps what it has not passed on yet.
    _pending_bytes = 0
    _refused = False
    # What the client owes us now, and a number for each time that changes: a timer runs for it from the moment at which
    # it is not there at once.
    _owes: Literal["head", "body", None] = "head"
    _turn = 0
    _timed_turn = -1
    _arrival: asyncio.TimerHandle | None = None
    _taking: asyncio.TimerHandle | None = None
    _untaken_bytes = 0

    @property
    def _limits(self) -> ConnectionLimits:
        assert isinstance(self.config, _Config)
        return self.config.limits

    def data_received(self, data: bytes) -> None:
        if self._refused:
            return
        self._pending_bytes += len(data)
        super().data_received(data)
        if self._pending_bytes > _HEAD_BYTES and not self._refused:
            self._refuse()
        self._time_arrival()

    def _now_owes(self, what: Literal["head", "body", None]) -> None:
        self._owes = what
        self._turn += 1

    def _time_arrival(self) -> None:
        if self._turn == self._timed_turn:
            return
        self._timed_turn = self._turn
        if self._arrival is not None:
            self._arrival.cancel()
            self._arrival = None
        if self._owes is not None and not self.transport.is_closing():
            limits = self._limits
            seconds = limits.header_seconds if self._owes == "head" else limits.transfer_seconds
            self._arrival = self.loop.call_later(seconds, self._late)

    def _late(self) -> None:
        """Cut off who sends too slowly; not while an answer is under way, for which reading is paused."""
        if self._owes == "head" and self.cycle is not None and not self.cycle.response_complete:
            self._timed_turn = -1
            self._time_arrival()
            return
        self._tell_cut_off(f"slow_{self._owes}")
        untouched = self._owes == "head" and self._pending_bytes == 0
        if untouched or (self._owes == "body" and self.cycle.response_started):
            self.transport.abort()
        else:
            self._answer_and_close(InvalidInputError(f"the request's {self._owes} did not arrive in time"), 408)

    def _tell_cut_off(self, reason: str) -> None:
        assert isinstance(self.config, _Config)
        if count := self.config.cut_off.due():
            get_logger().warning("client_cut_off", reason=reason, clients=count)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._untaken_bytes = self.transport.get_write_buffer_size()
        self._taking = self.loop.call_later(self._limits.transfer_seconds, self._stalled)

    def _stalled(self) -> None:
        before = self._untaken_bytes
        if self.transport.get_write_buffer_size() < before:
            self.pause_writing()
            return
        self._tell_cut_off("slow_reader")
        self.transport.abort()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._taking is not None:
            self._taking.cancel()

    def timeout_keep_alive_handler(self) -> None:
        # A close would wait for what the client does not take.
        if self.transport.get_write_buffer_size():
            self.transport.abort()
        else:
            super().timeout_keep_alive_handler()

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        self._count(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        super().on_header(name, value)
        self._count(len(name) + len(value) + len(": \r\n"))

    def _count(self, size: int) -> None:
        self._head_bytes += size
        if self._head_bytes > _HEAD_BYTES:
            raise _HeadTooLargeError

    def on_headers_complete(self) -> None:
        self._pending_bytes = 0
        self._now_owes("body")
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._pending_bytes = 0
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._now_owes(None)
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        if self._head_bytes > _HEAD_BYTES:
            self._refuse()
        elif self._answers_another():
            self._refused = True
            self.transport.close()
        else:
            self._answer_and_close(InvalidInputError("this is not HTTP/1.1 that can be read; nothing was done"), 400)

    def _answers_another(self) -> bool:
        """Whether what would be sent now were taken for the answer to a request that is under way, or a part of it."""
        cycle = self.cycle
        if cycle is None or cycle.response_complete:
            return False
        is_of_this = cycle.scope is self.scope and self._owes == "body" and not self.pipeline
        return not is_of_this or cycle.response_started

    def _refuse(self) -> None:
        """Answer 431 or 414, and read on for a moment: a close at once would take the answer away again."""
        self._refused = True
        if self.cycle is not None and not self.cycle.response_complete:
            self.transport.close()
            return
        long_url = len(getattr(self, "url", b"")) > _HEAD_BYTES
        error = InvalidInputError(f"the {'address' if long_url else 'header'} is longer than {_HEAD_BYTES} bytes")
        self._answer_and_close(error, 414 if long_url else 431)

    def _answer_and_close(self, error: StateError, status: int) -> None:
        self._refused = True
        document = wire.problem(error, status=status)
        body = wire.encode(document)
        # A request that has begun has a scope of its own, with the headers that were there; one too many has none.
        scope: Any = self.scope
        request_id = name_request(scope) if scope else request_id_of({})
        if self.cycle is not None and not self.cycle.response_complete:
            # As if the connection were lost already: nothing more can be sent.
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self.transport.write(
            f"HTTP/1.1 {document['status']} {document['title']}\r\ncontent-type: application/problem+json\r\n"
            f"content-length: {len(body)}\r\nconnection: close\r\n"
            f"{REQUEST_ID.decode()}: {request_id}\r\n\r\n".encode()
            + body
        )
        if self.transport.can_write_eof():
            self.transport.write_eof()
        self.loop.call_later(_LINGER_SECONDS, self.transport.close)
        self.loop.call_later(_LINGER_SECONDS + self._limits.header_seconds, self.transport.abort)

    def connection_made(self, transport: Any) -> None:
        self._connection = Connection(_peer(transport.get_extra_info("socket")))
        super().connection_made(transport)
        if len(self.connections) > self._limits.max_connections:
            self._tell_cut_off("too_many_connections")
            self._answer_and_close(OverloadedError("there are too many connections"), 503)
        else:
            self._time_arrival()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._unset_keepalive_if_required()
        for timer in (self._arrival, self._taking):
            if timer is not None:
                timer.cancel()
        if self._connection.on_lost is not None:
            self._connection.on_lost()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._now_owes("head")
        self._head_bytes = 0
        extensions: Any = {_EXTENSION: self._connection}
        self.scope["extensions"] = extensions


def _peer(sock: socket.socket | None) -> Peer | None:
    option = getattr(socket, "SO_PEERCRED", None)
    if sock is None or option is None or sock.family != socket.AF_UNIX:
        return None
    return Peer(*struct.unpack("3i", sock.getsockopt(socket.SOL_SOCKET, option, struct.calcsize("3i"))))


class ApiServer(uvicorn.Server):
    """Serves one app on one bound socket until `stop`."""

    def __init__(
        self, app: ASGIApp, bound: BoundSocket, limits: ConnectionLimits, *, tls: tuple[str, str] | None = None
    ) -> None:
        """Prepare it; nothing listens yet.

        Args:
            app: Serves the requests.
            bound: Where.
            limits: Of its clients.
            tls: Files of the certificate and its key.
        """
        cert, key = tls or (None, None)
        super().__init__(
            config := _Config(
                app,
                http=_Protocol,
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                # Nobody's word for where a request comes from is taken.
                proxy_headers=False,
                server_header=False,
                date_header=False,
                timeout_keep_alive=math.ceil(limits.idle_seconds),
                backlog=1024,
                ssl_certfile=cert,
                ssl_keyfile=key,
            )
        )
        config.limits, config.cut_off = limits, Seldom(_TOLD_SECONDS)
        self._bound = bound
        self._stop = anyio.Event()
        self.listening = anyio.Event()

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        """Signals belong to the composition root."""
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, and tell who waits for it."""
        await super().startup(sockets)
        self.listening.set()

    async def main_loop(self) -> None:
        """Wait for the stop instead of looking for it ten times a second."""
        await self.on_tick(0)
        await self._stop.wait()

    async def run_until_stopped(self) -> None:
        """Serve; returns when every request under way was answered, or the budget of `stop` is spent."""
        try:
            await self.serve(sockets=[self._bound.sock])
        finally:
            # After a regular end nothing is left of these; after a cancellation uvicorn has closed nothing.
            for server in getattr(self, "servers", []):
                server.close()
            for connection in list(self.server_state.connections):
                if connection.transport is not None:
                    connection.transport.abort()
            self._bound.release()

    def stop(self, budget_seconds: float) -> None:
        """Stop accepting; requests under way get so much time before they are cancelled."""
        self.config.timeout_graceful_shutdown = max(1, math.ceil(budget_seconds))
        self.should_exit = True
        self._stop.set()

    def abort(self) -> None:
        """Stop without waiting for requests under way."""
        self.force_exit = True
        self.stop(0)
