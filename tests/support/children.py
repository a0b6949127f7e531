"""Child processes that run a piece of test code, so that a crash, a second library or a foreign lock stays outside."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

__all__ = ["child", "output_of"]

ROOT = Path(__file__).resolve().parents[2]


def _start(code: str, arguments: tuple[object, ...]) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, arguments)],
        cwd=ROOT,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@contextmanager
def child(code: str, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    """Run Python code with ``sys.argv[1:]``; the process is killed at the end of the block if it still runs."""
    process = _start(code, arguments)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def output_of(code: str, *arguments: object, timeout: float = 50.0, returncode: int = 0) -> str:
    """Run Python code to its end and return what it printed."""
    process = _start(code, arguments)
    try:
        out, err = process.communicate(timeout=timeout)
    except BaseException:
        process.kill()
        process.communicate()
        raise
    assert returncode == process.returncode, f"exit {process.returncode}\n{out}\n{err}"
    return out
