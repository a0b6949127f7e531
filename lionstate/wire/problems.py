"""Errors as problem documents (RFC 9457), and back."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import msgspec

from lionstate.errors import (
    AccessDeniedError,
    BackendBusyError,
    BackendUnavailableError,
    ClosedError,
    ConflictError,
    DeadlineExceededError,
    InvalidInputError,
    NotFoundError,
    OutcomeUnknownError,
    OverloadedError,
    ProgressionError,
    SchemaError,
    StateError,
    WireError,
    error_from_code,
)

__all__ = ["decode_problem", "error_from_problem", "problem"]

_TYPE_PREFIX = "urn:lionstate:problem:"
_NOT_WRITTEN = (
    AccessDeniedError,
    InvalidInputError,
    NotFoundError,
    ConflictError,
    ProgressionError,
    OverloadedError,
    DeadlineExceededError,
    BackendBusyError,
    BackendUnavailableError,
    SchemaError,
    ClosedError,
)


def problem(error: StateError, *, request_id: str | None = None, status: int | None = None) -> dict[str, Any]:
    """Describe an error as a problem document (RFC 9457).

    Args:
        error: What happened.
        request_id: Names the request in the logs.
        status: HTTP status where it is finer than the one of the error's class.
    Returns:
        `type`, `title`, `status`, `detail`, `code`; where known `reason`, `retry_after_seconds`,
        `request_id`, `replayed` (true), and `outcome` (`not_written` or `unknown`).
    """
    document: dict[str, Any] = {
        "type": _TYPE_PREFIX + error.code,
        "title": HTTPStatus(status or error.http_status).phrase,
        "status": status or error.http_status,
        "detail": str(error),
        "code": error.code,
    }
    if isinstance(error, OutcomeUnknownError):
        document["outcome"] = "unknown"
    elif isinstance(error, _NOT_WRITTEN):
        document["outcome"] = "not_written"
    optional = {
        "reason": getattr(error, "reason", None),
        "retry_after_seconds": getattr(error, "retry_after_seconds", None),
        "replayed": error.replayed or None,
        "request_id": request_id,
    }
    document.update({name: value for name, value in optional.items() if value is not None})
    return document


def error_from_problem(document: object) -> StateError:
    """Build the exception that a problem document describes; WireError if it is none."""
    if not isinstance(document, Mapping) or not isinstance(document.get("code"), str):
        return WireError("the daemon answered with an error that is not a problem document")
    detail, reason = document.get("detail"), document.get("reason")
    error = error_from_code(
        document["code"],
        detail if isinstance(detail, str) else "",
        reason=reason if isinstance(reason, str) else None,
    )
    retry = document.get("retry_after_seconds")
    if isinstance(retry, (int, float)):
        error.retry_after_seconds = float(retry)
    error.replayed = document.get("replayed") is True
    return error


def decode_problem(body: bytes) -> StateError:
    """Build the exception that the body of a failed answer describes."""
    try:
        return error_from_problem(msgspec.json.decode(body))
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        return error_from_problem(None)
