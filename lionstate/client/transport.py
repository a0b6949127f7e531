"""Requests to one daemon over reused connections; a write whose answer is lost is ``OutcomeUnknownError``."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from types import MappingProxyType, SimpleNamespace
from urllib.parse import urlsplit

import aiohttp

from lionstate import wire
from lionstate.errors import (
    ClosedError,
    DaemonUnreachableError,
    DeadlineExceededError,
    InvalidInputError,
    OutcomeUnknownError,
    StateError,
)

__all__ = ["Transport", "unanswered"]

_JSON = "application/json"
_NONE: Mapping[str, str] = MappingProxyType({})
# The daemon answers a passed deadline itself, which says more than a timeout here would.
_MARGIN = 0.1
_MARGIN_SECONDS = 1.0
_IDLE_SECONDS = 30.0  # well below the daemon's own, so that no request meets a closing connection


def _is_http(target: str) -> bool:
    try:
        found = urlsplit(target)
        return found.scheme in ("http", "https") and bool(found.hostname) and found.port != 0
    except ValueError:
        return False


class Transport:
    """Requests to one daemon over reused connections."""

    def __init__(self, target: str, *, token: str | None = None, timeout: float = 30.0, connections: int = 8) -> None:
        """Take the address; nothing is connected yet.

        Args:
            target: `unix:/path/of.sock`, `http://host:port` or `https://host:port`.
            token: Bearer token; needed on TCP.
            timeout: Seconds that one call may take, waiting included.
            connections: Bound of the connections; 0 is none.
        Raises:
            InvalidInputError: The target is none of these.
        """
        self._path: str | None = None
        self._base = target.rstrip("/")
        if target.startswith("unix:"):
            self._path = target.removeprefix("unix:").removeprefix("//")
            self._base = "http://lionstated"
        if not (self._path or _is_http(target)):
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
        self,
        method: str,
        path: str,
        body: bytes | None,
        *,
        deadline: float,
        writes: bool,
        idempotent: bool,
        key: str | None = None,
        max_lag_seconds: float | None = None,
    ) -> bytes:
        """Send one request and read the whole answer.

        Args:
            method: HTTP method.
            path: Path and query.
            body: JSON, or None.
            deadline: Value of `time.monotonic()`.
            writes: Whether a lost answer leaves the outcome open.
            idempotent: Whether to try once more when no connection could be made.
            key: The idempotency key of a write.
            max_lag_seconds: How old the answer of a read may be.
        Raises:
            StateError: What the daemon's problem document says.
            DaemonUnreachableError: Nothing was sent, or a read was not answered.
            OutcomeUnknownError: A write was sent and not answered.
        """
        headers: dict[str, str] = {}
        if key is not None:
            headers["Idempotency-Key"] = key
        if max_lag_seconds is not None:
            headers["Lionstate-Stale-Ok"] = f"{max_lag_seconds:.3f}"
        try:
            return (await self._once(method, path, body, deadline=deadline, writes=writes, headers=headers))[0]
        except DaemonUnreachableError as exc:
            if not idempotent or not isinstance(exc.__cause__, aiohttp.ClientConnectorError):
                raise
            return (await self._once(method, path, body, deadline=deadline, writes=writes, headers=headers))[0]

    async def get(self, path: str, *, deadline: float) -> tuple[bytes, Mapping[str, str]]:
        """Send one read and return the answer with its headers; raises as ``request``."""
        return await self._once("GET", path, None, deadline=deadline, writes=False)

    @property
    def is_open(self) -> bool:
        """Whether requests can be sent."""
        return self._session is not None

    async def _once(
        self,
        method: str,
        path: str,
        body: bytes | None,
        *,
        deadline: float,
        writes: bool,
        headers: Mapping[str, str] = _NONE,
    ) -> tuple[bytes, Mapping[str, str]]:
        if self._session is None:
            raise ClosedError("the client is not open")
        left = deadline - time.monotonic()
        if left <= 0:
            raise DeadlineExceededError
        asked = left - min(left * _MARGIN, _MARGIN_SECONDS)
        state = SimpleNamespace(sent=False)
        headers = {"Lionstate-Deadline-Ms": str(max(1, int(asked * 1000))), **headers}
        try:
            async with (
                asyncio.timeout(left),
                self._session.request(
                    method,
                    self._base + path,
                    data=body,
                    headers=headers,
                    timeout=aiohttp.ClientTimeout(total=None),
                    allow_redirects=False,
                    trace_request_ctx=state,
                ) as response,
            ):
                answer = await response.read()
        except (aiohttp.ClientError, TimeoutError, OSError) as exc:
            raise self._lost(exc, sent=state.sent, writes=writes) from exc
        if response.status == 200:
            return answer, response.headers
        if response.content_type != "application/problem+json":
            raise self._lost(None, sent=True, writes=writes)
        raise wire.decode_problem(answer)

    def _lost(self, exc: Exception | None, *, sent: bool, writes: bool) -> StateError:
        if writes and sent:
            return unanswered(writes)
        if isinstance(exc, TimeoutError):
            return DaemonUnreachableError(f"no answer within {self.timeout:g} s from {self._target}")
        return DaemonUnreachableError(f"no daemon answers at {self._target}")


def unanswered(writes: bool) -> StateError:
    if writes:
        return OutcomeUnknownError.after("the write was sent and not answered")
    return DaemonUnreachableError("the daemon did not answer in time")


async def _mark_sent(session: aiohttp.ClientSession, context: SimpleNamespace, params: object) -> None:
    context.trace_request_ctx.sent = True
