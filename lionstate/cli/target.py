"""Which store a command works on: a daemon's, or one that this process opens itself."""

from __future__ import annotations

import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from lionstate.client import StateClient, Transport
from lionstate.db import StateDB
from lionstate.engine import EngineSettings, StoreURL
from lionstate.engine.ownership import StoreLock
from lionstate.errors import (
    BackendUnavailableError,
    DaemonUnreachableError,
    InvalidInputError,
    OwnershipConflictError,
    StateError,
)

__all__ = ["Target", "open_target"]

# As long as `health` waits: the answer is made from memory, whatever the store does.
_ANSWER_SECONDS = 5.0


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
        """The daemon to talk to: the one named, else one that answers beside the store file, else None.

        Raises:
            InvalidInputError: Neither a store nor a daemon is named.
            BackendUnavailableError: The store is a file that does not exist; a command never creates one.
            OwnershipConflictError: A daemon owns the store and does not answer beside it.
        """
        if self.daemon:
            return self.daemon if "://" in self.daemon or self.daemon.startswith("unix:") else f"unix:{self.daemon}"
        if not self.url:
            raise InvalidInputError(
                "no store given: pass --url STORE or --daemon ADDRESS (or set LIONSTATE_DATABASE__URL)"
            )
        path = StoreURL.of(self.url).path
        if path is None:
            return None
        beside = f"{path}.sock"
        if _answers(beside):
            return f"unix:{beside}"
        _refuse_what_is_owned(path)
        return None

    def refuse_a_daemon(self) -> None:
        """Refuse a store that a daemon owns, for work that only the one process that writes it may do.

        Raises:
            OwnershipConflictError: A daemon owns the store.
        """
        address = self.daemon_address()
        if address is not None:
            raise OwnershipConflictError(
                f"a daemon owns the store and answers at {address}: it looks after the file itself;"
                " stop it to work on the file without it"
            )


def _answers(path: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(2.0)
        try:
            probe.connect(path)
        except OSError:
            return False
    return True


def _refuse_what_is_owned(path: Path) -> None:
    if path.is_dir():
        raise BackendUnavailableError("the store path is a folder")
    if not path.exists():
        raise BackendUnavailableError(f"there is no store at {path}")
    owner = StoreLock(path).owner()
    if owner is not None:
        raise OwnershipConflictError(
            f"the store is owned by process {owner}, which does not answer at {path}.sock:"
            " name its address with --daemon"
        )


@asynccontextmanager
async def open_target(target: Target, *, reads: bool = False) -> AsyncIterator[StateClient | StateDB]:
    """The client of the daemon, or the store opened here.

    A daemon that does not answer at all is asked for nothing: a request would wait as long as its work may take.

    Args:
        reads: Only look: a store opened here is left exactly as it is, without lionstate's own tables if it has none.
    Raises:
        DaemonUnreachableError: The daemon has the connection and does not answer; its cause is a ``TimeoutError``.
        UnrecognizedStoreError: There is no store yet; a command makes none, whatever it is to do.
    """
    address = target.daemon_address()
    if address is not None:
        await _require_answer(address, target)
        async with StateClient(address, token=target.token) as client:
            yield client
        return
    assert target.url is not None
    settings = EngineSettings(sqlite_module="auto", readonly=reads, tidy=reads, must_exist=True)
    async with StateDB(url=target.url, settings=settings) as state:
        yield state


async def _require_answer(address: str, target: Target) -> None:
    """Any answer will do, a refusal too; who is not there at all is told by the request itself."""
    probe = Transport(address, token=target.token, timeout=_ANSWER_SECONDS)
    await probe.open()
    try:
        await probe.get("/livez", deadline=time.monotonic() + _ANSWER_SECONDS)
    except DaemonUnreachableError as error:
        if not isinstance(error.__cause__, TimeoutError):
            return
        owner = _owner_behind(address, target)
        who = "a daemon" if owner is None else f"process {owner} owns the store, and"
        raise DaemonUnreachableError(
            f"{who} does not answer at {address} within {_ANSWER_SECONDS:g} s: it is stopped or frozen, or its machine"
            " is overloaded; nothing was asked of it"
        ) from error.__cause__
    except StateError:
        return
    finally:
        await probe.close()


def _owner_behind(address: str, target: Target) -> str | None:
    """The process that owns the store of a daemon whose socket is beside it; None where that cannot be told."""
    path = StoreURL.of(target.url).path if target.url else None
    if path is None and address.startswith("unix:") and address.endswith(".sock"):
        path = Path(address.removeprefix("unix:").removeprefix("//").removesuffix(".sock"))
    return None if path is None else StoreLock(path).owner()
