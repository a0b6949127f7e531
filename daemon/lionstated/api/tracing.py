"""A name for every request, in the answer and in the log, and one line in the log for some of them."""

from __future__ import annotations

import os
import random
import re
import time
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send

from ..logs import LOGGED_REQUEST_ID, Seldom, get_logger
from .request_head import header

__all__ = ["REQUEST_ID", "AccessLog", "Traced", "call_it", "name_request", "request_id_of"]

REQUEST_ID = b"lionstate-request-id"
_ID = "lionstate.request_id"
_WHAT = "lionstate.what"
_FORM = re.compile(rb"[A-Za-z0-9._-]{1,64}")
_FAILED_SECONDS = 1.0


def call_it(scope: Scope, what: str) -> None:
    """Say in a name of ours what a request is; its address may hold ids."""
    scope[_WHAT] = what


def name_request(scope: Scope) -> str:
    """Give a request its name, once: the caller's `Lionstate-Request-Id` where that is one, else one of ours."""
    if _ID not in scope:
        given = header(scope, REQUEST_ID)
        scope[_ID] = given.decode() if given is not None and _FORM.fullmatch(given) else os.urandom(8).hex()
    found: str = scope[_ID]
    return found


def request_id_of(scope: Scope) -> str:
    """The request's name; a fresh one outside a listener."""
    found: str = scope.get(_ID) or os.urandom(8).hex()
    return found


class AccessLog:
    """Writes a sample of the answers, and of the failures (5xx) one a second with the number of those in between."""

    def __init__(self, ratio: float) -> None:
        """Take the share of answers to write."""
        self.ratio = ratio
        self._failures = Seldom(_FAILED_SECONDS)

    def note(self, listener: str, scope: Scope, status: int, seconds: float) -> None:
        """Look at one answer; status 0 is one that was never sent."""
        failures = self._failures.due() if status >= 500 else 0
        if not failures and random.random() >= self.ratio:
            return
        facts: dict[str, Any] = {"failures": failures} if failures else {}
        get_logger().info(
            "request",
            listener=listener,
            method=scope["method"],
            what=scope.get(_WHAT),
            status=status,
            seconds=round(seconds, 6),
            **facts,
        )


class Traced:
    """Gives each request its name, and its answer and log lines too."""

    def __init__(self, app: ASGIApp, listener: str, log: AccessLog) -> None:
        """Wrap the app of a listener."""
        self._app = app
        self._listener = listener
        self._log = log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            return
        request_id = name_request(scope)
        LOGGED_REQUEST_ID.set(request_id)
        began, status = time.monotonic(), 0

        async def named(message: Any) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                message["headers"].append((REQUEST_ID, request_id.encode()))
            await send(message)

        try:
            await self._app(scope, receive, named)
        finally:
            self._log.note(self._listener, scope, status, time.monotonic() - began)
