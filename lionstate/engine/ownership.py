"""The operating system's lock that makes one daemon the owner of a SQLite store (design decision 27)."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from lionstate.errors import BackendUnavailableError, OwnershipConflictError

__all__ = ["StoreLock"]


class StoreLock:
    """An exclusive lock on a file of its own beside the store; the store file itself is never opened for it.

    The lock ends with the process, however it ends; the file stays, because removing it would let two owners hold
    locks on two files of one name.
    """

    def __init__(self, store: Path) -> None:
        """Name the lock of ``store``."""
        self.path = store.with_name(f"{store.name}.lionstated.lock")
        self._handle: int | None = None

    def acquire(self) -> None:
        """Take the lock without waiting.

        Raises:
            OwnershipConflictError: Another process has it; the message names its id.
            BackendUnavailableError: The lock file cannot be made.
        """
        try:
            handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise BackendUnavailableError(f"the store's lock file cannot be made: {error.strerror}") from error
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            owner = os.pread(handle, 32, 0).decode("ascii", "replace").strip()
            os.close(handle)
            raise OwnershipConflictError(f"the store is owned by process {owner or 'unknown'}") from error
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
        self._handle = handle

    def owner(self) -> str | None:
        """The id of the process that has the lock now, ``unknown`` if it did not say; None if nobody has it."""
        try:
            handle = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            return None
        try:
            # Shared, so that two processes that ask do not take each other for the owner.
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return os.pread(handle, 32, 0).decode("ascii", "replace").strip() or "unknown"
        finally:
            os.close(handle)
        return None

    def release(self) -> None:
        """Give the lock back; may be repeated."""
        handle, self._handle = self._handle, None
        if handle is not None:
            os.ftruncate(handle, 0)
            os.close(handle)
