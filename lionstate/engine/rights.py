"""Whether this process may write a SQLite file and what lies beside it: SQLite opens what it may only read as well."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

__all__ = ["what_is_not_writable"]

_LOG_FILES: Final = ("-wal", "-shm")


def what_is_not_writable(path: Path) -> str | None:
    """The first thing without which nothing can be written to the store: its file, its log, or their folder, by path.

    A folder in which nobody can make a file is good enough while the log and its index are there.

    Returns:
        None when all can be written. Whoever may pass over modes (root, as a rule) writes all but a read-only mount.

    Cost: four questions to the file system; nothing is opened.
    """
    name = os.path.realpath(path)
    beside = [f"{name}{suffix}" for suffix in _LOG_FILES]
    there = [file for file in beside if os.path.exists(file)]
    for file in (name, *there):
        if not _may(file, os.W_OK):
            return file
    folder = os.path.dirname(name)
    return None if there == beside or _may(folder, os.W_OK | os.X_OK) else f"the folder {folder}"


def _may(name: str, mode: int) -> bool:
    # The other call only where the answers can differ: container run-times that do not know it refuse it.
    differs = (os.getuid(), os.getgid()) != (os.geteuid(), os.getegid())
    return os.access(name, mode, effective_ids=differs and os.access in os.supports_effective_ids)
