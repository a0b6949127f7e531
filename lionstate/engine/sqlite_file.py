"""The file of a SQLite store and the library that opens it: judged, claimed and given back."""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

from lionstate.engine.libraries import claim_file, is_affected, load_module, release_file
from lionstate.engine.other_names import named_openers, openers_by_another_name
from lionstate.engine.ownership import StoreLock
from lionstate.engine.rights import what_is_not_writable
from lionstate.engine.settings import EngineSettings
from lionstate.errors import BackendUnavailableError, InvalidInputError, SchemaError

__all__ = ["SqliteFile"]

_MOVED = (
    "the store's file was moved, replaced or removed while it is open here, and its path does not name it any more;"
    " nothing was written. Put that file back in its place and this goes on by itself; or stop this process, and start"
    " it on the file that is meant"
)
_OPENED_ELSEWHERE = (
    "{} has this very file open under another name: it was moved or linked meanwhile (or its -shm was removed). Each"
    " name has a write-ahead log of its own, and writes through both destroy the file; nothing was changed. Stop that"
    " process first, which completes the file wherever it is by then; or put it back under the name that it had"
)
_NOT_WRITABLE = (
    "the store cannot be written: this user may not write {}; nothing was changed. Run as the owner of the store, or"
    " let this user write there (chmod, chown, or a mount that is not read-only); who only reads may open it read-only"
)
_LOG_LOST = (
    "the write-ahead log (-wal) of the store was removed, replaced or moved while it is open here; nothing was written"
    " now. What was acknowledged before is in the log that is still open, and goes from there into the store's file at"
    " once. Stop this process in order, which completes that, and start it again; or put that very log back. Never"
    " remove the log of an open store"
)
# A look costs as much as a statement: no more of them than this under load. What is written in between is where the
# writes just before are.
_LOOK_SECONDS = 0.005


def _refuse_to_write(path: Path) -> None:
    if path.stat().st_nlink > 1:
        # SQLite names the log and its locks after the path: two names are two logs, and commits are lost.
        raise BackendUnavailableError("the store file has several hard links; open it under one name only")
    if (closed := what_is_not_writable(path)) is not None:
        raise BackendUnavailableError(_NOT_WRITABLE.format(closed))
    if others := openers_by_another_name(path):
        raise BackendUnavailableError(_OPENED_ELSEWHERE.format(named_openers(others)), reason="opened_elsewhere")


class SqliteFile:
    """What this process holds of one store file before and besides its connections."""

    def __init__(self, path: Path | None, settings: EngineSettings) -> None:
        """Load and judge the library.

        Raises:
            SchemaError: The library has the WAL-reset race and the settings refuse it (design decision 33).
            BackendUnavailableError: The library is not installed.
        """
        self.path = path
        self._readonly = settings.readonly
        self.module: ModuleType = load_module(settings.sqlite_module)
        self.version: tuple[int, int, int] = self.module.sqlite_version_info
        self.affected = is_affected(self.version)
        if self.affected and settings.affected_sqlite == "refuse":
            raise SchemaError(
                f"SQLite {self.version_text} has the WAL-reset race (fixed in 3.44.6, 3.50.7 and 3.51.3) and"
                " database.affected_sqlite is refuse"
            )
        self._claim: tuple[int, int] | None = None
        self._lock: StoreLock | None = None
        self._in_use = False
        # What had the path's name when it was opened, and the text of that path: the look is part of every batch.
        self._opened_as: tuple[int, int, int, int] | None = None
        self._name = "" if path is None else os.fspath(path)
        self._looked_at = 0.0
        self._log_is_in_place: Callable[[], bool] = lambda: True

    @property
    def version_text(self) -> str:
        """The library's version."""
        return ".".join(map(str, self.version))

    def claim(self, *, own: bool) -> None:
        """Note which library opens the file; nothing is made, so that a look may still refuse it.

        Args:
            own: Whether `take` will be asked for the owner's lock.
        Raises:
            BackendUnavailableError: The path cannot be used; or, unless it is only read, the store cannot be written,
                or a process has its file open under another name (``opened_elsewhere``).
            TwoSqliteLibrariesError: Another SQLite library of this process would hold the same file.

        Cost: a few ``stat`` and one read of the system's list of locks.
        """
        path = self.path
        if path is None:
            if self._readonly or own:
                raise InvalidInputError("a memory store cannot be read-only or owned")
            return
        if path.is_dir():
            raise BackendUnavailableError("the store path is a folder")
        if self._readonly and not path.is_file():
            raise BackendUnavailableError("a read-only store must be a file that exists")
        try:
            if not path.exists():
                return
            self._claim = claim_file(path, self.module.__name__)
            if not self._readonly:
                _refuse_to_write(path)
        except OSError as error:
            raise BackendUnavailableError(f"the store's file cannot be looked at: {error.strerror}") from error

    def take(self, *, own: bool) -> None:
        """Make folder and file if they are missing, and take the owner's lock if asked for.

        Raises:
            BackendUnavailableError: Something cannot be made.
            OwnershipConflictError: Another process owns the store.
            TwoSqliteLibrariesError: As `claim`.
        """
        path = self.path
        if path is None:
            return
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if own:
                lock = StoreLock(path)
                lock.acquire()
                self._lock = lock
            if self._claim is None:
                self._claim = claim_file(path, self.module.__name__)
        except OSError as error:
            raise BackendUnavailableError(f"the store's file cannot be made: {error.strerror}") from error

    def opened(self) -> None:
        """The store is open: what was made for it stays when it is released, and its path shall go on naming it."""
        self._in_use = True
        if self.path is not None and not self._readonly:
            # Not the claim: on a layered file system the file is another one once it was opened for writing.
            self._opened_as = self._named()

    def watch_log(self, is_in_place: Callable[[], bool]) -> None:
        """From now on the file is in place only while its log is: ``is_in_place`` says what its keeper saw last."""
        self._log_is_in_place = is_in_place

    def _named(self) -> tuple[int, int, int, int] | None:
        """Device and number of what has the path's name now, and of the file that this leads to; None without one.

        A link to the open file is not the open file: SQLite looks for the write-ahead log beside what it leads to.
        """
        try:
            name = found = os.lstat(self._name)
            if stat.S_ISLNK(name.st_mode):
                found = os.stat(self._name)
        except (FileNotFoundError, NotADirectoryError):
            return None
        return name.st_dev, name.st_ino, found.st_dev, found.st_ino

    def require_in_place(self) -> None:
        """Nothing while the path names the file that is open; a file that cannot be looked at may be that.

        Raises:
            BackendUnavailableError: It names another file or none, or its log does (``store_moved``): what is written
                now would be looked for in vain by whoever opens the path.

        Cost: one ``stat``, at most every 5 ms; not for the event loop.
        """
        if self._opened_as is None:
            return
        if (now := time.monotonic()) - self._looked_at >= _LOOK_SECONDS:
            try:
                named = self._named()
            except OSError:
                return
            if named != self._opened_as:
                raise BackendUnavailableError(_MOVED, reason="store_moved")
            self._looked_at = now
        if not self._log_is_in_place():
            raise BackendUnavailableError(_LOG_LOST, reason="store_moved")

    @property
    def size_bytes(self) -> int:
        """Size of the file, by ``stat``; 0 for a memory store and for a file that is not there yet."""
        return self.path.stat().st_size if self._claim is not None and self.path is not None else 0

    def release(self) -> None:
        """Forget the claim and give the owner's lock back; after the last connection is closed."""
        if self._claim is not None:
            release_file(self._claim, self.module.__name__)
            self._claim = None
        if self._lock is not None:
            self._lock.release(refused=not self._in_use)
            self._lock = None
