"""Runs one command: no shell, a session of its own, a time limit that ends everything in it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import IO

__all__ = ["Ended", "run_command"]

_STDERR_BYTES = 2_000
# For the last words of a command that has exited; what it left running may hold its stderr open for ever.
_LAST_WORDS_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class Ended:
    """How a command ended.

    Attributes:
        code: Its exit code, minus the signal that killed it.
        cut: Why it was ended before it ended itself; None if it was not.
        stderr: The end of what it wrote there, at most 2,000 bytes.
    """

    code: int
    cut: str | None
    stderr: str

    @property
    def error(self) -> str | None:
        """What went wrong in words; None for exit code 0."""
        if self.cut is not None:
            return self.cut
        if self.code == 0:
            return None
        return self.stderr or (f"exit {self.code}" if self.code > 0 else f"killed by signal {-self.code}")


class _Tail(asyncio.Protocol):
    """Keeps the end of a stream."""

    def __init__(self) -> None:
        self.kept = b""
        self.ended = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        self.kept = (self.kept + data)[-_STDERR_BYTES:]

    def connection_lost(self, exc: Exception | None) -> None:
        self.ended.set()

    def text(self) -> str:
        return self.kept.decode(errors="replace").replace("\0", "").strip()


async def run_command(
    argv: Sequence[str],
    stdin: bytes,
    *,
    env: Mapping[str, str],
    timeout_seconds: float,
    kill_seconds: float,
    cut: asyncio.Event,
) -> Ended:
    """Run a command to its end.

    Args:
        argv: Program and arguments, as they are.
        stdin: All that it can read there.
        env: Its whole environment.
        timeout_seconds: Then its process group gets SIGTERM, ``kill_seconds`` later SIGKILL.
        kill_seconds: See ``timeout_seconds``.
        cut: Set: as if the time were over. A cancelled caller leaves nothing running either.
    Raises:
        OSError: It could not be started.
    """
    loop = asyncio.get_running_loop()
    reads, writes = os.pipe()
    with contextlib.ExitStack() as files:
        listened = files.enter_context(os.fdopen(reads, "rb", 0))
        spoken = files.enter_context(os.fdopen(writes, "wb", 0))
        # A file and no pipe: nobody has to feed a command that does not read.
        given = files.enter_context(await asyncio.to_thread(_file_with, stdin))
        transport, tail = await loop.connect_read_pipe(_Tail, listened)
        try:
            process = await asyncio.create_subprocess_exec(
                *argv,
                stdin=given,
                stdout=asyncio.subprocess.DEVNULL,
                stderr=spoken,
                env=dict(env),
                start_new_session=True,
            )
            spoken.close()
            try:
                why = await _watched(process, timeout_seconds, cut)
                if why is not None:
                    await _end(process, kill_seconds)
            except BaseException:
                _signal(process, signal.SIGKILL)
                raise
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(tail.ended.wait(), _LAST_WORDS_SECONDS)
        finally:
            transport.close()
    return Ended(process.returncode or 0, why, tail.text())


def _file_with(data: bytes) -> IO[bytes]:
    file = tempfile.TemporaryFile()  # noqa: SIM115
    file.write(data)
    file.seek(0)
    return file


async def _watched(process: asyncio.subprocess.Process, timeout_seconds: float, cut: asyncio.Event) -> str | None:
    """Wait for the command; why it must be ended, None if it has ended."""
    exited = asyncio.ensure_future(process.wait())
    stopped = asyncio.ensure_future(cut.wait())
    try:
        await asyncio.wait({exited, stopped}, timeout=timeout_seconds, return_when=asyncio.FIRST_COMPLETED)
        if exited.done():
            return None
        return "the daemon stopped" if stopped.done() else f"timed out after {timeout_seconds:g} s"
    finally:
        exited.cancel()
        stopped.cancel()


async def _end(process: asyncio.subprocess.Process, kill_seconds: float) -> None:
    _signal(process, signal.SIGTERM)
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(process.wait(), kill_seconds)
    # Also what outlived the command itself.
    _signal(process, signal.SIGKILL)
    await process.wait()


def _signal(process: asyncio.subprocess.Process, number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)
