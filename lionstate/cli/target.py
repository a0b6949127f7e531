"""Which store a command works on: a daemon's, or one that this process opens itself."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from lionstate.client import StateClient
from lionstate.db import StateDB
from lionstate.engine import EngineSettings, StoreURL
from lionstate.errors import InvalidInputError

__all__ = ["Target", "open_target"]


@dataclass(frozen=True, slots=True)
class Target:
    """What the options of a command name.

    Attributes:
        url: A store: path or URL.
        daemon: A daemon: ``unix:/path`` or ``http://host:port``.
        token: The daemon's bearer token.
    """

    url: str | None
    daemon: str | None
    token: str | None

    def daemon_address(self) -> str | None:
        """The daemon to talk to: the one named, else one that answers beside the store file, else None."""
        if self.daemon is not None:
            return self.daemon if "://" in self.daemon or self.daemon.startswith("unix:") else f"unix:{self.daemon}"
        if self.url is None:
            raise InvalidInputError(
                "no store given: pass --url STORE or --daemon ADDRESS (or set LIONSTATE_DATABASE__URL)"
            )
        path = StoreURL.of(self.url).path
        if path is None:
            return None
        beside = f"{path}.sock"
        return f"unix:{beside}" if _answers(beside) else None


def _answers(path: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(2.0)
        try:
            probe.connect(path)
        except OSError:
            return False
    return True


@asynccontextmanager
async def open_target(target: Target) -> AsyncIterator[StateDB | StateClient]:
    """Open the daemon's client or the store itself."""
    address = target.daemon_address()
    if address is not None:
        async with StateClient(address, token=target.token) as client:
            yield client
        return
    assert target.url is not None
    async with StateDB(url=target.url, settings=EngineSettings(sqlite_module="auto")) as state:
        yield state
