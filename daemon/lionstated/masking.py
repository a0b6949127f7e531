"""Passwords of URLs: masked where a URL is shown, and taken out of the process list, before anything is imported."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence

__all__ = ["hide_passwords", "mask_url"]

# Up to the last @: a password that was not escaped may hold anything.
_USER_INFO = re.compile(r"(:/+[^:@]*:).*(?=@)", re.DOTALL)
_PARAMETER = re.compile(r"(password\s*=\s*)[^&]+", re.IGNORECASE)
# Flags whose value may hold a password, and the variable that takes it instead.
_SECRET_FLAGS = {
    "--database-url": "LIONSTATE_DATABASE__URL",
    "--database-replica-url": "LIONSTATE_DATABASE__REPLICA_URL",
}


def mask_url(url: str) -> str:
    """The URL, or what was meant to be one, with its passwords replaced by asterisks; in doubt too much of it."""
    return _PARAMETER.sub(r"\1***", _USER_INFO.sub(r"\1***", url))


def hide_passwords(command: Sequence[str]) -> None:
    """Start again with a URL that has a password in the environment: everybody can read arguments."""
    kept: list[str] = []
    secrets: dict[str, str] = {}
    parts = iter(command)
    for part in parts:
        flag, equals, value = part.partition("=")
        url = (value if equals else next(parts, "")) if flag in _SECRET_FLAGS else None
        if url is None or mask_url(url) == url:
            kept += [part] if url is None or equals else [part, url]
        else:
            secrets[_SECRET_FLAGS[flag]] = url
    if secrets:
        os.environ.update(secrets)
        os.execv(sys.executable, kept)
