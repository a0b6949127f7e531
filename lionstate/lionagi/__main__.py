"""Runs LionAGI's own command with the bridge on: ``python -m lionstate.lionagi [OPTIONS] -- li …``."""

from __future__ import annotations

import argparse
import importlib
import os
import sys

from lionstate.errors import StateError
from lionstate.lionagi import install
from lionstate.lionagi.children import bridge_children

__all__ = ["main"]


def main(arguments: list[str] | None = None) -> int:
    """Install the bridge, here and in the processes that LionAGI starts, and run ``li``; returns its exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m lionstate.lionagi",
        usage="%(prog)s [--daemon ADDRESS] [--allow-unverified] -- li …",
        description="Run LionAGI's command with its progressions where their authority is.",
    )
    parser.add_argument("--daemon", default=os.environ.get("LIONSTATE_DAEMON"), help="Write through this daemon.")
    parser.add_argument("--allow-unverified", action="store_true", help="Also take another LionAGI than 0.36.0.")
    parser.add_argument("command", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    if command[:1] != ["li"]:
        parser.error("say what to run: -- li …")
    try:
        install(
            daemon=options.daemon, token=os.environ.get("LIONSTATE_TOKEN"), allow_unverified=options.allow_unverified
        )
    except StateError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code
    bridge_children(daemon=options.daemon, allow_unverified=options.allow_unverified)
    sys.argv = command
    code = importlib.import_module("lionagi.cli.main").main()
    return code if isinstance(code, int) else 0


if __name__ == "__main__":
    sys.exit(main())
