"""sd_notify and the watchdog."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import anyio
import pytest

from lionstated.notify import Notifier, tell_status, watchdog, watchdog_interval_seconds


def test_datagrams_reach_path_and_abstract_sockets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # the path itself may be too long for an address
    for address, bind in (("n.sock", "n.sock"), (f"@lionstate-{os.getpid()}", f"\0lionstate-{os.getpid()}")):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
            manager.bind(bind)
            assert Notifier(address).ready("serving")
            assert manager.recv(100) == b"READY=1\nSTATUS=serving"


def test_nobody_there_is_no_error() -> None:
    assert not Notifier("").ping()
    assert not Notifier("/nonexistent/n.sock").ping()


def test_interval_is_half_the_period_of_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WATCHDOG_USEC", "3000000")
    monkeypatch.delenv("WATCHDOG_PID", raising=False)
    assert watchdog_interval_seconds() == 1.5
    monkeypatch.setenv("WATCHDOG_PID", "1")
    assert watchdog_interval_seconds() is None
    monkeypatch.setenv("WATCHDOG_PID", str(os.getpid()))
    monkeypatch.setenv("WATCHDOG_USEC", "0")
    assert watchdog_interval_seconds() is None


def test_pings_stop_when_the_writer_is_stuck() -> None:
    looks: list[bool] = []
    pings = 0

    class Counting(Notifier):
        def ping(self) -> bool:
            nonlocal pings
            pings += 1
            return True

    async def run() -> None:
        async with anyio.create_task_group() as group:

            def alive() -> bool:
                looks.append(len(looks) < 2)
                if len(looks) == 5:
                    group.cancel_scope.cancel()
                return looks[-1]

            group.start_soon(watchdog, Counting(""), 0.0, alive)

    anyio.run(run)
    assert (pings, len(looks)) == (2, 5)


def test_the_status_is_told_when_it_changes() -> None:
    texts = iter(["a", "a", "b", "b", "c"])
    sent: list[str] = []

    class Recording(Notifier):
        def status(self, text: str) -> bool:
            sent.append(text)
            return True

    async def run() -> None:
        async with anyio.create_task_group() as group:

            def text() -> str:
                now = next(texts)
                if now == "c":
                    group.cancel_scope.cancel()
                return now

            group.start_soon(tell_status, Recording(""), 0.0, text)

    anyio.run(run)
    assert ["b", "c"] == sent
