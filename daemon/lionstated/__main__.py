"""Entry point of ``lionstated``; what it runs is imported when an interrupt can no longer show a traceback."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import NoReturn

from lionstate.startup import run_command
from lionstated.masking import hide_passwords

__all__ = ["main"]


def _load() -> Callable[[], int]:
    from lionstated.command import run_and_leave

    return run_and_leave


def main() -> NoReturn:
    """Run the daemon and end the process."""
    hide_passwords(sys.orig_argv)
    run_command("lionstated", _load)


if __name__ == "__main__":
    main()
