"""The installed units under a systemd that is PID 1: what `inside.py` does there, each check one test."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.deploy import inside
from tests.support.deployment import install_systemd, tool

HERE = Path(__file__).parent
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


@pytest.fixture(scope="module")
def seen() -> Iterator[dict[str, Any]]:
    """What was seen inside, by check."""
    if os.geteuid() != 0:
        pytest.skip("needs root: it makes namespaces")
    tool("unshare")
    hierarchy = next((path for path in CGROUPS if (path / "cgroup.procs").exists()), None)
    if hierarchy is None:
        pytest.skip("needs a cgroup v2 hierarchy")
    group = hierarchy / f"lionstate-check-{os.getpid()}"
    group.mkdir()
    folder = Path(tempfile.mkdtemp(prefix="lsboot"))
    try:
        units = install_systemd(folder / "tree")
        (folder / "out").mkdir()
        (folder / "out").chmod(0o777)
        (units / "lionstate-check.target").write_text(_TARGET)
        (units / "lionstate-check.service").write_text(_CHECK.format(python=sys.executable, program=HERE / "inside.py"))
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
        found = json.loads(result.read_text())
        for name, one in found.items():
            print(f"{'ok    ' if one['ok'] else 'FAILED'} {name}: {one['seen']}")
        if not all(one["ok"] for one in found.values()):
            print(logs)
        yield found
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        for child in sorted(group.rglob("*"), reverse=True):
            if child.is_dir():
                child.rmdir()
        group.rmdir()


@pytest.mark.parametrize("name", [one.__name__ for one in inside.checks])
def test_seen(seen: dict[str, Any], name: str) -> None:
    assert seen[name]["ok"], seen[name]["seen"]
