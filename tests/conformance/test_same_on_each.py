"""The suite is one: the same node ids on each of the five backends."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.conftest import COLLECTED
from tests.support.backends import BACKENDS

FOLDER = Path(__file__).parent
ROOT = FOLDER.parent.parent

# Files whose tests belong to no backend by nature, and why.
APART = {
    "test_lionagi_store.py": "reads a file that LionAGI 0.36.0 wrote, and its default store is SQLite",
    "test_same_on_each.py": "looks at the others",
}


def _split(node: str) -> tuple[str | None, str]:
    """The backend that a node id names and the rest of it; the fixture's parameter stands first or last."""
    name, _, parameters = node.removesuffix("]").partition("[")
    # The longest first: `daemon-sqlite` ends as `sqlite` does.
    for backend in sorted(BACKENDS, key=len, reverse=True):
        if parameters == backend:
            return backend, name
        if parameters.startswith(f"{backend}-"):
            return backend, f"{name}[{parameters[len(backend) + 1 :]}]"
        if parameters.endswith(f"-{backend}"):
            return backend, f"{name}[{parameters[: -len(backend) - 1]}]"
    return None, node


def _differences(nodes: Iterable[str]) -> tuple[list[str], dict[str, list[str]]]:
    """Node ids that name no backend, and per backend those that others have and it has not."""
    per_backend: dict[str, set[str]] = {backend: set() for backend in BACKENDS}
    alone = []
    for node in nodes:
        backend, rest = _split(node)
        if backend is None:
            alone.append(node)
        else:
            per_backend[backend].add(rest)
    every = set().union(*per_backend.values())
    missing = {backend: sorted(every - found) for backend, found in per_backend.items() if every - found}
    return alone, missing


def _all_nodes(config: pytest.Config) -> list[str]:
    """The node ids of the folder: those of this run, or of a collection of its own when files were left out."""
    folder = FOLDER.relative_to(ROOT).as_posix()
    nodes = [node for node in config.stash[COLLECTED] if node.startswith(f"{folder}/")]
    files = {path.name for path in FOLDER.glob("test_*.py")}
    if files == {Path(node.partition("::")[0]).name for node in nodes} and not any("::" in arg for arg in config.args):
        return nodes
    command = [sys.executable, "-m", "pytest", folder, "--collect-only", "-q", "-p", "no:cacheprovider"]
    told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [line for line in told.splitlines() if "::" in line]


@pytest.mark.timeout(300)
def test_every_backend_has_the_same_node_ids(request: pytest.FixtureRequest) -> None:
    """Equal = the same node ids pass on each; what a backend lacks is asserted in a test, not left out."""
    nodes = _all_nodes(request.config)
    alone, missing = _differences(nodes)
    assert {} == missing
    assert sorted(APART) == sorted({Path(node.partition("::")[0]).name for node in alone})
    assert len(nodes) - len(alone) >= 400 * len(BACKENDS)


def test_a_test_that_one_backend_lacks_is_named() -> None:
    nodes = [f"a.py::test_a[{backend}]" for backend in BACKENDS]
    nodes += [f"a.py::test_b[{backend}-case-1]" for backend in BACKENDS if backend != "sqlite"]
    nodes += [f"a.py::test_c[json-{backend}]" for backend in BACKENDS if backend != "daemon-postgresql"]
    missing = {"sqlite": ["a.py::test_b[case-1]"], "daemon-postgresql": ["a.py::test_c[json]"]}
    assert (["a.py::test_d"], missing) == _differences([*nodes, "a.py::test_d"])
