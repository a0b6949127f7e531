"""The status page: three files put into one document, whose policy allows that one style and that one script."""

from __future__ import annotations

import base64
import functools
import hashlib
from importlib.resources import files
from typing import Final

__all__ = ["HEADERS", "status_page"]

Headers = tuple[tuple[bytes, bytes], ...]
# Of the page and of its figures.
HEADERS: Final[Headers] = (
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-resource-policy", b"same-origin"),
)


@functools.cache
def status_page() -> tuple[bytes, Headers]:
    """The document and its headers. Cost: three files read once a process."""
    style, script, document = (_part(name) for name in ("page.css", "page.js", "page.html"))
    policy = (
        "default-src 'none'; "
        f"style-src {_hash(style)}; script-src {_hash(script)}; "
        "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    text = document.replace("/* style */", style).replace("/* script */", script)
    return text.encode(), ((b"content-security-policy", policy.encode()), *HEADERS)


def _part(name: str) -> str:
    return files(__package__).joinpath("page", name).read_text("utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
