"""Replacements go into modules that are loaded, and into the others when they are imported."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lionstate.lionagi.modules import Patched

SOURCE = "def f():\n    return 1\n\n\nclass C:\n    def m(self):\n        return 2\n\n\ng = f\n"


def _plus_ten(original: Any) -> Any:
    return lambda *args: original(*args) + 10


WANTED = {"f": _plus_ten, "C.m": _plus_ten, "missing": _plus_ten, "Missing.m": _plus_ten}


@pytest.fixture
def name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A module that can be imported and is not loaded."""
    name = "lionstate_patched_module"
    (tmp_path / f"{name}.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    yield name
    sys.modules.pop(name, None)


@pytest.mark.parametrize("loaded", [True, False])
def test_replaces_and_puts_back(name: str, loaded: bool) -> None:
    if loaded:
        importlib.import_module(name)
    finders = list(sys.meta_path)
    patched = Patched({name: WANTED})
    module = importlib.import_module(name)
    assert (11, 12, 1) == (module.f(), module.C().m(), module.g())
    assert module.__spec__ is not None
    assert module.__loader__ is module.__spec__.loader
    patched.remove()
    assert (1, 2) == (module.f(), module.C().m())
    assert finders == sys.meta_path


def test_leaves_a_module_that_is_imported_after_the_removal_alone(name: str) -> None:
    Patched({name: WANTED}).remove()
    assert 1 == importlib.import_module(name).f()


def test_leaves_other_modules_alone(name: str) -> None:
    patched = Patched({"lionstate_other_module": WANTED})
    try:
        assert 1 == importlib.import_module(name).f()
    finally:
        patched.remove()
