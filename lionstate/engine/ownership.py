"""The operating system's lock that makes one daemon the owner of a SQLite store (design decision 27)."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from lionstate.errors import BackendUnavailableError, OwnershipConflictError

__all__ = ["StoreLock", "lock_file"]


def lock_file(path: str | Path) -> int:
    """Open a lock file, made 0600 if it is absent, and take its lock without waiting; a descriptor that holds it.

    Who holds the lock may remove the file: a lock on a file that has lost its name counts for nothing.

    Raises:
        BlockingIOError: Another process has the lock.
        OSError: The file cannot be made.
    """
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_named(handle, path):
                return handle
        except BaseException:
            os.close(handle)
            raise
        # Between our open and our lock the previous owner removed it.
        os.close(handle)


def _is_named(handle: int, path: str | Path) -> bool:
    try:
        named = os.lstat(path)
    except FileNotFoundError:
        return False
    return os.path.samestat(os.fstat(handle), named)


class StoreLock:
    """An exclusive lock on a file of its own beside the store; the store file itself is never opened for it.

    The lock ends with the process, however it ends; its file stays, unless the store was refused after all.
    """

    def __init__(self, store: Path) -> None:
        """Name the lock of ``store``."""
        self.path = store.with_name(f"{store.name}.lionstated.lock")
        self._handle: int | None = None
        self._made = False

    def acquire(self) -> None:
        """Take the lock without waiting.

        Raises:
            OwnershipConflictError: Another process has it; the message names its id.
            BackendUnavailableError: The lock file cannot be made.
        """
        self._made = not self.path.exists()
        try:
            handle = lock_file(self.path)
        except BlockingIOError as error:
            raise OwnershipConflictError(
                f"the store is owned by process {self.owner() or 'unknown'}, a daemon or a copy: stop it first;"
                " nothing was changed"
            ) from error
        except OSError as error:
            raise BackendUnavailableError(f"the store's lock file cannot be made: {error.strerror}") from error
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

    def release(self, *, refused: bool = False) -> None:
        """Give the lock back, and remove a file that was made for a store which was ``refused``; may be repeated."""
        handle, self._handle = self._handle, None
        if handle is not None:
            os.ftruncate(handle, 0)
            if refused and self._made:
                self.path.unlink(missing_ok=True)
            os.close(handle)
