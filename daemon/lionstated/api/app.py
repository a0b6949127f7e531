"""The routes of the two listeners: the service's, and the one for monitoring."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

import anyio
import anyio.to_thread
from starlette.convertors import PathConvertor, register_url_convertor
from starlette.routing import Route, Router
from starlette.types import ASGIApp, Receive, Scope, Send

from lionstate import wire
from lionstate.errors import BackendUnavailableError

from ..board import Board
from ..metrics import Metrics
from .access import require
from .contracts import READS, NewsLike, OperationLike, StoreLike, Verb
from .failures import StoreFailures
from .handlers import OperationHandlers, VerbHandler
from .openapi import openapi_document
from .problems import Policy, not_found, respond
from .request_head import header
from .status_page import HEADERS, status_page

__all__ = ["Door", "Health", "operations_app", "service_app"]

# A request that comes while the store is being opened waits for that, but no longer.
_OPENING_SECONDS = 5.0
_RETRY_SECONDS = 2.0


@dataclass(slots=True)
class Health:
    """What `/livez` and `/readyz` say; kept up to date by the composition root."""

    state: str = "starting"
    alive: Callable[[], bool] = lambda: True
    # What the start waits for, in words without ids.
    waits_for: str | None = None
    failures: StoreFailures = field(default_factory=StoreFailures)

    @property
    def ready(self) -> bool:
        """Whether requests are served, writes too."""
        return self.state == "ready" and self.failures.reason is None

    @property
    def said(self) -> str:
        """The state for whoever asks: ``unavailable`` while the store does not answer or takes no writes."""
        return "unavailable" if self.state == "ready" and not self.ready else self.state

    @property
    def reason(self) -> str | None:
        """Why it is not ready, where more is known than its state."""
        return self.waits_for if self.state == "starting" else self.failures.reason


class Door:
    """What the API's listeners serve from the moment they listen: the probes, and the store's API when that is open.

    What comes while the store is being opened is let in when it is; it is refused as soon as it is known that this
    lasts.
    """

    def __init__(self, health: Health) -> None:
        """Take what the probes say; the door is shut."""
        self._health = health
        self._inside: ASGIApp | None = None
        self._decided = anyio.Event()
        self._outside = Router(
            _probes(health, lambda scope: require(scope, "read")), redirect_slashes=False, default=self._other
        )

    def open(self, app: ASGIApp) -> None:
        """Serve everything by ``app`` from now on, and who waits too."""
        self._inside = app
        self._decided.set()

    def refuse(self) -> None:
        """Let nobody wait any more: the store is not there."""
        self._decided.set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        await (self._inside or self._outside)(scope, receive, send)

    async def _other(self, scope: Scope, receive: Receive, send: Send) -> None:
        with anyio.move_on_after(_OPENING_SECONDS):
            await self._decided.wait()
        if self._inside is None:
            reason = self._health.waits_for or "it is being opened"
            said = (
                f"the store is not open yet: {reason}; nothing was changed: the daemon goes on trying, ask again later"
            )
            raise BackendUnavailableError(said, retry_after_seconds=_RETRY_SECONDS)
        await self._inside(scope, receive, send)


class _AnyText(PathConvertor):
    # An id may hold a line break, which the framework's own ``path`` stops at.
    regex = "(?s:.*)"


register_url_convertor("any_text", _AnyText())


class _Endpoint:
    # Starlette wraps functions in Request and Response; an object is called as the ASGI app it is.
    def __init__(self, call: Callable[[Scope, Receive, Send], Awaitable[None]]) -> None:
        self._call = call

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._call(scope, receive, send)


def service_app(
    store: StoreLike,
    operations: Mapping[str, OperationLike],
    *,
    metrics: Metrics,
    verbs: Mapping[str, Verb] | None = None,
    news: NewsLike | None = None,
    health: Health,
    max_request_bytes: int,
    max_operations: int,
    deadline_ms: int,
) -> ASGIApp:
    """The API of the store.

    Args:
        store: Runs the operations.
        operations: The table; decides every `/v1/ops/` route.
        metrics: Counts what is refused before it reaches the store.
        verbs: The migration API, by path below `/v1/migration/`.
        news: Wakes who waits for items; None answers at once.
        health: What the probes say; is told how the store does.
        max_request_bytes: Larger bodies are refused with 413.
        max_operations: Bound of one batch request.
        deadline_ms: Longest wait of a request.
    """
    handlers = OperationHandlers(
        store,
        operations,
        metrics=metrics,
        limit_bytes=max_request_bytes,
        limit_operations=max_operations,
        deadline_ms=deadline_ms,
        news=news,
        failures=health.failures,
    )
    verb_handler = VerbHandler(verbs or {}, limit_bytes=max_request_bytes, failures=health.failures)
    # Of a tenth of a second of work: not at every start, once for all who ask, and beside the event loop.
    describe = functools.cache(lambda: wire.encode(openapi_document(handlers.table, verb_handler.table)))

    async def openapi(scope: Scope, receive: Receive, send: Send) -> None:
        require(scope, "read")
        await respond(send, 200, await anyio.to_thread.run_sync(describe))

    return Router(
        [
            Route("/v1/ops/{operation}", _Endpoint(handlers.operation), methods=["POST"]),
            Route("/v1/batch", _Endpoint(handlers.batch), methods=["POST"]),
            *(
                Route(path.replace("{id}", "{id:any_text}"), _Endpoint(handlers.read), methods=["GET"])
                for path in READS
            ),
            Route("/v1/migration/{verb:path}", verb_handler, methods=["GET", "POST"]),
            Route("/openapi.json", _Endpoint(openapi), methods=["GET"]),
            *_probes(health, lambda scope: require(scope, "read")),
        ],
        redirect_slashes=False,
        default=not_found,
    )


def _probes(health: Health, check: Policy) -> list[Route]:
    """`/livez` and `/readyz`, on every listener: whoever may use the socket can ask there."""

    async def livez(scope: Scope, receive: Receive, send: Send) -> None:
        check(scope)
        alive = health.alive()
        await respond(send, 200 if alive else 503, b'{"alive":true}' if alive else b'{"alive":false}')

    async def readyz(scope: Scope, receive: Receive, send: Send) -> None:
        check(scope)
        reason = health.reason
        said = {"state": health.said} if reason is None else {"state": health.said, "reason": reason}
        await respond(send, 200 if health.ready else 503, wire.encode(said))

    return [
        Route("/livez", _Endpoint(livez), methods=["GET"]),
        Route("/readyz", _Endpoint(readyz), methods=["GET"]),
    ]


def operations_app(metrics: Metrics, health: Health, board: Board) -> ASGIApp:
    """Metrics, probes, the status page and its figures: all from memory, never by a look at the store."""

    async def exposition(scope: Scope, receive: Receive, send: Send) -> None:
        text, content_type = metrics.exposition((header(scope, b"accept") or b"").decode("latin-1"))
        await respond(send, 200, text, content_type=(b"content-type", content_type.encode()))

    async def page(scope: Scope, receive: Receive, send: Send) -> None:
        text, headers = status_page()
        await respond(send, 200, text, headers, content_type=(b"content-type", b"text/html; charset=utf-8"))

    async def figures(scope: Scope, receive: Receive, send: Send) -> None:
        document = board.document(health.said, health.reason, health.failures.absent_since)
        await respond(send, 200, wire.encode(document), HEADERS)

    return Router(
        [
            Route("/", _Endpoint(page), methods=["GET"]),
            Route("/status.json", _Endpoint(figures), methods=["GET"]),
            Route("/metrics", _Endpoint(exposition), methods=["GET"]),
            *_probes(health, lambda scope: None),
        ],
        redirect_slashes=False,
        default=not_found,
    )
