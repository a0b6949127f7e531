"""Errors as HTTP answers: problem documents with a bounded code, and the guard around every route."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Receive, Scope, Send

from lionstate import wire
from lionstate.errors import AccessDeniedError, InvalidInputError, NotFoundError, StateError

from ..logs import get_logger
from .tracing import request_id_of

__all__ = ["REPLAYED", "Guard", "HttpProblem", "Policy", "respond", "respond_problem"]

Policy = Callable[[Scope], None]
Headers = Iterable[tuple[bytes, bytes]]
# On the kept answer of an earlier call with the same idempotency key.
REPLAYED: tuple[bytes, bytes] = (b"idempotency-replayed", b"true")
_JSON: tuple[bytes, bytes] = (b"content-type", b"application/json")
_PROBLEM: tuple[bytes, bytes] = (b"content-type", b"application/problem+json")


class HttpProblem(Exception):
    """An error whose HTTP status is finer than the one of its class."""

    def __init__(self, error: StateError, status: int, headers: Headers = ()) -> None:
        """Build it from the error to report, the status, and headers of the answer."""
        self.error = error
        self.status = status
        self.headers = tuple(headers)
        super().__init__(str(error))


async def respond(
    send: Send, status: int, body: bytes, headers: Headers = (), *, content_type: tuple[bytes, bytes] = _JSON
) -> None:
    """Send a whole answer."""
    all_headers = [content_type, (b"content-length", str(len(body)).encode()), *headers]
    await send({"type": "http.response.start", "status": status, "headers": all_headers})
    await send({"type": "http.response.body", "body": body})


async def respond_problem(
    send: Send, error: StateError, *, status: int | None = None, headers: Headers = (), request_id: str = ""
) -> None:
    """Send an error as a problem document, with Retry-After where that is known."""
    all_headers = list(headers)
    if error.retry_after_seconds is not None:
        all_headers.append((b"retry-after", str(math.ceil(error.retry_after_seconds)).encode()))
    if error.replayed:
        all_headers.append(REPLAYED)
    document = wire.problem(error, request_id=request_id or None, status=status)
    await respond(send, document["status"], wire.encode(document), all_headers, content_type=_PROBLEM)


class Guard:
    """Checks who calls, and turns whatever the routes raise into a problem document."""

    def __init__(self, app: ASGIApp, policy: Policy | None = None) -> None:
        """Wrap `app`; without a policy everybody who reaches the listener may call."""
        self._app = app
        self._policy = policy

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            return
        # Starlette raises what it would otherwise answer as plain text only if it finds an app here.
        scope["app"] = self
        try:
            if self._policy is not None:
                self._policy(scope)
            await self._app(scope, receive, send)
        except HttpProblem as exc:
            await respond_problem(send, exc.error, status=exc.status, headers=exc.headers)
        except AccessDeniedError as exc:
            await respond_problem(send, exc, headers=[(b"www-authenticate", b"Bearer")])
        except StateError as exc:
            await respond_problem(send, exc)
        except HTTPException as exc:
            headers = [(k.lower().encode(), v.encode()) for k, v in (exc.headers or {}).items()]
            error = NotFoundError("no such address") if exc.status_code == 404 else InvalidInputError(exc.detail)
            await respond_problem(send, error, status=exc.status_code, headers=headers)
        except Exception:
            request_id = request_id_of(scope)
            get_logger().error("request_failed", request_id=request_id, exc_info=True)
            await respond_problem(send, StateError("internal error"), request_id=request_id)


async def not_found(scope: Scope, receive: Receive, send: Send) -> None:
    """The route of everything that has none."""
    raise NotFoundError("no such address")
