"""The options that every command shares, and the run of a command on the store they name."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Any, TypeVar

import typer

from lionstate.cli.interrupt import run_until_interrupted
from lionstate.cli.target import Target, open_target

__all__ = ["Daemon", "Json", "Reason", "Token", "Url", "run_on"]

R = TypeVar("R")

Url = Annotated[
    str | None,
    typer.Option("--url", envvar="LIONSTATE_DATABASE__URL", help="The store: a file or a URL.", show_default=False),
]
Daemon = Annotated[
    str | None,
    typer.Option("--daemon", envvar="LIONSTATE_DAEMON", help="A daemon: unix:/path or http://host:port."),
]
Token = Annotated[str | None, typer.Option("--token", envvar="LIONSTATE_TOKEN", help="The daemon's bearer token.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON for machines.")]
Reason = Annotated[str | None, typer.Option("--reason", help="Why; kept in the audit trail.")]


def run_on(target: Target, work: Callable[[Any], Awaitable[R]]) -> R:
    """Open the store or its daemon, do the work with its facade, close it; Ctrl-C ends it early."""

    async def run() -> R:
        async with open_target(target) as state:
            return await work(state)

    return run_until_interrupted(run())
