"""The commands, and how an error becomes one line and an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from lionstate.cli import config, migrate, outbox, sessions, store, tables
from lionstate.cli.backup import backup, restore
from lionstate.cli.copy import copy
from lionstate.cli.doctor import doctor
from lionstate.cli.health import health
from lionstate.cli.prune import prune
from lionstate.errors import StateError
from lionstate.startup import INTERRUPTED

__all__ = ["app", "main"]

app = typer.Typer(
    name="lionstate",
    help="The operational store of agent runtimes: look at it, migrate it, serve it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    pretty_exceptions_show_locals=False,
)
app.add_typer(migrate.app, name="progression-migrate")
app.add_typer(sessions.app, name="sessions")
app.command("show-session")(sessions.show_session)
app.command()(outbox.schedules)
app.add_typer(outbox.app, name="dispatches")
app.command()(store.stats)
app.command()(store.checkpoint)
app.command()(store.vacuum)
app.command()(copy)
app.command()(backup)
app.command()(restore)
app.command()(prune)
app.command()(health)
app.command()(doctor)
app.add_typer(config.app, name="config")


@app.command(add_help_option=False, context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def serve(context: typer.Context) -> None:
    """Run the daemon in the foreground; every option of lionstated is passed on."""
    os.execv(sys.executable, [sys.executable, "-m", "lionstated", *context.args])


def _version(wanted: bool) -> None:
    if wanted:
        from lionstate import __version__

        typer.echo(f"lionstate {__version__}")
        raise typer.Exit()


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Options of every command."""


# The library that parses is typer's own affair (it may be a copy inside typer); its public names lead to it.
_USAGE_ERROR: Any = typer.BadParameter.__mro__[1]


def _show(error: Any) -> None:
    """What is wrong, in one line; the whole help where no command was given at all."""
    if type(error).__name__ == "NoArgsIsHelpError":
        error.show()
        return
    where = error.ctx.command_path if error.ctx is not None else "lionstate"
    typer.echo(f"error: {error.format_message()} (see {where} --help)", err=True)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; errors are one line on stderr and the exit code of design §8.

    Args:
        arguments: Without the program's name; None takes this process's.
    Raises:
        KeyboardInterrupt: Ctrl-C, after the interrupted work has cleaned up.
    """
    try:
        code = app(None if arguments is None else list(arguments), standalone_mode=False)
    except _USAGE_ERROR as error:
        _show(error)
        code = 2
    except typer.Abort as error:
        raise KeyboardInterrupt from error
    except StateError as error:
        typer.echo(tables.printable(f"error: {error}"), err=True)
        code = error.exit_code
    if code == INTERRUPTED:
        # What typer makes of it.
        raise KeyboardInterrupt
    return code if isinstance(code, int) else 0
