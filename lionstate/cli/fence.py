"""``fence status|install|remove`` and ``detach`` of ``lionstate progression-migrate``."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from lionstate.cli import tables
from lionstate.cli.options import Daemon, Json, Reason, Token, Url, run_on_migration

if TYPE_CHECKING:
    from lionstate.migration import FenceStatus

__all__ = ["mount"]

fence = typer.Typer(help="The trigger that refuses programs which know only the JSON column.", no_args_is_help=True)


def mount(app: typer.Typer) -> None:
    """Put the verbs on the command of migration."""
    app.add_typer(fence, name="fence")
    app.command()(detach)


def _print(found: FenceStatus, as_json: bool) -> None:
    if as_json:
        tables.print_json(found)
        return
    tables.note(f"the fence is {'installed' if found.installed else 'not installed'}")
    if found.off_by is not None and found.off_since is not None:
        tables.note(f"turned off by {found.off_by} {tables.ago(found.off_since)}: {found.off_reason}")
    tables.note(f"{found.guarded} progressions are read from elsewhere than their JSON")
    last = tables.ago(found.last_full_pass_at) if found.last_full_pass_at is not None else "never"
    tables.note(f"last full pass of the scrubber: {last}")
    if found.notice is not None:
        tables.note(found.notice)


@fence.command("status")
def status(url: Url = None, daemon: Daemon = None, token: Token = None, as_json: Json = False) -> None:
    """Say whether the fence is there, who turned it off, and how old the last full comparison is."""
    _print(run_on_migration((url, daemon, token), lambda service: service.fence_status(), reads=True), as_json)


@fence.command("install")
def install(
    url: Url = None, daemon: Daemon = None, token: Token = None, reason: Reason = None, as_json: Json = False
) -> None:
    """Install the fence (the first cutover does that by itself); exits with 5 when writers keep it from its lock."""
    _print(run_on_migration((url, daemon, token), lambda service: service.install_fence(reason=reason)), as_json)


@fence.command("remove")
def remove(
    reason: Annotated[str, typer.Option("--reason", help="Why; kept, shown in `status`, audited.")],
    url: Url = None,
    daemon: Daemon = None,
    token: Token = None,
    as_json: Json = False,
) -> None:
    """Remove the fence and cut over without one: what other programs write then is found by the scrubber only."""
    _print(run_on_migration((url, daemon, token), lambda service: service.remove_fence(reason=reason)), as_json)


def detach(url: Url = None, reason: Reason = None, as_json: Json = False) -> None:
    """Take lionstate off a store: its triggers, its tables, its key; nothing else is touched.

    Nobody may have the store open. Exits with 7 when progressions have left their JSON, which it names, or when there
    is nothing of lionstate in the store, and with 10 while a daemon owns it or another process migrates it. On
    PostgreSQL it sees only a process that holds the lease of maintenance: stop the others yourself, a daemon that
    does not migrate too.
    """
    from lionstate.cli.interrupt import run_until_interrupted
    from lionstate.cli.target import Target
    from lionstate.detaching import detach_store
    from lionstate.engine import EngineSettings

    target = Target(url, None, None)
    target.refuse_a_daemon()
    assert target.url is not None
    settings = EngineSettings(sqlite_module="auto")
    found = run_until_interrupted(detach_store(target.url, settings, reason=reason))
    text = f"lionstate is off this store: {found.tables} tables dropped"
    tables.done(
        f"{text}, {found.given_up} progressions are plain JSON values again", facts=asdict(found), as_json=as_json
    )
