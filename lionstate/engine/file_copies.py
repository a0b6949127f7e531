"""Whole SQLite files: copied from a snapshot, checked, and taken out of use before another takes their place."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any, Final

from sqlalchemy import Connection

from lionstate.dialects.sqlite_words import said
from lionstate.engine.pragmas import open_connection
from lionstate.engine.settings import EngineSettings
from lionstate.errors import BackendBusyError, DifferenceError

__all__ = ["SIDE_FILES", "check_file", "copy_file", "damage_of", "put_in_place", "remove_database"]

_STEP_PAGES: Final = 2_000
_DAMAGES_NAMED: Final = 100
SIDE_FILES: Final = ("-wal", "-shm", "-journal")
"""What SQLite adds to a file's name for its own files."""


def copy_file(conn: Connection, path: Path, on_step: Callable[[int, int], None]) -> None:
    """Copy the database of a reader's connection, as the running snapshot sees it, into an empty file.

    The snapshot must have begun: then commits of other connections do not make the copy start anew. The file is left
    without a write-ahead log, so that it is whole by itself.

    Args:
        conn: A connection inside a read transaction that has read something.
        path: The file to fill.
        on_step: Called with pages done and pages in all.
    """
    driver: Any = conn.connection.dbapi_connection
    library: Any = conn.dialect.dbapi
    copy = library.connect(str(path), isolation_level=None)
    try:
        driver.backup(copy, pages=_STEP_PAGES, progress=lambda _status, left, total: on_step(total - left, total))
        copy.execute("PRAGMA journal_mode = DELETE")
    finally:
        copy.close()


def check_file(path: Path, module: ModuleType, change: Callable[[Any], None] | None = None) -> None:
    """Have SQLite look at every page and index of a file that nobody else uses; then change something.

    Args:
        path: The file.
        module: The DBAPI module.
        change: Called with the driver's connection in one transaction.
    Raises:
        DifferenceError: The file is damaged.
    """
    driver = module.connect(str(path), isolation_level=None)
    try:
        try:
            (found,) = driver.execute("PRAGMA integrity_check(1)").fetchone()
        except module.DatabaseError as error:
            raise DifferenceError("the copy is no database that can be read") from error
        if found != "ok":
            raise DifferenceError(f"the copy is damaged: {found}")
        if change is not None:
            driver.execute("BEGIN IMMEDIATE")
            change(driver)
            driver.execute("COMMIT")
    finally:
        driver.close()


def damage_of(path: Path, module: ModuleType) -> list[str]:
    """Have SQLite look at every page of a store that may be in use; it is only read.

    Returns:
        What is wrong, by page and never by content, at most 100 findings; [] when nothing is.

    Cost: one pass over the file in one snapshot, which keeps the write-ahead log long meanwhile.
    """
    try:
        driver = open_connection(module, path, EngineSettings(readonly=True, tidy=True), writer=False)
    except module.DatabaseError as error:
        return [said(error)]
    try:
        found = [str(line) for (line,) in driver.execute(f"PRAGMA quick_check({_DAMAGES_NAMED})")]
    except module.DatabaseError as error:
        found = [said(error)]
    finally:
        driver.close()
    return [] if found == ["ok"] else found


def put_in_place(new: Path, path: Path, module: ModuleType) -> None:
    """Let ``new`` take the place of a database that no process has open; its log goes with it.

    Raises:
        BackendBusyError: A process has it open.
    """
    if path.exists():
        _close_down(path, module)
    remove_database(path, main=False)
    os.replace(new, path)
    folder = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def _close_down(path: Path, module: ModuleType) -> None:
    """Take the one lock that no other connection leaves free, whatever it does, and give up the log."""
    driver = module.connect(str(path), isolation_level=None, timeout=1.0)
    try:
        driver.execute("PRAGMA locking_mode = EXCLUSIVE")
        driver.execute("BEGIN EXCLUSIVE")
        driver.execute("COMMIT")
        driver.execute("PRAGMA journal_mode = DELETE")
    except module.DatabaseError as error:
        if getattr(error, "sqlite_errorcode", 0) & 0xFF in (5, 6):
            raise BackendBusyError("a process has the store open: stop it first") from error
        # Damaged, or no database at all: that is why it is replaced.
    finally:
        driver.close()


def remove_database(path: Path, *, main: bool = True) -> None:
    """Remove a database's side files, and with ``main`` itself; missing ones are no error."""
    for suffix in (*SIDE_FILES, *([""] if main else [])):
        with suppress(FileNotFoundError):
            os.unlink(f"{path}{suffix}")
