"""Connects to the one of several PostgreSQL servers that takes writes; a server that does not answer costs seconds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lionstate.errors import BackendUnavailableError, InvalidInputError

__all__ = ["HOST_SECONDS", "Hosts", "seconds_of"]

HOST_SECONDS = 5.0
"""How long each of several hosts may take to accept a connection, unless the URL says otherwise."""


def seconds_of(text: str) -> float:
    """The URL's ``connect_timeout``, which holds for each host; refused unless it is a number of seconds from 1 on."""
    if not text.isdecimal() or int(text) < 1:
        raise InvalidInputError("connect_timeout is a whole number of seconds, at least 1")
    return float(text)


class Hosts:
    """Where the connections of one pool go: the host that served last is asked first, then the others in their order.

    asyncpg tries several hosts too, within one time limit for all: a machine that is off uses it up, and its standby is
    never asked.
    """

    def __init__(self) -> None:
        """Begin with the first one."""
        self._first = 0

    async def connect(self, *, host: Sequence[str], port: Sequence[int], **arguments: Any) -> Any:
        """A connection of asyncpg, whose other arguments these are.

        Raises:
            BackendUnavailableError: No host takes writes; it says of each why.
        """
        # Users of SQLite never load it.
        import asyncpg

        passing = (
            OSError,
            asyncpg.PostgresConnectionError,
            asyncpg.InsufficientResourcesError,
            asyncpg.OperatorInterventionError,
            asyncpg.TargetServerAttributeNotMatched,
        )
        met: dict[int, str] = {}
        for step in range(len(host)):
            place = (self._first + step) % len(host)
            try:
                found = await asyncpg.connect(host=host[place], port=port[place], **arguments)
            except passing as error:
                is_standby = isinstance(error, asyncpg.TargetServerAttributeNotMatched)
                met[place] = "read-only" if is_standby else type(error).__name__
            else:
                self._first = place
                return found
        told = ", ".join(f"host {place + 1}: {met[place]}" for place in sorted(met))
        raise BackendUnavailableError(f"no host of the database's URL takes writes ({told})")
