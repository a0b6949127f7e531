"""What a request says before its body: headers, path and query."""

from __future__ import annotations

from urllib.parse import parse_qsl, quote, unquote_to_bytes

from starlette.types import Scope

from lionstate.engine.replicas import require_lag
from lionstate.errors import InvalidInputError

from .contracts import MAX_WAIT_SECONDS

__all__ = ["header", "key_of", "lag_of", "progression_id_of", "query_of", "wait_seconds_of"]


def header(scope: Scope, name: bytes) -> bytes | None:
    """The first header of that lower-case name."""
    # No generator: it costs more than the loop, and a request asks for five.
    for key, value in scope["headers"]:
        if key == name:
            found: bytes = value
            return found
    return None


def progression_id_of(scope: Scope, *, is_page: bool) -> str:
    """The id in the path of a progression, or of its items.

    Raises:
        InvalidInputError: It is no percent-encoded UTF-8.
    """
    # Not of the matched route: a line break at the end of an id is nothing to a regular expression.
    raw: bytes = scope.get("raw_path") or quote(scope["path"]).encode()
    try:
        path = unquote_to_bytes(raw).decode()
    except UnicodeDecodeError as exc:
        raise InvalidInputError("the path is not percent-encoded UTF-8") from exc
    found = path.removeprefix("/v1/progressions/")
    return found.removesuffix("/items") if is_page else found


def key_of(scope: Scope) -> str | None:
    """The idempotency key; None without one.

    Raises:
        InvalidInputError: There are several.
    """
    found = [value for name, value in scope["headers"] if name == b"idempotency-key"]
    if len(found) > 1:
        raise InvalidInputError("Idempotency-Key is given twice, and which one counts is not said; nothing was done")
    return found[0].decode("latin-1") if found else None


def lag_of(scope: Scope) -> float | None:
    """Seconds that the answer of a read may be old; None: not at all.

    Raises:
        InvalidInputError: The header says something else.
    """
    given = header(scope, b"lionstate-stale-ok")
    if given is None:
        return None
    try:
        return require_lag(float(given))
    except (ValueError, InvalidInputError):
        raise InvalidInputError("Lionstate-Stale-Ok must be a number of seconds, 1 to 86400") from None


def query_of(scope: Scope) -> dict[str, str]:
    """The query by name.

    Raises:
        InvalidInputError: It is no query, or has a name twice.
    """
    try:
        pairs = parse_qsl(scope["query_string"].decode("ascii"), keep_blank_values=True, errors="strict")
    except (UnicodeDecodeError, ValueError) as exc:
        raise InvalidInputError("the query string is not valid") from exc
    found = dict(pairs)
    if len(found) != len(pairs):
        raise InvalidInputError("a name stands twice in the query string, and which one counts is not said")
    return found


def wait_seconds_of(query: dict[str, str]) -> float:
    """Take ``wait_seconds`` out of a query; 0 without it.

    Raises:
        InvalidInputError: It is out of bounds.
    """
    try:
        seconds = float(query.pop("wait_seconds", "0"))
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= MAX_WAIT_SECONDS:
        raise InvalidInputError(f"wait_seconds must be 0 to {MAX_WAIT_SECONDS}")
    return seconds
