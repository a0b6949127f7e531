"""Both commands at their edges: Ctrl-C while they import, and output that nobody takes."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from lionstate import StateDB
from tests.e2e.conftest import LIONSTATE, clean_environment
from tests.support.children import output_of

LIONSTATED = str(Path(LIONSTATE).with_name("lionstated"))
STATUS = [LIONSTATE, "progression-migrate", "status"]
NO_SPACE = "the output cannot be written: No space left on device\n"


@pytest.mark.parametrize(
    ("command", "module"),
    [
        ([LIONSTATE, "--version"], "typer"),
        ([*STATUS, "--url", "x.db"], "sqlalchemy"),
        ([LIONSTATED, "--database-url", "x.db"], "anyio"),
        ([sys.executable, "-m", "lionstated", "--database-url", "x.db"], "sqlalchemy"),
    ],
)
def test_ctrl_c_while_it_imports(folder: Path, command: list[str], module: str) -> None:
    """fault 40: one line and 130, and no traceback of whatever was being imported."""
    (folder / "path").mkdir()
    slow = "import os, threading\nos.write(1, b'importing')\nthreading.Event().wait()\n"
    (folder / "path" / f"{module}.py").write_text(slow)
    (folder / "x.db").write_bytes(b"")
    env = clean_environment(PYTHONPATH=str(folder / "path"), PYTHONDONTWRITEBYTECODE="1")
    with subprocess.Popen(command, stdout=-1, stderr=-1, env=env, cwd=folder) as process:
        assert process.stdout is not None
        assert b"importing" == process.stdout.read(9)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=20)
    name = "lionstated" if "lionstated" in " ".join(command) else "lionstate"
    assert (130, b"", f"{name}: interrupted\n".encode()) == (process.returncode, out, err)
    assert ["path", "x.db"] == sorted(os.listdir(folder))
    assert 0 == (folder / "x.db").stat().st_size


def test_a_password_leaves_the_process_list_before_anything_is_imported(folder: Path) -> None:
    """Imports take seconds on a busy machine, and everybody can read arguments meanwhile."""
    (folder / "path").mkdir()
    (folder / "path" / "anyio.py").write_text(
        "import os, threading\nos.write(1, b'importing')\nthreading.Event().wait()\n"
    )
    env = clean_environment(PYTHONPATH=str(folder / "path"), PYTHONDONTWRITEBYTECODE="1")
    for command in ([LIONSTATED], [sys.executable, "-m", "lionstated"]):
        for url in (["--database-url", "postgresql://u:hidden@h/d"], ["--database-url=host=h password=hidden"]):
            with subprocess.Popen([*command, *url], stdout=-1, env=env) as process:
                assert process.stdout is not None
                assert b"importing" == process.stdout.read(9)
                shown = Path(f"/proc/{process.pid}/cmdline").read_bytes()
                process.kill()
            assert (False, True) == (b"hidden" in shown, b"lionstated" in shown)


async def _made(path: Path) -> None:
    async with StateDB(path):
        pass


@pytest.fixture
def store(folder: Path) -> Path:
    """An empty store."""
    asyncio.run(_made(folder / "s.db"))
    return folder / "s.db"


def commands(store: Path) -> list[list[str]]:
    return [
        [*STATUS, "--url", str(store)],
        [*STATUS, "--json", "--url", str(store)],
        [LIONSTATE, "--version"],
        [LIONSTATE, "--help"],
        [LIONSTATE, "progression-migrate", "--help"],
        [LIONSTATED, "--help"],
        [LIONSTATED, "--check-config"],
    ]


def test_a_full_disk_under_the_output(store: Path) -> None:
    """Design §8: 1, and one line, of the command and not of the interpreter."""
    for command in commands(store):
        with open("/dev/full", "wb") as full:
            done = subprocess.run(command, stdout=full, stderr=-1, text=True, env=clean_environment(), check=False)
        assert (1, f"{Path(command[0]).name}: {NO_SPACE}") == (done.returncode, done.stderr), command


def test_a_reader_that_went_away(store: Path) -> None:
    """As other programs end in `… | head -1`: by SIGPIPE, without a word."""
    for command in commands(store):
        reading, writing = os.pipe()
        os.close(reading)
        done = subprocess.run(command, stdout=writing, stderr=-1, env=clean_environment(), check=False)
        os.close(writing)
        assert (-signal.SIGPIPE, b"") == (done.returncode, done.stderr), command


def test_a_closed_output(store: Path) -> None:
    """The store's file does not become the standard output."""
    before = store.read_bytes()
    for command in commands(store):
        shell = ["/bin/sh", "-c", 'exec "$@" >&-', "sh", *command]
        done = subprocess.run(shell, capture_output=True, env=clean_environment(), check=False)
        assert (0, b"", b"") == (done.returncode, done.stdout, done.stderr), command
    assert before == store.read_bytes()


def test_help_imports_no_database() -> None:
    program = """
        import sys
        import lionstate.cli.commands
        print(sorted({"sqlalchemy", "aiohttp", "msgspec", "asyncio", "rich.progress"} & set(sys.modules)))
        import lionstate
        print(lionstate.StateDB.__name__, lionstate.StateClient.__name__, hasattr(lionstate, "nothing"))
    """
    assert "[]\nStateDB StateClient False\n" == output_of(program)
