"""Puts replacements into modules that are loaded, and into the others when they are imported."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from lionstate.lionagi.patches import PatchesOf

__all__ = ["Patched", "resolve"]


class Patched:
    """The replacements of one installation; ``remove`` puts everything back."""

    def __init__(self, wanted: Mapping[str, PatchesOf]) -> None:
        """Patch what is loaded, and from now on what is imported.

        Args:
            wanted: By module. What a module does not have is left out (only an unverified installation meets that).
        """
        self._wanted = wanted
        self._originals: list[tuple[Any, str, Any]] = []
        self._finder = _Finder(self)
        sys.meta_path.insert(0, self._finder)
        for name in wanted:
            module = sys.modules.get(name)
            if module is not None:
                self.apply(module)

    def wants(self, name: str) -> bool:
        """Whether a module has replacements."""
        return name in self._wanted

    def apply(self, module: ModuleType) -> None:
        """Put this module's replacements in."""
        for name, make in self._wanted[module.__name__].items():
            owner, attribute = resolve(module, name)
            original = None if owner is None else vars(owner).get(attribute)
            if original is not None:
                self._originals.append((owner, attribute, original))
                setattr(owner, attribute, make(original))

    def remove(self) -> None:
        """Put the originals back, the last replacement first."""
        sys.meta_path.remove(self._finder)
        for owner, attribute, original in reversed(self._originals):
            setattr(owner, attribute, original)
        self._originals.clear()


def resolve(module: ModuleType, name: str) -> tuple[Any, str]:
    """The object that has an attribute of this qualified name, None if there is none, and the attribute."""
    *path, attribute = name.split(".")
    owner: Any = module
    for step in path:
        owner = getattr(owner, step, None)
    return owner, attribute


class _Finder(MetaPathFinder):
    """Finds a module as the others do, and has it patched when it has run."""

    def __init__(self, patched: Patched) -> None:
        self._patched = patched

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if not self._patched.wants(fullname):
            return None
        for finder in sys.meta_path:
            spec = None if finder is self else finder.find_spec(fullname, path, target)
            if spec is not None:
                if spec.loader is not None:
                    spec.loader = _Loader(spec.loader, self._patched)
                return spec
        return None


class _Loader(Loader):
    """Runs a module by its own loader, which then is the module's loader again."""

    def __init__(self, inner: Any, patched: Patched) -> None:
        self._inner = inner
        self._patched = patched

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        found: ModuleType | None = self._inner.create_module(spec)
        return found

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = self._inner
        module.__loader__ = self._inner
        self._inner.exec_module(module)
        self._patched.apply(module)
