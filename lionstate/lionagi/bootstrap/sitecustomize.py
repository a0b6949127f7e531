"""Installs the bridge in a process that LionAGI started, when that imports LionAGI's store (see `children`).

Runs at the start of every Python below a bridged `li`: it imports nothing large and lets no error out.
"""

from __future__ import annotations

import os
import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

_HERE = os.path.dirname(os.path.abspath(__file__))


class _OnImport(MetaPathFinder):
    """The first import of LionAGI's store installs the bridge."""

    def find_spec(self, fullname: str, path: Any, target: ModuleType | None = None) -> ModuleSpec | None:
        if fullname != "lionagi.state.db" or self not in sys.meta_path:
            return None
        sys.meta_path.remove(self)
        try:
            from lionstate.lionagi import install
        except ImportError:
            return None
        install(
            daemon=os.environ.get("LIONSTATE_DAEMON"),
            token=os.environ.get("LIONSTATE_TOKEN"),
            allow_unverified=os.environ["LIONSTATE_LIONAGI"] == "unverified",
        )
        for finder in sys.meta_path:
            spec = finder.find_spec(fullname, path, target)
            if spec is not None:
                return spec
        return None


def _run_hidden() -> None:
    """Run the `sitecustomize` that stands behind this one."""
    paths = [path for path in sys.path if os.path.abspath(path or ".") != _HERE]
    spec = PathFinder.find_spec("sitecustomize", paths)
    if spec is not None and spec.loader is not None:
        spec.loader.exec_module(sys.modules[__name__])


if os.environ.get("LIONSTATE_LIONAGI"):
    sys.meta_path.insert(0, _OnImport())
_run_hidden()
