"""Contract tests borrowed by a module that runs them on a store of another make."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any

__all__ = ["borrowed_from"]


def borrowed_from(*modules: ModuleType) -> dict[str, Callable[..., Any]]:
    """The test functions of modules, each under its module's name and its own."""
    return {
        f"{found.__name__}__{module.__name__.rpartition('.')[2].removeprefix('test_')}": found
        for module in modules
        for name, found in vars(module).items()
        if name.startswith("test_") and callable(found)
    }
