"""Entry point: the commands, and how an error becomes one line and an exit code."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from lionstate.cli import migrate
from lionstate.cli.interrupt import INTERRUPTED
from lionstate.errors import StateError

__all__ = ["app", "main", "run"]

app = typer.Typer(
    name="lionstate",
    help="The operational store of agent runtimes: look at it, migrate it, serve it.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(migrate.app, name="progression-migrate")


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
    error.show()


def main() -> None:
    """Run the command of this process's arguments and exit with its code."""
    sys.exit(run())


def run(arguments: Sequence[str] | None = None) -> int:
    """Run a command; errors are one line on stderr. Returns the exit code of design §8.

    Args:
        arguments: Without the program's name; None takes this process's.
    """
    try:
        code = app(None if arguments is None else list(arguments), standalone_mode=False)
    except _USAGE_ERROR as error:
        _show(error)
        code = 2
    except (typer.Abort, KeyboardInterrupt):
        code = INTERRUPTED
    except StateError as error:
        typer.echo(f"error: {error}", err=True)
        code = error.exit_code
    return code if isinstance(code, int) else 0
