"""The verbs of ``lionstate progression-migrate`` (ADR-0117 D5, design decision 31)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, TypeVar

import typer

from lionstate.cli import render
from lionstate.cli.target import Target, open_target
from lionstate.errors import InvalidInputError
from lionstate.migration import StopReason, VerificationOutcome

__all__ = ["app"]

R = TypeVar("R")

app = typer.Typer(help="Move progressions from JSON to items while the store serves.", no_args_is_help=True)

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

_BLOCKED, _MISMATCH, _NOT_APPLICABLE, _BUSY = 8, 6, 7, 5


def _with_service(target: Target, work: Callable[[Any], Awaitable[R]]) -> R:
    async def run() -> R:
        async with open_target(target) as runner:
            return await work(runner.migration)

    return asyncio.run(run())


@app.command()
def status(
    url: Url = None,
    daemon: Daemon = None,
    token: Token = None,
    limit: Annotated[int, typer.Option(help="How many of the hottest progressions to list.")] = 10,
    as_json: Json = False,
) -> None:
    """Counts by phase, what remains, what is blocked or held, and which progressions are hottest."""
    found = _with_service(Target(url, daemon, token), lambda service: service.status(limit=limit))
    render.status(found, as_json=as_json)


@app.command()
def step(
    url: Url = None,
    daemon: Daemon = None,
    token: Token = None,
    progression: Annotated[str | None, typer.Option(help="Work on this progression only.")] = None,
    max_items: Annotated[int, typer.Option(help="Elements to copy in one step.")] = 500,
    max_bytes: Annotated[int, typer.Option(help="Bytes of ids to copy in one step.")] = 4 * 1024 * 1024,
    max_seconds: Annotated[float, typer.Option(help="Time of one step.")] = 1.0,
    until_done: Annotated[bool, typer.Option("--until-done", help="Step until nothing is left to do.")] = False,
    accept_foreign_writers: Annotated[
        bool, typer.Option("--accept-foreign-writers", help="Cut over although another program writes this store.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Do a bounded piece of migration: admit, copy, prove, cut over."""
    caps = {"max_items": max_items, "max_bytes": max_bytes, "max_seconds": max_seconds}

    async def work(service: Any) -> list[Any]:
        if accept_foreign_writers:
            await service.set_accept_foreign_writers(True, reason="--accept-foreign-writers")
        if not until_done:
            return [await service.step(progression_id=progression, **caps)]
        return await _until_done(service, progression, caps, show=not as_json)

    steps = _with_service(Target(url, daemon, token), work)
    render.steps(steps, as_json=as_json)
    raise typer.Exit(_exit_code(steps[-1], progression))


async def _until_done(service: Any, progression: str | None, caps: dict[str, Any], *, show: bool) -> list[Any]:
    steps: list[Any] = []
    status = await service.status(limit=1)
    with render.progress(status, show=show) as advance:
        while True:
            steps.append(await service.step(progression_id=progression, **caps))
            advance(await service.status(limit=1))
            if steps[-1].stop_reason not in (StopReason.CAP_ITEMS, StopReason.CAP_BYTES, StopReason.CAP_SECONDS):
                return steps


def _exit_code(step: Any, progression: str | None) -> int:
    if step.stop_reason is StopReason.BUSY:
        return _BUSY
    if progression is not None and step.stop_reason is StopReason.BLOCKED:
        return _BLOCKED
    return 0


@app.command()
def verify(
    progression_id: Annotated[str, typer.Argument(help="The progression to compare.")],
    url: Url = None,
    daemon: Daemon = None,
    token: Token = None,
    as_json: Json = False,
) -> None:
    """Compare the two representations of a progression; changes nothing in any phase."""
    found = _with_service(Target(url, daemon, token), lambda service: service.verify(progression_id))
    render.verification(found, as_json=as_json)
    codes = {VerificationOutcome.MISMATCH: _MISMATCH, VerificationOutcome.NOT_APPLICABLE: _NOT_APPLICABLE}
    raise typer.Exit(codes.get(found.outcome, 0))


@app.command("compat-read")
def compat_read(
    progression_id: Annotated[str | None, typer.Argument(help="The progression; or --all.")] = None,
    everywhere: Annotated[bool, typer.Option("--all", help="The global switch.")] = False,
    enable: Annotated[bool, typer.Option("--enable", help="Read the frozen prefix and the relational tail.")] = False,
    disable: Annotated[bool, typer.Option("--disable", help="Read the items again.")] = False,
    url: Url = None,
    daemon: Daemon = None,
    token: Token = None,
    reason: Reason = None,
) -> None:
    """Switch reads of cut-over progressions to the frozen prefix and the tail, or back."""
    if enable == disable:
        raise InvalidInputError("say --enable or --disable")
    if (progression_id is None) != everywhere:
        raise InvalidInputError("name one progression, or say --all")

    async def work(service: Any) -> None:
        if progression_id is None:
            await service.set_compat_read_everywhere(enable, reason=reason)
        else:
            await service.set_compat_read(progression_id, enable)

    _with_service(Target(url, daemon, token), work)
    typer.echo(f"compat read {'enabled' if enable else 'disabled'}")


@app.command()
def pause(url: Url = None, daemon: Daemon = None, token: Token = None, reason: Reason = None) -> None:
    """Stop migrating after the running chunk, until resumed; survives restarts."""
    _with_service(Target(url, daemon, token), lambda service: service.pause(reason=reason))
    typer.echo("migration is paused")


@app.command()
def resume(url: Url = None, daemon: Daemon = None, token: Token = None, reason: Reason = None) -> None:
    """Lift a pause."""
    was_paused = _with_service(Target(url, daemon, token), lambda service: service.resume(reason=reason))
    typer.echo("migration goes on" if was_paused else "migration was not paused")
