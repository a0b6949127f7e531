"""Opening one SQLite connection: which file, which pragmas, in which order."""

from __future__ import annotations

import time
from pathlib import Path
from types import ModuleType
from typing import Any
from urllib.parse import quote

from sqlalchemy import Connection, create_engine
from sqlalchemy.pool import StaticPool

from lionstate.engine.mounts import shared_file_system
from lionstate.engine.settings import EngineSettings
from lionstate.errors import BackendUnavailableError

__all__ = ["LOCK_SLICE_MS", "connect", "open_connection"]

LOCK_SLICE_MS = 100
_CACHED_STATEMENTS = 512
# The writer has what LionAGI gives a connection; the readers, of which there are several, share as much.
_WRITER_CACHE_KIB = 64_000
_READER_CACHE_KIB = 16_000


def open_connection(
    module: ModuleType, path: Path | None, settings: EngineSettings, *, writer: bool, vfs: str | None = None
) -> Any:
    """Open a driver connection in autocommit mode and set its pragmas (reference §2.0, design §2.3).

    Args:
        module: The DBAPI module.
        path: The store file; None for a memory store.
        settings: Durability and waiting.
        writer: The writer waits in slices; a reader of a WAL store waits for nothing but recovery.
        vfs: A SQLite VFS by name, for tests.
    """
    if path is None:
        driver = module.connect(":memory:", isolation_level=None, check_same_thread=False)
    else:
        options = [_read_access(path, settings)] if settings.readonly else []
        options += [f"vfs={vfs}"] if vfs else []
        name = f"file:{quote(str(path))}" + ("?" + "&".join(options) if options else "")
        driver = module.connect(
            name,
            uri=True,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=_CACHED_STATEMENTS,
        )
    try:
        _set_pragmas(driver, module, path, settings, writer=writer)
    except BaseException:
        driver.close()
        raise
    return driver


def _read_access(path: Path, settings: EngineSettings) -> str:
    # Reading a WAL store makes a log and its index; whoever closes last removes them, but only a handle that could
    # write does. ``query_only`` keeps it from writing. A log that is there already is its writers' business.
    tidy = settings.tidy and not path.with_name(f"{path.name}-wal").exists()
    return "mode=rw" if tidy else "mode=ro"


def _set_pragmas(driver: Any, module: ModuleType, path: Path | None, settings: EngineSettings, *, writer: bool) -> None:
    driver.execute(f"PRAGMA busy_timeout = {settings.busy_timeout_ms}")
    if settings.readonly:
        driver.execute("PRAGMA query_only = 1")
        return
    if path is not None:
        _refuse_shared(driver, path)
        _switch_to_wal(driver, module, settings.busy_timeout_ms / 1000)
    driver.execute(f"PRAGMA synchronous = {settings.synchronous}")
    driver.execute("PRAGMA foreign_keys = ON")
    driver.execute(f"PRAGMA cache_size = -{_WRITER_CACHE_KIB if writer else _READER_CACHE_KIB}")
    driver.execute("PRAGMA wal_autocheckpoint = 0")
    driver.execute(f"PRAGMA busy_timeout = {LOCK_SLICE_MS if writer else settings.busy_timeout_ms}")


def _refuse_shared(driver: Any, path: Path) -> None:
    """Refuse to give a store a log where that is not safe; one that has a log keeps it, it may be in use."""
    kind = shared_file_system(path.parent)
    if kind is not None and driver.execute("PRAGMA journal_mode").fetchone()[0] != "wal":
        raise BackendUnavailableError(
            f"the store's folder is on {kind}, a file system that machines share, where a write-ahead log is not safe;"
            " nothing was changed: put the store on a local disk, or use PostgreSQL"
        )


def _switch_to_wal(driver: Any, module: ModuleType, wait_seconds: float) -> None:
    """Set WAL; several processes opening a new file at once get BUSY here whatever their busy timeout."""
    give_up = time.monotonic() + wait_seconds
    while True:
        try:
            mode = driver.execute("PRAGMA journal_mode").fetchone()[0]
            if mode != "wal":
                mode = driver.execute("PRAGMA journal_mode = WAL").fetchone()[0]
        except module.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() >= give_up:
                raise
            time.sleep(0.01)
        else:
            if mode != "wal":
                raise BackendUnavailableError(f"the file system does not carry a write-ahead log (journal mode {mode})")
            return


def connect(driver: Any, module: ModuleType) -> Connection:
    """Put SQLAlchemy's Connection around one driver connection."""
    engine = create_engine(
        "sqlite+pysqlite://", creator=lambda: driver, poolclass=StaticPool, module=module, hide_parameters=True
    )
    return engine.connect()
