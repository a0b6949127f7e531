"""``hold``, ``release``, ``cutover``, ``prioritize`` and ``exclude`` of ``lionstate progression-migrate``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lionstate.cli import render, tables
from lionstate.cli.options import Daemon, Json, Reason, Token, Until, Url, moment, one_or_all, run_on_migration

if TYPE_CHECKING:
    from lionstate.migration import MigrationStatus, MigrationStep

__all__ = ["mount"]

_BUSY, _NOT_APPLICABLE, _BLOCKED = 5, 7, 8

Progression = Annotated[str, typer.Argument(help="The progression.")]
OneOrAll = Annotated[str | None, typer.Argument(help="The progression; or --all.")]
Everything = Annotated[bool, typer.Option("--all", help="Every cutover, not those of one progression.")]
Clear = Annotated[bool, typer.Option("--clear", help="Take the order back.")]


def mount(app: typer.Typer) -> None:
    """Put the verbs on the command of migration."""
    for verb in (hold, release, cutover, prioritize, exclude):
        app.command()(verb)


def hold(
    progression_id: OneOrAll = None,
    everything: Everything = False,
    url: Url = None,
    daemon: Daemon = None,
    token: Token = None,
    reason: Reason = None,
    until: Until = None,
    as_json: Json = False,
) -> None:
    """Let a cutover happen by command only; what is copied and proved waits at stage ``ready``."""
    one_or_all(progression_id, everything)
    end = moment(until)

    async def work(service: Any) -> None:
        if progression_id is None:
            await service.hold_all(reason=reason, expires_at=end)
        else:
            await service.hold(progression_id, reason=reason, expires_at=end)

    run_on_migration((url, daemon, token), work)
    what = "cutovers happen" if progression_id is None else "its cutover happens"
    facts = {"progression_id": progression_id, "held": True, "expires_at": end}
    ends = "" if end is None else f"{tables.until(end)}, or"
    tables.done(f"{what} by command only,{ends} until it is released", facts=facts, as_json=as_json)


def release(
    progression_id: OneOrAll = None,
    everything: Everything = False,
    url: Url = None,
    daemon: Daemon = None,
    token: Token = None,
    reason: Reason = None,
    as_json: Json = False,
) -> None:
    """Lift the holds of one progression, or the one that is on every cutover (holds of single ones stay)."""
    one_or_all(progression_id, everything)

    async def work(service: Any) -> bool:
        if progression_id is None:
            return bool(await service.release_all(reason=reason))
        return bool(await service.release(progression_id, reason=reason))

    was_held = run_on_migration((url, daemon, token), work)
    what = "cutovers happen by themselves again" if progression_id is None else "its hold is lifted"
    tables.done(what if was_held else "it was not held", facts={"was_held": was_held}, as_json=as_json)


def cutover(
    progression_id: Annotated[str | None, typer.Argument(help="The progression; or --all-ready.")] = None,
    all_ready: Annotated[bool, typer.Option("--all-ready", help="Everything that is at stage ready.")] = False,
    accept_foreign_writers: Annotated[
        bool, typer.Option("--accept-foreign-writers", help="Although another program writes this store.")
    ] = False,
    url: Url = None,
    daemon: Daemon = None,
    token: Token = None,
    as_json: Json = False,
) -> None:
    """Prove again, and cut over: one copied progression whatever holds it, or all that are ready.

    From the first cutover on, programs that know only the JSON column are refused. Exits with 5 when the store is
    paused or stays locked, with 7 when something keeps it back, and with 8 when the proof found a difference.
    """
    one_or_all(progression_id, all_ready, "--all-ready")

    async def work(service: Any) -> tuple[list[MigrationStep], MigrationStatus]:
        options = {"accept_foreign_writers": accept_foreign_writers}
        if progression_id is None:
            steps = await _to_the_end(lambda: service.cutover_all_ready(**options))
        else:
            steps = await _to_the_end(lambda: service.cutover(progression_id, **options))
        return steps, await service.status(limit=0)

    steps, after = run_on_migration((url, daemon, token), work)
    render.steps(steps, after, as_json=as_json)
    raise typer.Exit(_exit_code(steps))


async def _to_the_end(command: Callable[[], Awaitable[MigrationStep]]) -> list[MigrationStep]:
    from lionstate.migration import StopReason

    steps = [await command()]
    while steps[-1].stop_reason is StopReason.CAP_SECONDS:
        steps.append(await command())
    return steps


def _exit_code(steps: list[MigrationStep]) -> int:
    from lionstate.migration import StopReason

    codes = {
        StopReason.BUSY: _BUSY,
        StopReason.PAUSED: _BUSY,
        StopReason.NOT_OWNER: _BUSY,
        StopReason.HELD: _NOT_APPLICABLE,
        StopReason.BLOCKED: _BLOCKED,
    }
    return _BLOCKED if any(step.blocked for step in steps) else codes.get(steps[-1].stop_reason, 0)


def _order(verb: str, explained: str, state: str, given: str, taken_back: str) -> Callable[..., None]:
    """The command of an order for one progression: the word for what that is then, what it prints when it changes."""

    def command(
        progression_id: Progression,
        clear: Clear = False,
        url: Url = None,
        daemon: Daemon = None,
        token: Token = None,
        reason: Reason = None,
        until: Until = None,
        as_json: Json = False,
    ) -> None:
        end = moment(until)

        async def work(service: Any) -> bool:
            return bool(await getattr(service, verb)(progression_id, clear=clear, reason=reason, expires_at=end))

        changed = run_on_migration((url, daemon, token), work)
        text = f"{given}{tables.until(end)}" if not clear else taken_back if changed else f"it was not {state}"
        tables.done(text, facts={state: not clear, "changed": changed, "expires_at": end}, as_json=as_json)

    command.__name__, command.__doc__ = verb, explained
    return command


prioritize = _order(
    "prioritize",
    "Work on one progression before all others.",
    "prioritized",
    "it comes first",
    "it waits its turn again",
)
exclude = _order(
    "exclude",
    "Have automatic work pass over one progression; `step` and `cutover` that name it still work on it.",
    "excluded",
    "it is passed over",
    "it takes part again",
)
