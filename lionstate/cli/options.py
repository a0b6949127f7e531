"""The options that every command shares, and the run of a command on the store they name.

Imports nothing heavy: ``--help`` must not wait for a database library.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Awaitable, Callable
from datetime import datetime
from typing import Annotated, Any, TypeAlias, TypeVar

import typer

from lionstate.errors import InvalidInputError

__all__ = [
    "Daemon",
    "Json",
    "Reason",
    "Token",
    "Until",
    "Url",
    "Where",
    "moment",
    "one_or_all",
    "run_on",
    "run_on_migration",
]

R = TypeVar("R")

Where: TypeAlias = tuple[str | None, str | None, str | None]
"""The values of ``--url``, ``--daemon`` and ``--token``."""

Url = Annotated[
    str | None,
    typer.Option("--url", envvar="LIONSTATE_DATABASE__URL", help="The store: a file or a URL.", show_default=False),
]
Daemon = Annotated[
    str | None,
    typer.Option("--daemon", envvar="LIONSTATE_DAEMON", help="A daemon: unix:/path or http://host:port."),
]
Token = Annotated[str | None, typer.Option("--token", envvar="LIONSTATE_TOKEN", help="The daemon's bearer token.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object for machines.")]
Reason = Annotated[str | None, typer.Option("--reason", help="Why; kept in the audit trail.")]
Until = Annotated[
    str | None,
    typer.Option("--until", help="When it ends by itself: 90s, 30m, 2h, 1d from now, or a time as 2030-01-31T18:00."),
]

_DURATION = re.compile(r"(\d{1,9})([smhd])", re.ASCII)
_UNIT_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86_400.0}


def one_or_all(progression_id: str | None, everything: bool, option: str = "--all") -> None:
    """Refuse a command that names no progression and does not ask for all, or does both.

    Raises:
        InvalidInputError: Neither or both.
    """
    if (progression_id is None) != everything:
        raise InvalidInputError(f"name one progression, or say {option}")


def moment(until: str | None) -> float | None:
    """The epoch seconds that ``--until`` names; a time without a zone is local.

    Raises:
        InvalidInputError: It names no time, or one that is past.
    """
    if until is None:
        return None
    now = time.time()
    duration = _DURATION.fullmatch(until)
    if duration is not None:
        return now + int(duration[1]) * _UNIT_SECONDS[duration[2]]
    try:
        at = datetime.fromisoformat(until).timestamp()
    except (ValueError, OverflowError, OSError) as error:
        raise InvalidInputError("--until is 90s, 30m, 2h or 1d from now, or a time as 2030-01-31T18:00") from error
    if at <= now:
        raise InvalidInputError("--until names a time that is past")
    return at


def run_on(where: Where, work: Callable[[Any], Awaitable[R]], *, reads: bool = False, alone: bool = False) -> R:
    """Open the store or its daemon, do the work with its facade, close it; Ctrl-C ends it early.

    Args:
        reads: The work only looks: a store opened here is left exactly as it is.
        alone: The work is for the one process that writes the file; a daemon on the store is refused.
    """
    from lionstate.cli.interrupt import run_until_interrupted
    from lionstate.cli.target import Target, open_target

    target = Target(*where)
    if alone:
        target.refuse_a_daemon()

    async def run() -> R:
        async with open_target(target, reads=reads) as state:
            return await work(state)

    return run_until_interrupted(run())


def run_on_migration(where: Where, work: Callable[[Any], Awaitable[R]], *, reads: bool = False) -> R:
    """As `run_on`, with the migration service of the store or daemon; one opened here signs as the OS user."""

    def migrate(state: Any) -> Awaitable[R]:
        from lionstate.db import StateDB
        from lionstate.migration import ProgressionMigrationService, user_name

        if isinstance(state, StateDB):
            return work(ProgressionMigrationService(state.store, actor=user_name(os.geteuid())))
        return work(state.migration)

    return run_on(where, migrate, reads=reads)
