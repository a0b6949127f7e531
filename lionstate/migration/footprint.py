"""What the machine says of a store's files: by ``stat``, never by opening one (design §2.4)."""

from __future__ import annotations

import os
import shutil

from lionstate.engine import StoreURL

__all__ = ["free_disk_bytes", "log_bytes"]


def free_disk_bytes(url: StoreURL) -> int | None:
    """Free space where a SQLite store lies; None for a server's or a memory store, whose disk is not seen here."""
    if url.path is None:
        return None
    try:
        return shutil.disk_usage(url.path.resolve().parent).free
    except OSError:
        return None


def log_bytes(url: StoreURL) -> int | None:
    """Size of a SQLite store's write-ahead log, 0 without one; None where there is no such file to look at."""
    if url.path is None:
        return None
    try:
        return os.stat(f"{url.path}-wal").st_size
    except FileNotFoundError:
        return 0
    except OSError:
        return None
