"""What the store factory hands over to the composition root: an open store and what lives on it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any

from .api import NewsLike, StoreLike, Verb
from .board import Sources
from .metrics import Metrics
from .settings import Settings
from .supervision import Service

__all__ = ["Parts", "StoreFactory"]


async def _nothing() -> None:
    return None


async def _no_doubt() -> bool:
    return False


async def _no_queue(seconds: float) -> None:
    return None


@dataclass(slots=True)
class Parts:
    """What the store factory hands over: an open store and what lives on it."""

    store: StoreLike
    close: Callable[[], Awaitable[None]] = _nothing
    # Refuses new writes, runs the waiting ones for so many seconds and answers the rest as not written.
    drain: Callable[[float], Coroutine[Any, Any, None]] = _no_queue
    verbs: Mapping[str, Verb] = field(default_factory=dict)
    # Child services by name; None where there is none of that name.
    maintenance: Service | None = None
    delivery: Service | None = None
    # Wakes who waits for items.
    news: NewsLike | None = None
    # Whether the writer answers; the watchdog and /livez follow it.
    alive: Callable[[], bool] = lambda: True
    # One line for the service manager: what is done, and what is waited for.
    summary: Callable[[], str] = lambda: "serving"
    # What the status page tells of the store.
    sources: Sources = field(default_factory=Sources)
    # Writes something and takes it away again; while writes fail it is tried until it succeeds.
    probe: Callable[[], Awaitable[Any]] = _nothing
    # Reads something, whoever calls or not; True when writes are in doubt, which are then tried by `probe`.
    look: Callable[[], Awaitable[bool]] = _no_doubt
    # Takes what says why the daemon is not ready; None when it is.
    watch_readiness: Callable[[Callable[[], str | None]], None] = lambda why: None
    # Takes the settings that may change while the store is open.
    reload: Callable[[Settings], None] = lambda settings: None


StoreFactory = Callable[[Settings, Metrics], Coroutine[Any, Any, Parts]]
