"""The service manager's notification socket (sd_notify) and its watchdog."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Callable

import anyio

__all__ = ["Notifier", "tell_status", "watchdog", "watchdog_interval_seconds"]


class Notifier:
    """Sends state lines to `$NOTIFY_SOCKET`; does nothing where there is none."""

    def __init__(self, address: str | None = None) -> None:
        """Take the address, by default the one of the environment."""
        self._address = address if address is not None else os.environ.get("NOTIFY_SOCKET", "")

    def send(self, *lines: str) -> bool:
        """Send one datagram; False if nobody listens. Never raises: the service works without its manager."""
        if not self._address:
            return False
        address = "\0" + self._address[1:] if self._address.startswith("@") else self._address
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
            sock.setblocking(False)
            sock.sendto("\n".join(lines).encode(), address)
            return True
        return False

    def ready(self, status: str) -> bool:
        """Say that the API answers."""
        return self.send("READY=1", f"STATUS={status}")

    def status(self, text: str) -> bool:
        """Say in a line what is going on."""
        return self.send(f"STATUS={text}")

    def starting(self, text: str, seconds: float) -> bool:
        """Say what the start is at, and ask for so many seconds more."""
        return self.send(f"STATUS={text}", f"EXTEND_TIMEOUT_USEC={_microseconds(seconds)}")

    def stopping(self, seconds: float) -> bool:
        """Say that shutdown began, and ask for as long as it may take."""
        return self.send("STOPPING=1", "STATUS=draining", f"EXTEND_TIMEOUT_USEC={_microseconds(seconds)}")

    def reloading(self) -> bool:
        """Say that settings are being read again; `ready` ends it."""
        return self.send("RELOADING=1")

    def ping(self) -> bool:
        """Tell the watchdog that all is well."""
        return self.send("WATCHDOG=1")


def _microseconds(seconds: float) -> int:
    return int(seconds * 1_000_000)


def watchdog_interval_seconds() -> float | None:
    """Half of the period that the service manager asks for; None if it asks for none of this process."""
    period = os.environ.get("WATCHDOG_USEC", "")
    pid = os.environ.get("WATCHDOG_PID", "")
    if not period.isdecimal() or int(period) == 0 or (pid and pid != str(os.getpid())):
        return None
    return int(period) / 1_000_000 / 2


async def watchdog(notifier: Notifier, interval_seconds: float, alive: Callable[[], bool]) -> None:
    """Ping for as long as `alive` says that the writer answers, for ever."""
    while True:
        if alive():
            notifier.ping()
        await anyio.sleep(interval_seconds)


async def tell_status(notifier: Notifier, interval_seconds: float, text: Callable[[], str]) -> None:
    """Send what ``text`` says whenever that differs from what it said before, for ever."""
    told = text()
    while True:
        await anyio.sleep(interval_seconds)
        if (now := text()) != told:
            told = now
            notifier.status(now)
