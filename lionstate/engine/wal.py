"""The write-ahead log of a SQLite store: how far it is checkpointed, and when to checkpoint (design decision 23)."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lionstate.engine.observer import Observer

__all__ = ["Checkpoint", "WalKeeper"]

_OWN_FRAMES = 1_000
_NOOP_SINCE = (3, 51, 0)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """One row of ``PRAGMA wal_checkpoint``: frames, not success, are what it says.

    Attributes:
        busy: Whether SQLite reports that it was blocked.
        log: Frames in the log; -1 outside WAL mode.
        checkpointed: Frames moved into the database; -1 outside WAL mode.
    """

    busy: int
    log: int
    checkpointed: int

    @property
    def pending(self) -> int:
        """Frames that a crash would have to recover; 0 when there is no log."""
        return max(0, self.log - self.checkpointed)

    @property
    def outcome(self) -> str:
        """``complete`` when every frame has moved (whatever ``busy`` says), else ``busy`` or ``partial``."""
        if self.log >= 0 and self.pending == 0:
            return "complete"
        return "busy" if self.busy else "partial"


class WalKeeper:
    """Counts the frames of one writer connection and checkpoints PASSIVE; used on the writer thread only."""

    def __init__(self, driver: Any, version: tuple[int, int, int], path: Path | None, observer: Observer) -> None:
        """Watch the log beside ``path``; a memory store has none."""
        self._driver = driver
        self._has_noop = version >= _NOOP_SINCE
        self._path = path
        self._observer = observer
        self._estimated_frames = 0
        self._changes = int(driver.total_changes)
        self._log_frames = 0
        self._data_version = self._read_data_version()
        self.last = Checkpoint(0, 0, 0)

    def _read_data_version(self) -> int:
        return int(self._driver.execute("PRAGMA data_version").fetchone()[0])

    def after_commit(self) -> None:
        """Count what the commit added, checkpoint when there are enough own frames."""
        if self._path is None:
            return
        if self._has_noop:
            self._look()
            if self.last.pending >= _OWN_FRAMES:
                self.checkpoint("PASSIVE")
            return
        changes = int(self._driver.total_changes)
        self._estimated_frames += 2 + 2 * (changes - self._changes)
        self._changes = changes
        if self._estimated_frames >= _OWN_FRAMES:
            self.checkpoint("PASSIVE")

    def _look(self) -> None:
        before = self.last.log
        self.last = Checkpoint(*self._driver.execute("PRAGMA wal_checkpoint(NOOP)").fetchone())
        grown = self.last.log - before if self.last.log >= before else self.last.log
        self._observer.wal_written(max(0, grown) * 4096)
        self._observer.wal(self.last.log, self.last.checkpointed, self.wal_bytes())

    def wal_bytes(self) -> int:
        """Size of the log file by ``stat``; 0 if there is none."""
        if self._path is None:
            return 0
        try:
            return os.stat(f"{self._path}-wal").st_size
        except OSError:
            return 0

    def saw_foreign_commit(self) -> bool:
        """Whether another connection committed since this was last asked (SQLite's ``data_version``)."""
        version = self._read_data_version()
        changed = version != self._data_version
        self._data_version = version
        return changed

    def tick(self) -> None:
        """The 1 s timer: checkpoint while others commit, and refresh the signal."""
        if self._path is None:
            return
        if self.saw_foreign_commit():
            self._observer.foreign_commit()
            self.checkpoint("PASSIVE")
        elif self._has_noop:
            self._look()

    def checkpoint(self, mode: str) -> Checkpoint:
        """Run one checkpoint; other modes than PASSIVE never wait for readers or writers."""
        started = time.perf_counter()
        waiting = self._driver.execute("PRAGMA busy_timeout").fetchone()[0]
        try:
            if mode != "PASSIVE":
                self._driver.execute("PRAGMA busy_timeout = 0")
            row = self._driver.execute(f"PRAGMA wal_checkpoint({mode})").fetchone()
        except Exception:
            self._observer.checkpoint(mode, "error", time.perf_counter() - started)
            raise
        finally:
            if mode != "PASSIVE":
                self._driver.execute(f"PRAGMA busy_timeout = {waiting}")
        self.last = Checkpoint(*row)
        self._estimated_frames = self.last.pending if not self._has_noop else 0
        self._observer.checkpoint(mode, self.last.outcome, time.perf_counter() - started)
        self._observer.wal(self.last.log, self.last.checkpointed, self.wal_bytes())
        return self.last

    def close_down(self) -> None:
        """Empty the log at shutdown, unless a reader pins it: TRUNCATE only when PASSIVE moved every frame."""
        if self._path is not None and self.checkpoint("PASSIVE").outcome == "complete":
            self.checkpoint("TRUNCATE")
