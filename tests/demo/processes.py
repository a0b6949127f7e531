"""The real processes of a demonstration: the daemon, writers, helpers; all ended when the demonstration ends."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

__all__ = ["DaemonProcess", "free_port", "run_module", "start_module"]

_START_SECONDS = 30.0


def free_port() -> int:
    """A loopback port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def start_module(module: str, *arguments: str, log: Path | None = None) -> subprocess.Popen[bytes]:
    """Start ``python -m module``; its stderr goes to ``log``."""
    command = [sys.executable, "-m", module, *arguments]
    if log is None:
        return subprocess.Popen(command)
    with log.open("ab") as out:
        return subprocess.Popen(command, stderr=out)


def run_module(module: str, *arguments: str) -> str:
    """Run ``python -m module`` to its end and return what it printed."""
    done = subprocess.run([sys.executable, "-m", module, *arguments], check=True, stdout=subprocess.PIPE)
    return done.stdout.decode()


class DaemonProcess:
    """A ``lionstated`` of its own on a store."""

    def __init__(self, url: str, folder: Path, **flags: str) -> None:
        """Start it; ``wait_until_ready`` tells when it serves.

        Args:
            url: The store.
            folder: For the socket and the log.
            flags: Settings, dots as double underscores.
        """
        self.socket = Path(flags.get("listen__socket") or folder / "lionstated.sock")
        self.ops = f"127.0.0.1:{free_port()}"
        self.log = self.socket.with_suffix(".log")
        given = {"database__url": url, "listen__socket": str(self.socket), "listen__ops": self.ops, **flags}
        arguments = [
            part for name, value in given.items() for part in (f"--{name.replace('__', '-').replace('_', '-')}", value)
        ]
        self.process = start_module("lionstated", *arguments, log=self.log)

    @property
    def target(self) -> str:
        """Where a client finds it."""
        return f"unix:{self.socket}"

    def wait_until_ready(self) -> None:
        """Wait until it has opened its store; the log is quoted when the daemon ends instead."""
        give_up = time.monotonic() + _START_SECONDS
        while time.monotonic() < give_up:
            if self.process.poll() is not None:
                raise RuntimeError(f"lionstated ended with {self.process.returncode}:\n{self.log.read_text()}")
            if self._state() not in (b"", b"starting"):
                return
            time.sleep(0.05)
        raise RuntimeError("lionstated did not answer in time")

    def _state(self) -> bytes:
        """What it says of itself; nothing while it does not listen."""
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(_START_SECONDS)
            try:
                probe.connect(str(self.socket))
                probe.sendall(b"GET /readyz HTTP/1.1\r\nHost: d\r\nConnection: close\r\n\r\n")
                answer = b"".join(iter(lambda: probe.recv(4096), b""))
            except OSError:
                return b""
        found = re.search(rb'"state":"(\w+)"', answer)
        return answer[:12] if found is None else found[1]

    def stop(self) -> int:
        """Ask it to end and return its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=60)

    def kill(self) -> None:
        """Kill it."""
        if self.process.poll() is None:
            os.kill(self.process.pid, signal.SIGKILL)
            self.process.wait()
