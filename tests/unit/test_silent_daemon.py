"""A daemon that has the connection and does not answer: no command waits for it as long as its work may take."""

from __future__ import annotations

import os
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer

from lionstate.cli import target
from lionstate.cli.doctor import doctor
from lionstate.cli.options import run_on_migration
from lionstate.engine.ownership import StoreLock
from lionstate.errors import DaemonUnreachableError


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A store that this process owns, and a socket beside it whose connections nobody accepts."""
    monkeypatch.setattr(target, "_ANSWER_SECONDS", 0.2)
    with tempfile.TemporaryDirectory(prefix="ls") as folder, socket.socket(socket.AF_UNIX) as listening:
        path = Path(folder, "state.db")
        path.touch(0o600)
        lock = StoreLock(path)
        lock.acquire()
        listening.bind(f"{path}.sock")
        os.chmod(f"{path}.sock", 0o600)
        listening.listen(8)
        yield path
        lock.release()


@pytest.mark.parametrize("names", ["url", "daemon"])
def test_a_command_gives_up_early_and_names_the_process(silent: Path, names: str) -> None:
    where = (str(silent), None, None) if names == "url" else (None, f"{silent}.sock", None)
    with pytest.raises(DaemonUnreachableError, match=f"process {os.getpid()} owns the store, and does not answer"):
        run_on_migration(where, lambda service: service.preflight(), reads=True)


def test_doctor_advises_to_wake_it(silent: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(typer.Exit) as ended:
        doctor(url=str(silent))
    told = capsys.readouterr().out
    assert DaemonUnreachableError().exit_code == ended.value.exit_code
    assert f"process {os.getpid()} owns the store" in told and "kill -CONT" in told
    assert "start the daemon, or name" not in told
