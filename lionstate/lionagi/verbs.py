"""The verbs of the migration on an argparse command line that is not ours (ADR-0117 D5, design decision 31)."""

from __future__ import annotations

import argparse
import importlib
from typing import Any, Final

from lionstate.startup import INTERRUPTED

__all__ = ["COMMAND", "mount", "run_verb"]

COMMAND: Final = "progression-migrate"

_TARGETS: Final = ("--url", "--daemon")


def mount(subparsers: Any, *, url: str | None = None, daemon: str | None = None) -> argparse.ArgumentParser:
    """Add ``progression-migrate`` to an argparse subparsers object; each verb takes the options of ``lionstate``'s.

    The namespace gets ``run``: a function of the namespace that does the work and returns the exit code.

    Args:
        subparsers: What ``add_subparsers()`` returned.
        url: The store of a call that names none; None is LionAGI's.
        daemon: The daemon of a call that names none.

    Contract: ADR-0117 D5.
    """
    from lionstate.cli.migrate import app

    verbs = [found.name or found.callback.__name__ for found in app.registered_commands if found.callback is not None]
    verbs += [found.name for found in app.registered_groups if isinstance(found.name, str)]
    parser: argparse.ArgumentParser = subparsers.add_parser(
        COMMAND,
        help="Move progressions from JSON to items (lionstate).",
        description=app.info.help,
        epilog=f"`{COMMAND} VERB --help` lists a verb's options.",
    )
    parser.add_argument("verb", choices=sorted(verbs), help="What to do.")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, metavar="...", help="The verb's own arguments.")
    parser.set_defaults(run=lambda args: run_verb(args, url=url, daemon=daemon))
    return parser


def run_verb(args: argparse.Namespace, *, url: str | None = None, daemon: str | None = None) -> int:
    """Run a parsed verb; returns the exit code of design §8.

    Args:
        args: What `mount`'s parser made.
        url: The store when the arguments name none; None is the one that LionAGI is configured for.
        daemon: The daemon when they name none.
    """
    from lionstate.cli.commands import main

    arguments: list[str] = list(args.arguments)
    if not any(argument.partition("=")[0] in _TARGETS for argument in arguments) and "--help" not in arguments:
        arguments += ["--daemon", daemon] if daemon is not None else ["--url", url or _configured_url()]
    try:
        return main([COMMAND, args.verb, *arguments])
    except KeyboardInterrupt:
        return INTERRUPTED


def _configured_url() -> str:
    found: str = importlib.import_module("lionagi.state.db").StateDB().url
    return found
