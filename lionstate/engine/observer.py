"""What the engine and the queue report about themselves; the daemon's metrics implement it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

__all__ = ["Observer", "SilentObserver"]


class Observer(Protocol):
    """Receives measurements; calls may come from any thread and must not block."""

    def lock_wait(self, lane: str, seconds: float) -> None: ...
    def lock_hold(self, lane: str, seconds: float) -> None: ...
    def commit(self, lane: str, seconds: float) -> None: ...
    def pause(self, seconds: float) -> None: ...
    def checkpoint(self, mode: str, outcome: str, seconds: float) -> None: ...
    def wal(self, log_frames: int, checkpointed_frames: int, wal_bytes: int) -> None: ...
    def wal_written(self, count: int) -> None: ...
    def foreign_commit(self) -> None: ...
    def batch(self, operations: int) -> None: ...
    def queue_waits(self, seconds: Sequence[float]) -> None: ...
    def queue_depth(self, operations: int, size_bytes: int, oldest_age_seconds: float) -> None: ...
    def operation(self, name: str, outcome: str, count: int = 1) -> None: ...
    def blocked_append(self, authority: str) -> None: ...
    def compat_read(self) -> None: ...
    def dual_read(self, progression_id: str, generation: int, found: Sequence[Any]) -> None: ...
    def doubted(self, progression_id: str) -> None: ...


class SilentObserver:
    """Drops every measurement."""

    def lock_wait(self, lane: str, seconds: float) -> None:
        """Time until the write lock was held, on behalf of ``request`` or ``maintenance``."""

    def lock_hold(self, lane: str, seconds: float) -> None:
        """Time from the lock to the end of the transaction, on behalf of ``request`` or ``maintenance``."""

    def commit(self, lane: str, seconds: float) -> None:
        """Time that COMMIT took, on behalf of ``request`` or ``maintenance``."""

    def pause(self, seconds: float) -> None:
        """Time that the writer left the lock free for others."""

    def checkpoint(self, mode: str, outcome: str, seconds: float) -> None:
        """One checkpoint; outcome is ``complete``, ``partial``, ``busy`` or ``error``."""

    def wal(self, log_frames: int, checkpointed_frames: int, wal_bytes: int) -> None:
        """The write-ahead log now; -1 where it is not known."""

    def wal_written(self, count: int) -> None:
        """Bytes that were added to the write-ahead log."""

    def foreign_commit(self) -> None:
        """Another process committed to the store."""

    def batch(self, operations: int) -> None:
        """A transaction of this many operations ended."""

    def queue_waits(self, seconds: Sequence[float]) -> None:
        """Times from submission to the transaction that took these tickets."""

    def queue_depth(self, operations: int, size_bytes: int, oldest_age_seconds: float) -> None:
        """What waits in the queue now."""

    def operation(self, name: str, outcome: str, count: int = 1) -> None:
        """So many operations ended; outcome is ``written``, ``not_written``, ``overloaded``,
        ``deadline_exceeded``, ``unknown``, ``read`` or ``failed``.
        """

    def blocked_append(self, authority: str) -> None:
        """An append met a blocked progression of this authority."""

    def compat_read(self) -> None:
        """A read was served from the frozen prefix and the tail."""

    def dual_read(self, progression_id: str, generation: int, found: Sequence[Any]) -> None:
        """A read was answered from the JSON of a dual progression: all ids, or pairs of ordinal and id.

        Called on the event loop; the sequence is the caller's own and must not be changed.
        """

    def doubted(self, progression_id: str) -> None:
        """A read failed closed because what it met contradicts itself."""
