"""A typed async store for agent runtimes: sessions, branches, messages and ordered progressions."""

from __future__ import annotations

import importlib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from lionstate.client import StateClient
    from lionstate.db import StateDB
    from lionstate.facade import NO_CURSOR_CLAIM

__all__ = ["NO_CURSOR_CLAIM", "StateClient", "StateDB", "__version__"]

__version__ = "0.1.0"


# Imported when asked for: the commands begin with this module, and half a second of imports comes behind these.
_HOMES = {
    "NO_CURSOR_CLAIM": "lionstate.facade",
    "StateClient": "lionstate.client",
    "StateDB": "lionstate.db",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(importlib.import_module(home), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
