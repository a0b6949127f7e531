"""One command: its input, its end, and what is left of it when its time is over."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from lionstated.child_process import Ended, run_command
from tests.support.eventually import eventually

pytestmark = pytest.mark.anyio

# Tells that it runs by creating its first argument.
_HANG = "import pathlib, signal, sys, time; {first}; pathlib.Path(sys.argv[1]).touch(); time.sleep(60)"
_STUBBORN = _HANG.format(first="signal.signal(signal.SIGTERM, signal.SIG_IGN)")
_WILLING = _HANG.format(first="signal.signal(signal.SIGTERM, lambda *_: (print('bye', file=sys.stderr), sys.exit(0)))")


async def _run(code: str, *more: str, stdin: bytes = b"", cut: asyncio.Event | None = None, **given: Any) -> Ended:
    options = {"env": {}, "timeout_seconds": 20.0, "kill_seconds": 5.0, **given}
    return await run_command([sys.executable, "-c", code, *more], stdin, cut=cut or asyncio.Event(), **options)


def _is_gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split()[2] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


async def test_arguments_and_input_arrive_as_they_are(tmp_path: Path) -> None:
    file = tmp_path / "found"
    code = "import os, sys; found = os.environb[b'A'] + sys.argv[2].encode() + sys.stdin.buffer.read();"
    code += "open(sys.argv[1], 'wb').write(found)"
    big = b"x" * 300_000
    ended = await _run(code, str(file), "$(true) ;'\"", stdin=big, env={"A": "b"})
    assert (0, None, None) == (ended.code, ended.cut, ended.error)
    assert b"b$(true) ;'\"" + big == file.read_bytes()


async def test_input_need_not_be_read() -> None:
    assert (await _run("", stdin=b"x" * 1_000_000)).error is None


async def test_a_failure_is_told_by_the_end_of_stderr() -> None:
    ended = await _run("import sys; sys.stderr.write('a' * 9000 + '\\0end'); sys.exit(3)")
    assert (3, "a" * 1996 + "end") == (ended.code, ended.error)
    assert "exit 4" == (await _run("import sys; sys.exit(4)")).error
    assert "killed by signal 9" == (await _run("import os; os.kill(os.getpid(), 9)")).error


async def test_a_command_that_is_not_there_raises() -> None:
    with pytest.raises(FileNotFoundError):
        await run_command(["/no/such"], b"", env={}, timeout_seconds=1.0, kill_seconds=1.0, cut=asyncio.Event())


async def test_what_a_command_leaves_running_does_not_hold_its_end_up() -> None:
    code = "import subprocess, sys; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(2)'])"
    async with asyncio.timeout(1.9):
        assert (await _run(code)).error is None


async def test_the_time_is_limited_and_sigterm_comes_first(tmp_path: Path) -> None:
    ended = await _run(_WILLING, str(tmp_path / "runs"), timeout_seconds=1.0)
    assert ("timed out after 1 s", 0) == (ended.error, ended.code)
    assert "bye" == ended.stderr


async def test_sigkill_ends_the_stubborn_and_its_children(tmp_path: Path) -> None:
    child = tmp_path / "child"
    code = (
        "import os, signal, subprocess, sys, time; signal.signal(signal.SIGTERM, signal.SIG_IGN);"
        "p = subprocess.Popen([sys.executable, '-c', 'import signal, time; signal.signal(15, 1); time.sleep(60)']);"
        "open(sys.argv[1] + '~', 'w').write(str(p.pid)); os.rename(sys.argv[1] + '~', sys.argv[1]); time.sleep(60)"
    )
    cut = asyncio.Event()
    running = asyncio.create_task(_run(code, str(child), kill_seconds=0.2, cut=cut))
    await eventually(child.exists)
    cut.set()
    ended = await running
    assert ("the daemon stopped", -9) == (ended.error, ended.code)
    await eventually(lambda: _is_gone(int(child.read_text())))


async def test_a_cancelled_caller_leaves_nothing_running(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    code = "import os, sys, time; open(sys.argv[1] + '~', 'w').write(str(os.getpid()));"
    code += "os.rename(sys.argv[1] + '~', sys.argv[1]); time.sleep(60)"
    running = asyncio.create_task(_run(code, str(runs)))
    await eventually(runs.exists)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await eventually(lambda: _is_gone(int(runs.read_text())))


async def test_no_descriptor_is_left_behind() -> None:
    await _run("")
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        await _run("import sys; sys.exit(1)")
    assert before == len(os.listdir("/proc/self/fd"))
