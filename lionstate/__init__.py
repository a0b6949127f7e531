"""A typed async store for agent runtimes: sessions, branches, messages and ordered progressions."""

from __future__ import annotations

from lionstate.client import StateClient
from lionstate.db import StateDB
from lionstate.facade import NO_CURSOR_CLAIM

__all__ = ["NO_CURSOR_CLAIM", "StateClient", "StateDB", "__version__"]

__version__ = "0.1.0"
