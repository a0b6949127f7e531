"""Which SQLite library a process uses: one, never two on one file (design §2.4), and what its version means."""

from __future__ import annotations

import importlib
import os
import threading
from contextlib import suppress
from pathlib import Path
from types import ModuleType

from lionstate.errors import BackendUnavailableError, TwoSqliteLibrariesError

__all__ = ["claim_file", "is_affected", "load_module", "release_file"]

_lock = threading.Lock()
_open_files: dict[tuple[int, int], list[str]] = {}
_FIXED_BACKPORTS = {(3, 44): 6, (3, 50): 7}


def load_module(choice: str) -> ModuleType:
    """The DBAPI module for ``auto``, ``stdlib`` or ``pysqlite3``.

    Raises:
        BackendUnavailableError: pysqlite3 was asked for and is not installed.
    """
    if choice in ("auto", "pysqlite3"):
        try:
            return importlib.import_module("pysqlite3.dbapi2")
        except ImportError as error:
            if choice == "pysqlite3":
                raise BackendUnavailableError(
                    "database.sqlite_module is pysqlite3, which is not installed: install lionstate[daemon]"
                ) from error
    return importlib.import_module("sqlite3")


def is_affected(version: tuple[int, int, int]) -> bool:
    """Whether this SQLite has the WAL-reset race (3.7.0 to 3.51.2, fixed in 3.44.6, 3.50.7 and 3.51.3)."""
    if version < (3, 7, 0) or version >= (3, 51, 3):
        return False
    return version[2] < _FIXED_BACKPORTS.get(version[:2], 1 << 30)


def _mapped_libraries() -> set[str]:
    """Files with SQLite code mapped into this process; empty where the system does not tell."""
    try:
        lines = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return set()
    paths = {line.split(maxsplit=5)[5] for line in lines if line.count(" ") >= 5 and "/" in line}
    mapped = set()
    for path in paths:
        name = path.rsplit("/", 1)[-1]
        if name.startswith("libsqlite3") or ("pysqlite3" in path and "_sqlite3" in name):
            mapped.add(path)
    return mapped


def _is_open_here(identity: tuple[int, int]) -> bool:
    for number in os.listdir("/proc/self/fd"):
        try:
            found = os.stat(f"/proc/self/fd/{number}")
        except OSError:
            continue
        if (found.st_dev, found.st_ino) == identity:
            return True
    return False


def claim_file(path: Path, module: str) -> tuple[int, int]:
    """Note that this process opens ``path`` with ``module``; a file that does not exist is made, empty and 0600.

    Raises:
        TwoSqliteLibrariesError: Another SQLite library of this process has stores open, or holds this file.
        OSError: The file cannot be made or looked at.
    """
    with _lock:
        others = {name for names in _open_files.values() for name in names} - {module}
        if others:
            raise TwoSqliteLibrariesError(
                f"this process has stores open through {sorted(others)[0]}; opening one through {module} would lose"
                " commits: set database.sqlite_module to the same library"
            )
        identity = _identity(path)
        if identity not in _open_files and len(_mapped_libraries()) > 1 and _is_open_here(identity):
            raise TwoSqliteLibrariesError(
                "this process holds the store file open and has two SQLite libraries loaded; close the other handle"
            )
        _open_files.setdefault(identity, []).append(module)
        return identity


def _identity(path: Path) -> tuple[int, int]:
    try:
        found = path.stat()
    except FileNotFoundError:
        # Made here, so that its identity is known before SQLite holds it: a handle of our own could not be told from
        # another library's. O_EXCL: nobody can hold a lock on it that closing would drop. Whatever the umask, messages
        # are their owner's; SQLite gives what it adds to a file the file's own mode.
        with suppress(FileExistsError):
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        found = path.stat()
    return found.st_dev, found.st_ino


def release_file(identity: tuple[int, int], module: str) -> None:
    """Forget one ``claim_file``."""
    with _lock:
        names = _open_files.get(identity, [])
        if module in names:
            names.remove(module)
        if not names:
            _open_files.pop(identity, None)
