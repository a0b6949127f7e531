"""The verbs of ``lionstate progression-migrate``."""

from __future__ import annotations

import typer

__all__ = ["app"]

app = typer.Typer(help="Move progressions from JSON to items while the store serves.", no_args_is_help=True)
