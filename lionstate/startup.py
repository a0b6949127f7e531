"""How both commands begin and end: Ctrl-C while their rooms are still being imported, and output that nobody takes.

Imports nothing of ours and little of Python's, so that it is in force before anything else.
"""

from __future__ import annotations

import contextlib
import io
import os
import signal
import sys
from collections.abc import Callable
from typing import Any, NoReturn, TextIO

__all__ = ["INTERRUPTED", "leave_interrupted", "run_command"]

INTERRUPTED = 130
_INTERNAL = 1
_USAGE = 2
_OWN = ("lionstate", "lionstated")


def leave_interrupted(name: str) -> NoReturn:
    """End at once, whatever runs; for when nothing has to be undone, or nobody wants to wait for it any more."""
    _say(name, "interrupted")
    os._exit(INTERRUPTED)


def _say(name: str, text: str) -> None:
    os.write(2, f"{name}: {text}\n".encode())


class _Descriptor(io.FileIO):
    """Standard output that remembers why it failed: libraries that print swallow the error, or end with their own."""

    failure: OSError | None = None

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError as error:
            self.failure = error
            raise


def _remembering(stream: TextIO) -> tuple[_Descriptor, TextIO]:
    descriptor = _Descriptor(stream.fileno(), "wb", closefd=False)
    text = io.TextIOWrapper(
        io.BufferedWriter(descriptor),
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=stream.isatty(),
    )
    return descriptor, text


def run_command(name: str, load: Callable[[], Callable[[], int]]) -> NoReturn:
    """Import a command with ``load``, run it, and end the process with its exit code (design §8).

    A reader that goes away ends the process as it ends other programs, by SIGPIPE and without a word; other output
    that cannot be written is one line and 1. What the command was to do is done then.
    """
    _fill_closed_descriptors()
    output, sys.stdout = _remembering(sys.stdout)
    # A shell that starts something in the background ignores SIGINT for it.
    handles = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if handles:
        signal.signal(signal.SIGINT, lambda *_: leave_interrupted(name))
    failure: OSError | None = None
    code: object = None
    try:
        command = load()
        if handles:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        code = command()
    except ModuleNotFoundError as error:
        if not error.name or error.name.partition(".")[0] in _OWN:
            raise
        _say(name, f"the package {error.name} is not installed: pip install 'lionstate[daemon]' brings what it needs")
        code = _USAGE
    except SystemExit as ended:
        code = ended.code
    except KeyboardInterrupt:
        _say(name, "interrupted")
        code = INTERRUPTED
    except OSError as error:
        failure = error
    if not _was_taken(name, output):
        code = _INTERNAL
    elif failure is not None:
        raise failure
    sys.exit(code if isinstance(code, int) else 0)


def _fill_closed_descriptors() -> None:
    """Give a stream that was closed by the caller a place to go, before a store's file gets its number."""
    for stream, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, stream) is None:
            number = os.open(os.devnull, os.O_RDWR)
            setattr(sys, stream, open(number, mode, encoding="utf-8", closefd=False))  # noqa: SIM115


def _was_taken(name: str, output: _Descriptor) -> bool:
    with contextlib.suppress(OSError):
        sys.stdout.flush()
    if output.failure is None:
        return True
    if isinstance(output.failure, BrokenPipeError):
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGPIPE)
    _say(name, f"the output cannot be written: {output.failure.strerror}")
    # Or the interpreter would try once more at its end.
    os.dup2(os.open(os.devnull, os.O_WRONLY), output.fileno())
    return False
