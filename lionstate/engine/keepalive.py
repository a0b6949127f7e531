"""TCP keepalives of our own connections to a server: what died without a word is noticed in bounded time."""

from __future__ import annotations

import contextlib
import os
import socket
from typing import Any, Final

__all__ = ["OPTIONS", "keep_alive"]

OPTIONS: Final = {"TCP_KEEPIDLE": 10, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 30_000}
"""Seconds of silence, seconds between probes, probes; milliseconds that sent data may stay unacknowledged."""


def keep_alive(driver: Any, _record: object) -> None:
    """Let the kernel end a connection whose other end is gone, within 30 s; else a read would wait for ever.

    Options that the platform lacks are left out.
    """
    found = driver.driver_connection._transport.get_extra_info("socket")
    if found is None or found.family == socket.AF_UNIX:
        return
    # A duplicate: loops hand out sockets on which not everything may be called.
    with contextlib.closing(socket.socket(fileno=os.dup(found.fileno()))) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in OPTIONS.items():
            if hasattr(socket, name):
                sock.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)
