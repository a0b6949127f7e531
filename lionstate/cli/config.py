"""``lionstate config``: the daemon's settings, as the daemon would read them."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from lionstate.cli.options import Json

__all__ = ["app"]

app = typer.Typer(help="The daemon's settings.", no_args_is_help=True)
_PASSED_ON = {"allow_extra_args": True, "ignore_unknown_options": True}


@app.callback()
def _root() -> None:
    """Options of every verb."""


@app.command(context_settings=_PASSED_ON)
def show(
    context: typer.Context,
    effective: Annotated[
        bool, typer.Option("--effective", help="Every setting in force, not only those that are not the default.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Print the settings, passwords masked; --config FILE and every option of lionstated are taken as it takes them."""
    wanted = ["--check-config", *(() if effective else ("--only-changed",)), *(("--as-json",) if as_json else ())]
    os.execv(sys.executable, [sys.executable, "-m", "lionstated", *wanted, *context.args])
