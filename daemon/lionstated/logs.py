"""Logs: one JSON object a line on stderr, ours and those of the libraries below.

Texts of unexpected exceptions are left out, since they may quote stored content; class and place are kept.
"""

from __future__ import annotations

import logging
import sys
import time
import traceback
from collections.abc import MutableMapping
from contextvars import ContextVar
from typing import Any, TextIO

import structlog

from lionstate.errors import StateError

__all__ = ["LOGGED_REQUEST_ID", "Seldom", "configure", "get_logger", "is_configured", "set_level", "utc"]

_NAME = "lionstated"

LOGGED_REQUEST_ID: ContextVar[str] = ContextVar("lionstated_request_id")
"""The name of the request that is served, for every line that is written meanwhile."""


def utc(epoch_seconds: float) -> str:
    """A moment as the log writes it, to the second."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(epoch_seconds))


def _add_request_id(logger: object, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    # structlog's own bound variables take ten times as long to set, at every request.
    if (found := LOGGED_REQUEST_ID.get("")) and "request_id" not in event:
        event["request_id"] = found
    return event


def _safe_exception(logger: object, method: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    info = event.pop("exc_info", None)
    if info is True:
        info = sys.exc_info()
    error = info[1] if isinstance(info, tuple) else info
    if isinstance(error, BaseException):
        frames = traceback.extract_tb(error.__traceback__)[-8:]
        event["error"] = type(error).__qualname__
        event["at"] = [f"{frame.filename.rsplit('/', 1)[-1]}:{frame.lineno} {frame.name}" for frame in frames]
        if isinstance(error, StateError):
            event["code"] = error.code
    return event


def configure(level: str = "info", format: str = "json", stream: TextIO | None = None) -> None:
    """Set up structlog and the standard library's logging for the whole process.

    Args:
        level: `debug`, `info`, `warning` or `error`.
        format: `json`, or `console` for people.
        stream: stderr by default.
    """
    shared: list[structlog.typing.Processor] = [
        _add_request_id,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        _safe_exception,
    ]
    renderer: structlog.typing.Processor = (
        structlog.processors.JSONRenderer()
        if format == "json"
        else structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback)
    )
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    # Its own exception texts are tracebacks with values; the API reports what matters itself.
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)
    set_level(level)


def is_configured() -> bool:
    """Whether `configure` was called."""
    return structlog.is_configured()


def set_level(level: str) -> None:
    """Change the level of the daemon's own logs while it runs."""
    logging.getLogger(_NAME).setLevel(level.upper())


def get_logger() -> structlog.stdlib.BoundLogger:
    """The daemon's logger."""
    logger: structlog.stdlib.BoundLogger = structlog.stdlib.get_logger(_NAME)
    return logger


class Seldom:
    """For what may come a thousand times a second: lets one line pass in a time and counts the others."""

    def __init__(self, seconds: float) -> None:
        """Take the time between two lines."""
        self._seconds = seconds
        self._told = float("-inf")
        self._since = 0

    def due(self) -> int:
        """How often it came since the last line, this time counted; 0 while no line is due."""
        self._since += 1
        now = time.monotonic()
        if now - self._told < self._seconds:
            return 0
        count, self._told, self._since = self._since, now, 0
        return count
