"""The write-ahead log of a SQLite store: how far it is checkpointed, and when to checkpoint (design decision 23)."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lionstate.engine.observer import Observer
from lionstate.errors import InvalidInputError

__all__ = ["Checkpoint", "WalKeeper"]

_OWN_FRAMES = 1_000
# While checkpoints would take more than this share of the time they wait, until the log has so many frames: they stop
# every writer, and one of a long log costs little more than one of a short log, because pages repeat in it.
_CHECKPOINT_SHARE = 0.002
# Well below what throttles migration by default.
_MOST_FRAMES = 16_000
# A look costs as much as two statements; so many frames by estimate make one worth it.
_LOOK_FRAMES = 64
# Left behind by a writer that has come to rest. Below half of the lowest limit that a throttle may have, or migration
# would wait for ever for frames that nobody moves.
_RESTING_FRAMES = 250
_LEAST_FRAMES_PER_CHANGE = 0.05
# The file is given back when it is so many times as long as the most frames that wait while nobody pins them.
_LARGE_LOGS = 2
_NOOP_SINCE = (3, 51, 0)
_FRAME_HEADER_BYTES = 24
_MODES = ("PASSIVE", "FULL", "RESTART", "TRUNCATE")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """One row of ``PRAGMA wal_checkpoint``: frames, not success, are what it says.

    Attributes:
        busy: Whether SQLite reports that it was blocked.
        log: Frames in the log; -1 outside WAL mode and while another connection checkpoints.
        checkpointed: Frames moved into the database; -1 likewise.
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
        if self.pending == 0 and (self.log >= 0 or not self.busy):
            return "complete"
        return "busy" if self.busy else "partial"


class WalKeeper:
    """Counts the frames of one writer connection and checkpoints PASSIVE; used on the writer thread only."""

    def __init__(self, driver: Any, version: tuple[int, int, int], path: Path | None, observer: Observer) -> None:
        """Watch the log beside ``path``; a memory store has none."""
        self._driver = driver
        self._has_noop = version >= _NOOP_SINCE
        self._log_path = None if path is None else f"{path}-wal"
        self._observer = observer
        self._own_frames = 0
        # Seen since the last try; the log begins anew at any length, so its length alone does not tell.
        self._seen_frames = 0
        # Since the log was last looked at.
        self._changes = int(driver.total_changes)
        self._commits = 0
        self._frames_per_change = float(_LOOK_FRAMES) if self._has_noop else 2.0
        self._frame_bytes = int(self._pragma("page_size")) + _FRAME_HEADER_BYTES
        self._data_version = int(self._pragma("data_version"))
        self._unfinished = False
        self._committed = False
        self._checkpointed_at = 0.0
        self._checkpoint_seconds = 0.0
        self.last = Checkpoint(0, 0, 0)
        # By now the connection has it open, and nobody removes or replaces it in order before it closes that.
        self._opened_as = self._named()
        self.is_in_place = True

    def _pragma(self, name: str) -> Any:
        return self._driver.execute(f"PRAGMA {name}").fetchone()[0]

    def after_commit(self) -> None:
        """Count what the commit added; checkpoint after enough own frames since the last try, moved or not.

        After 1,000 frames, or up to 16,000 while checkpoints take more than 0.2 % of the time.
        """
        if self._log_path is None:
            return
        self._commits += 1
        self._committed = True
        changes = int(self._driver.total_changes) - self._changes
        added = max(2.0 * self._commits, self._frames_per_change * changes)
        if self._has_noop and added >= _LOOK_FRAMES:
            self._look()
            added = 0.0
        self._own_frames = int(added) + self._seen_frames
        if self._own_frames >= _OWN_FRAMES and (self._own_frames >= _MOST_FRAMES or self._is_rested()):
            self.checkpoint("PASSIVE")

    def _is_rested(self) -> bool:
        """Whether the last checkpoint was so short, or is so long ago, that another may follow."""
        return time.perf_counter() - self._checkpointed_at >= self._checkpoint_seconds / _CHECKPOINT_SHARE

    def _look(self) -> None:
        self._note(Checkpoint(*self._driver.execute("PRAGMA wal_checkpoint(NOOP)").fetchone()))

    def _note(self, found: Checkpoint) -> None:
        if found.log >= 0:
            grown = found.log - self.last.log if found.log >= self.last.log else found.log
            self._observer.wal_written(grown * self._frame_bytes)
            self.last = found
            self._seen_frames += grown
            self._learn(grown)
        self._observer.wal(self.last.log, self.last.checkpointed, self.wal_bytes())

    def _learn(self, grown: int) -> None:
        """How many frames a change takes: rows of one batch share pages, one large value takes a thousand."""
        changes = int(self._driver.total_changes) - self._changes
        if changes > 0:
            self._frames_per_change = max(_LEAST_FRAMES_PER_CHANGE, grown / changes)
        self._count_anew()

    def _count_anew(self) -> None:
        self._changes = int(self._driver.total_changes)
        self._commits = 0

    def wal_bytes(self) -> int:
        """Size of the log file by ``stat``; 0 if there is none."""
        if self._log_path is None:
            return 0
        try:
            return os.stat(self._log_path).st_size
        except OSError:
            return 0

    def _named(self) -> tuple[int, int] | None:
        """Device and number of what has the log's name now; None without one."""
        if self._log_path is None:
            return None
        try:
            found = os.lstat(self._log_path)
        except (FileNotFoundError, NotADirectoryError):
            return None
        return found.st_dev, found.st_ino

    def _look_at_file(self) -> bool:
        """Look whether the log's name leads to the open log; whether this is the first look at which it does not.

        A log that cannot be looked at may be that.
        """
        was = self.is_in_place
        with suppress(OSError):
            found = self._named()
            if self._opened_as is None:
                self._opened_as = found
            self.is_in_place = found == self._opened_as
        return was and not self.is_in_place

    def saw_foreign_commit(self) -> bool:
        """Whether another connection committed since this was last asked (SQLite's ``data_version``)."""
        version = int(self._pragma("data_version"))
        changed = version != self._data_version
        self._data_version = version
        return changed

    def tick(self) -> None:
        """The 1 s timer: checkpoint while others commit or frames are left over, and refresh the signal.

        Frames are left over when a reader has pinned them, and when nothing was committed since the last tick. Those
        of a log that has lost its name go at once: whoever opens the store next finds only what has moved. A file that
        has grown far beyond what is needed is emptied as soon as all of it has moved.
        """
        if self._log_path is None:
            return
        lost = self._look_at_file()
        foreign = self.saw_foreign_commit()
        if foreign:
            self._observer.foreign_commit()
        rests, self._committed = not self._committed, False
        if self._has_noop:
            self._look()
        left = self.last.pending if self._has_noop else self._own_frames
        if self.wal_bytes() > _LARGE_LOGS * _MOST_FRAMES * self._frame_bytes:
            # A reader let it grow; SQLite begins it anew at that length, and the disk would never see the rest again.
            self.checkpoint("TRUNCATE")
        elif lost or foreign or self._unfinished or (rests and left >= _RESTING_FRAMES):
            self.checkpoint("PASSIVE")

    def checkpoint(self, mode: str) -> Checkpoint:
        """Run one checkpoint that waits for nobody.

        Args:
            mode: In any case. FULL, RESTART and TRUNCATE run with a busy timeout of 0, and only when a PASSIVE one
                has moved every frame; else its result is returned as busy.
        Raises:
            InvalidInputError: No such mode.
        """
        mode = mode.upper()
        if mode not in _MODES:
            raise InvalidInputError(f"a checkpoint is one of {', '.join(_MODES)}")
        passive = self._run("PASSIVE")
        if mode == "PASSIVE":
            return passive
        if passive.outcome != "complete":
            return Checkpoint(1, passive.log, passive.checkpointed)
        waiting = self._pragma("busy_timeout")
        self._driver.execute("PRAGMA busy_timeout = 0")
        try:
            return self._run(mode)
        finally:
            self._driver.execute(f"PRAGMA busy_timeout = {waiting}")

    def _run(self, mode: str) -> Checkpoint:
        started = time.perf_counter()
        self._own_frames = 0
        try:
            found = Checkpoint(*self._driver.execute(f"PRAGMA wal_checkpoint({mode})").fetchone())
        except Exception:
            self._observer.checkpoint(mode, "error", time.perf_counter() - started)
            self._unfinished = True
            self._count_anew()
            raise
        self._checkpointed_at = time.perf_counter()
        self._checkpoint_seconds = self._checkpointed_at - started
        self._observer.checkpoint(mode, found.outcome, self._checkpoint_seconds)
        self._note(found)
        # Also when another connection was at it and nothing was learned: not again at the next commit.
        self._count_anew()
        self._unfinished = found.outcome != "complete"
        self._seen_frames = 0
        return found

    def vacuum(self) -> None:
        """Rebuild the file and empty the log; needs free space of the size of the store."""
        self._driver.execute("VACUUM")
        self.checkpoint("PASSIVE")

    def close_down(self) -> None:
        """Empty the log at shutdown, unless a reader pins it."""
        if self._log_path is not None:
            self.checkpoint("TRUNCATE")
