"""The installed units under a systemd that is PID 1: what `inside.py` does there, each check one test."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import lionstate
import lionstated
from tests.deploy.checks import names_of, result_of
from tests.support.deployment import hidden_from_units, install_systemd, run, tool

SYSTEM_PYTHON = "/usr/bin/python3"
HERE = Path(__file__).parent
# What the units import, and the program that looks at them.
_SEEN_INSIDE = (
    Path(sysconfig.get_path("purelib")),
    Path(lionstate.__file__).parents[1],
    Path(lionstated.__file__).parents[1],
)
CGROUPS = (Path("/sys/fs/cgroup/unified"), Path("/sys/fs/cgroup"))

_TARGET = """[Unit]
Wants=lionstate-check.service
AllowIsolate=yes
"""
_CHECK = """[Unit]
After=basic.target
Wants=basic.target
[Service]
Type=oneshot
ExecStart={python} {program}
ExecStopPost=systemctl --no-block poweroff
StandardOutput=append:/out/check.log
StandardError=append:/out/check.log
TimeoutStartSec=240
"""


_COMMAND = """#!/opt/lionstate/bin/python3
from lionstated.__main__ import main

main()
"""


def _install_package(tree: Path) -> None:
    """Make /opt/lionstate of the system's Python, with the packages of these tests: a home is closed to the unit."""
    environment = tree / "opt/lionstate"
    code, text = run(SYSTEM_PYTHON, "-m", "venv", "--without-pip", environment)
    assert 0 == code, text
    [packages] = environment.glob("lib/python*/site-packages")
    if packages.parent.name != f"python3.{sys.version_info.minor}":
        pytest.skip(f"the system has {packages.parent.name}, these packages are of 3.{sys.version_info.minor}")
    (packages / "tests.pth").write_text("\n".join(dict.fromkeys(map(str, _SEEN_INSIDE))))
    (environment / "bin/lionstated").write_text(_COMMAND)
    (environment / "bin/lionstated").chmod(0o755)


@pytest.fixture(scope="module")
def seen() -> Iterator[dict[str, Any]]:
    """What was seen inside, by check."""
    if os.geteuid() != 0:
        pytest.skip("needs root: it makes namespaces")
    for path in (HERE, *_SEEN_INSIDE):
        if (reason := hidden_from_units(path)) is not None:
            pytest.skip(reason)
    tool("unshare")
    hierarchy = next((path for path in CGROUPS if (path / "cgroup.procs").exists()), None)
    if hierarchy is None:
        pytest.skip("needs a cgroup v2 hierarchy")
    group = hierarchy / f"lionstate-check-{os.getpid()}"
    group.mkdir()
    folder = Path(tempfile.mkdtemp(prefix="lsboot"))
    try:
        units = install_systemd(folder / "tree")
        _install_package(folder / "tree")
        (folder / "out").mkdir()
        (folder / "out").chmod(0o777)
        (units / "lionstate-check.target").write_text(_TARGET)
        (units / "lionstate-check.service").write_text(_CHECK.format(python=SYSTEM_PYTHON, program=HERE / "inside.py"))
        command = 'echo $$ > "$1/cgroup.procs"; shift; exec "$@"'
        namespaces = ("--pid", "--fork", "--kill-child", "--mount", "--uts", "--ipc", "--net", "--cgroup")
        done = subprocess.run(
            ["bash", "-c", command, "_", group, "unshare", *namespaces, HERE / "boot.sh", folder],
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        result = folder / "out" / "seen.json"
        logs = "\n".join(path.read_text()[-4000:] for path in sorted((folder / "out").glob("*.log")))
        assert result.exists(), f"exit {done.returncode}\n{done.stdout[-4000:]}{done.stderr[-4000:]}{logs}"
        found = result_of(result)
        if not all(one["ok"] for one in found.values()):
            print(logs)
        yield found
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        for child in sorted(group.rglob("*"), reverse=True):
            if child.is_dir():
                child.rmdir()
        group.rmdir()


@pytest.mark.parametrize("name", names_of(HERE / "inside.py"))
def test_seen(seen: dict[str, Any], name: str) -> None:
    assert seen[name]["ok"], seen[name]["seen"]
