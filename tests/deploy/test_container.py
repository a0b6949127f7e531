"""The image, built from its context and run without root, capabilities and a writable root: one test a check.

The base is a Debian made by debootstrap (80 s), or the folder that LIONSTATE_TEST_ROOT names.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.demo.processes import free_port
from tests.deploy.checks import names_of, result_of
from tests.support.deployment import DEPLOY, REPOSITORY, run, tool

HERE = Path(__file__).parent
_CGROUPS = 'umount -R /sys/fs/cgroup && mount -t cgroup2 cgroup2 /sys/fs/cgroup && exec "$@"'


@pytest.fixture(scope="module")
def seen() -> Iterator[dict[str, Any]]:
    """What was seen, by check."""
    if os.geteuid() != 0:
        pytest.skip("needs root: it makes namespaces")
    for name in ("podman", "buildah", "unshare"):
        tool(name)
    folder = Path(tempfile.mkdtemp(prefix="lsimage"))
    try:
        if (given := os.environ.get("LIONSTATE_TEST_ROOT")) is not None:
            (folder / "root").symlink_to(given)
        else:
            packages = "--include=python3,python3-venv"
            code, text = run(tool("debootstrap"), "--variant=minbase", packages, "bookworm", folder / "root")
            assert 0 == code, text[-2000:]
        code, text = run("make", "--no-print-directory", "--directory", REPOSITORY, "image-context")
        assert 0 == code, text[-2000:]
        shutil.copytree(REPOSITORY / "build/image", folder / "image")
        compose = Path(sys.executable).with_name("docker-compose")
        command = [sys.executable, HERE / "container_inside.py", folder, str(free_port())]
        command += [compose] if compose.exists() else []
        done = subprocess.run(
            ["unshare", "--mount", "--propagation=private", "bash", "-c", _CGROUPS, "_", *command],
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert (folder / "seen.json").exists(), done.stdout + done.stderr
        yield result_of(folder / "seen.json")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.parametrize("name", names_of(HERE / "container_inside.py"))
def test_seen(seen: dict[str, Any], name: str) -> None:
    if name == "composed":
        tool("docker-compose")
    assert seen[name]["ok"], seen[name]["seen"]


def test_hadolint_has_nothing_to_say() -> None:
    assert (0, "") == run(tool("hadolint"), DEPLOY / "container/Dockerfile")


@pytest.mark.parametrize("profile", ["", "postgresql", "prometheus"])
def test_compose_takes_the_file(profile: str) -> None:
    folder = DEPLOY / "container"
    chosen = ("--env-file", folder / f"{profile}.env", "--profile", profile) if profile else ()
    assert (0, "") == run(tool("docker-compose"), "--file", folder / "compose.yaml", *chosen, "config", "--quiet")


@pytest.mark.parametrize("name", sorted(path.name for path in (DEPLOY / "kubernetes").iterdir()))
def test_kubernetes_takes_the_manifests(name: str) -> None:
    """PodMonitor is not of Kubernetes itself, and only read."""
    code, text = run(tool("kubernetes-validate"), "--strict", DEPLOY / "kubernetes" / name)
    assert 0 == code, text
    assert "passed" in text or name == "podmonitor.yaml"
