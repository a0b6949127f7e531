"""Times as people type them."""

from __future__ import annotations

import datetime
import re
import time

from lionstate.errors import InvalidInputError

__all__ = ["time_of"]

_UNITS = {"s": 1.0, "m": 60.0, "h": 3_600.0, "d": 86_400.0}
_LENGTH = re.compile(r"(\d+(?:\.\d+)?)([smhd])", re.ASCII)


def time_of(text: str) -> float:
    """Epoch seconds of a time to come: a length from now (``90s``, ``30m``, ``2h``, ``3d``) or an ISO 8601 time.

    A time without a zone is local.

    Raises:
        InvalidInputError: Neither of the two, or past.
    """
    now = time.time()
    length = _LENGTH.fullmatch(text)
    if length is not None:
        return now + float(length[1]) * _UNITS[length[2]]
    try:
        found = datetime.datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError, OSError):
        raise InvalidInputError("a time is a length such as 30m, 2h or 3d, or like 2026-01-31T12:00") from None
    if found <= now:
        raise InvalidInputError("that time has passed")
    return found
