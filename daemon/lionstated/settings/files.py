"""Reads the files that settings name: whole, without waiting, and with a word for what cannot be one."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from lionstate.errors import InvalidInputError

__all__ = ["read_named", "read_private", "read_regular"]

_PRIVATE_BYTES = 64 * 1024


def _open_without_waiting(path: str, flags: int) -> int:
    # A FIFO holds whoever opens it until somebody writes, and a reload is made on the event loop.
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY)


def read_regular(path: str | Path, *, most_bytes: int = -1) -> tuple[int, bytes]:
    """The mode and the content of a regular file, or as much as ``most_bytes`` of it.

    Raises:
        OSError: It cannot be read, or is no regular file.
    """
    with open(path, "rb", opener=_open_without_waiting) as file:
        mode = os.fstat(file.fileno()).st_mode
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "not a regular file")
        return mode, file.read(most_bytes)


def read_named(path: str, setting: str, *, most_bytes: int = -1) -> tuple[int, bytes]:
    """As `read_regular`, for the file that a setting names.

    Raises:
        InvalidInputError: It cannot be read, or is no regular file.
    """
    try:
        return read_regular(path, most_bytes=most_bytes)
    except OSError as exc:
        raise InvalidInputError(f"{setting} cannot be read: {exc.strerror}: {path}") from exc


def read_private(path: str, setting: str) -> bytes:
    """The content of a file that only its owner and group can read.

    Raises:
        InvalidInputError: As `read_named`, or everybody can read or write it, or it is larger than 64 KiB.
    """
    mode, content = read_named(path, setting, most_bytes=_PRIVATE_BYTES + 1)
    if mode & 0o007:
        raise InvalidInputError(f"{setting} is open to everybody; chmod o-rwx {path}")
    if len(content) > _PRIVATE_BYTES:
        raise InvalidInputError(f"{setting} is larger than {_PRIVATE_BYTES} bytes: {path}")
    return content
