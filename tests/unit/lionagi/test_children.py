"""The bridge goes along into processes that LionAGI starts, and harms no others."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lionstate.lionagi.children import bridge_children


def _run(code: str, environment: dict[str, str]) -> str:
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert (0, "") == (done.returncode, done.stderr)
    return done.stdout.strip()


@pytest.fixture
def environment() -> dict[str, str]:
    """Of a bridged process."""
    found = {"PATH": os.environ["PATH"]}
    bridge_children(daemon="unix:/d.sock", allow_unverified=False, environment=found)
    return found


def test_says_how_the_child_is_to_be_bridged() -> None:
    found = {"PYTHONPATH": "/mine"}
    for _ in range(2):
        bridge_children(daemon="unix:/d.sock", allow_unverified=True, environment=found)
    folder, mine = found["PYTHONPATH"].split(os.pathsep)
    assert (Path(folder, "sitecustomize.py").exists(), "/mine") == (True, mine)
    assert ("unverified", "unix:/d.sock") == (found["LIONSTATE_LIONAGI"], found["LIONSTATE_DAEMON"])


def test_a_child_that_does_not_use_lionagi_imports_nothing_of_it(environment: dict[str, str]) -> None:
    code = "import sys; print(sorted(n for n in sys.modules if n.startswith(('lionstate', 'lionagi', 'sqlalchemy'))))"
    assert "[]" == _run(code, environment)


def test_the_sitecustomize_behind_it_runs_too(tmp_path: Path, environment: dict[str, str]) -> None:
    (tmp_path / "sitecustomize.py").write_text("import builtins\nbuiltins.seen = 'mine'\n")
    environment["PYTHONPATH"] += os.pathsep + str(tmp_path)
    assert "mine" == _run("print(seen)", environment)


@pytest.mark.parametrize("where", ["child", "grandchild"])
def test_a_child_that_uses_lionagi_is_bridged(tmp_path: Path, environment: dict[str, str], where: str) -> None:
    """A stand-in for LionAGI: the installation refuses it, which shows that it was asked."""
    (tmp_path / "lionagi" / "state").mkdir(parents=True)
    for name in ("__init__", "state/__init__", "state/db"):
        (tmp_path / "lionagi" / f"{name}.py").write_text("")
    environment["PYTHONPATH"] += os.pathsep + str(tmp_path)
    code = (
        "import lionstate.errors\n"
        "try:\n    import lionagi.state.db\n"
        "except lionstate.errors.UnverifiedLionagiError as error:\n    print('refused', str(error)[:40])"
    )
    if where == "grandchild":
        code = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {code!r}], check=True)"
    assert "refused this is not the LionAGI that the bridge " == _run(code, environment) + " "
