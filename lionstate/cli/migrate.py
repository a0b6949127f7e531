"""The verbs of ``lionstate progression-migrate`` (ADR-0117 D5, design decision 31).

What opens a store or talks to a daemon is imported by the functions that do: half a second that help does without.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from lionstate.cli import fence, knobs, operator, ordering, proof, render, tables
from lionstate.cli.options import Daemon, Json, Reason, Token, Until, Url, Where, moment, one_or_all, run_on_migration
from lionstate.errors import InvalidInputError

if TYPE_CHECKING:
    from lionstate.migration import MigrationStatus, MigrationStep, StopReason

__all__ = ["app"]

R = TypeVar("R")
app = typer.Typer(help="Move progressions from JSON to items while the store serves.", no_args_is_help=True)

_BUSY, _NOT_APPLICABLE, _BLOCKED = 5, 7, 8


@app.command()
def status(
    url: Url = None,
    daemon: Daemon = None,
    token: Token = None,
    limit: Annotated[int, typer.Option(help="How many of the hottest progressions to list.")] = 10,
    watch: Annotated[bool, typer.Option("--watch", help="Keep it on the screen until everything is moved.")] = False,
    interval: Annotated[float, typer.Option(help="Seconds between two looks of --watch.", min=0.1)] = 1.0,
    as_json: Json = False,
) -> None:
    """Counts by phase, how far it is, what is blocked or held, and which progressions are hottest.

    With --watch a live view on a terminal, a line for each look elsewhere (--json: an object). Ctrl-C ends it.
    """
    if watch:
        from lionstate.cli.watch import follow

        run_on_migration(
            (url, daemon, token), lambda service: follow(service, interval=interval, as_json=as_json), reads=True
        )
        return
    found = run_on_migration((url, daemon, token), lambda service: service.status(limit=limit), reads=True)
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
    """Do a bounded piece of migration: admit, copy, prove, cut over.

    Exits with 5 when the store is paused, stays locked, or is under load (--until-done waits for that to end). With
    --until-done or --progression also with 7 when something is held back, and with 8 when something is blocked.
    """
    caps = {"max_items": max_items, "max_bytes": max_bytes, "max_seconds": max_seconds}

    async def work(service: Any) -> tuple[list[MigrationStep], MigrationStatus]:
        if accept_foreign_writers:
            await service.set_accept_foreign_writers(True, reason="--accept-foreign-writers")
        if until_done:
            return await _until_done(service, progression, caps, show=not as_json)
        return [await service.step(progression_id=progression, **caps)], await service.status(limit=0)

    steps, after = run_on_migration((url, daemon, token), work)
    render.steps(steps, after, as_json=as_json)
    everything = after if until_done and progression is None else None
    raise typer.Exit(_exit_code(steps[-1].stop_reason, progression, everything))


async def _until_done(
    service: Any, progression: str | None, caps: dict[str, Any], *, show: bool
) -> tuple[list[MigrationStep], MigrationStatus]:
    from lionstate.migration.until import step_until_done

    with render.progress(await service.status(limit=0), show=show) as advance:
        return await step_until_done(service, caps, advance, progression_id=progression)


def _exit_code(reason: StopReason, progression: str | None, everything: MigrationStatus | None) -> int:
    from lionstate.migration import StopReason

    if reason in (StopReason.BUSY, StopReason.PAUSED, StopReason.THROTTLED, StopReason.NOT_OWNER):
        return _BUSY
    if progression is None and everything is None:
        return 0
    if reason is StopReason.BLOCKED or (everything is not None and everything.blocked):
        return _BLOCKED
    return _NOT_APPLICABLE if reason is StopReason.HELD else 0


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
    until: Until = None,
    as_json: Json = False,
) -> None:
    """Switch reads of cut-over progressions to the frozen prefix and the tail, or back."""
    if enable == disable:
        raise InvalidInputError("say --enable or --disable")
    one_or_all(progression_id, everywhere)
    if disable and until is not None:
        raise InvalidInputError("--until goes with --enable")
    end = moment(until)

    async def work(service: Any) -> None:
        if progression_id is None:
            await service.set_compat_read_everywhere(enable, reason=reason, expires_at=end)
        else:
            await service.set_compat_read(progression_id, enable, reason=reason, expires_at=end)

    run_on_migration((url, daemon, token), work)
    facts = {"progression_id": progression_id, "compat_read": enable, "expires_at": end}
    tables.done(f"compat read is {'on' if enable else 'off'}{tables.until(end)}", facts=facts, as_json=as_json)


def _halting(verb: str, explained: str, halted: str) -> Callable[..., None]:
    """The command that stops migration until `resume`, and the word for what it is then."""

    def command(
        url: Url = None,
        daemon: Daemon = None,
        token: Token = None,
        reason: Reason = None,
        until: Until = None,
        as_json: Json = False,
    ) -> None:
        end = moment(until)
        run_on_migration((url, daemon, token), lambda service: getattr(service, verb)(reason=reason, expires_at=end))
        text = f"migration is {halted}{tables.until(end)}"
        tables.done(text, facts={halted: True, "expires_at": end}, as_json=as_json)

    command.__name__, command.__doc__ = verb, explained
    return command


pause = app.command()(
    _halting(
        "pause",
        "Stop migrating after the running chunk, until resumed; survives restarts. The owner stays the owner.",
        "paused",
    )
)
stop = app.command()(
    _halting("stop", "As `pause`, and give the lease back: another process may be the owner after `resume`.", "stopped")
)


@app.command()
def resume(
    url: Url = None, daemon: Daemon = None, token: Token = None, reason: Reason = None, as_json: Json = False
) -> None:
    """Lift a pause."""
    was_paused = run_on_migration((url, daemon, token), lambda service: service.resume(reason=reason))
    text = "migration goes on" if was_paused else "migration was not paused"
    tables.done(text, facts={"paused": False, "was_paused": was_paused}, as_json=as_json)


@app.command()
def enable(
    url: Url = None, daemon: Daemon = None, token: Token = None, reason: Reason = None, as_json: Json = False
) -> None:
    """Let the daemon's timer migrate, whatever its settings say; a pause still holds."""
    _set_enabled((url, daemon, token), True, reason, as_json)


@app.command()
def disable(
    url: Url = None, daemon: Daemon = None, token: Token = None, reason: Reason = None, as_json: Json = False
) -> None:
    """Keep the daemon's timer from migrating, whatever its settings say; `step` still works."""
    _set_enabled((url, daemon, token), False, reason, as_json)


def _set_enabled(where: Where, enabled: bool, reason: str | None, as_json: bool) -> None:
    run_on_migration(where, lambda service: service.set_maintenance_enabled(enabled, reason=reason))
    text = f"automatic migration is {'enabled' if enabled else 'disabled'}"
    tables.done(text, facts={"maintenance_enabled": enabled}, as_json=as_json)


proof.mount(app)
operator.mount(app)
ordering.mount(app)
fence.mount(app)
app.add_typer(knobs.app, name="knobs")
