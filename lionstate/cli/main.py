"""Entry point of ``lionstate``; what it runs is imported when an interrupt can no longer show a traceback.

Exit codes are those of design §8. 1 is also for output that cannot be written (a full disk): the command itself is done
then. A reader that goes away (``| head -1``) ends it by SIGPIPE, as it ends other programs. 130 is Ctrl-C.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn

from lionstate.startup import run_command

__all__ = ["main"]


def _load() -> Callable[[], int]:
    from lionstate.cli.commands import main

    return main


def main() -> NoReturn:
    """Run a command and end the process."""
    run_command("lionstate", _load)
