"""An AsyncEngine on aiosqlite that uses the process's one SQLite library (no monkeypatch)."""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import aiosqlite
from aiosqlite.core import Connection as AioConnection
from sqlalchemy.dialects.sqlite.aiosqlite import AsyncAdapt_aiosqlite_dbapi
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import AsyncAdaptedQueuePool

__all__ = ["create_sqlite_engine"]

_FROM_MODULE = (
    "DatabaseError",
    "Error",
    "IntegrityError",
    "NotSupportedError",
    "OperationalError",
    "ProgrammingError",
    "sqlite_version",
    "sqlite_version_info",
)


def create_sqlite_engine(open_driver: Callable[[], Any], module: ModuleType, size: int) -> AsyncEngine:
    """A pool of read-only connections for ``read_snapshot``; transactions begin by hand."""

    def connect(*_args: Any, **_options: Any) -> AioConnection:
        return AioConnection(open_driver, 64)

    shim = SimpleNamespace(**{name: getattr(aiosqlite, name) for name in dir(aiosqlite) if name[0] != "_"})
    for name in _FROM_MODULE:
        setattr(shim, name, getattr(module, name))
    shim.connect = connect
    dbapi: Any = AsyncAdapt_aiosqlite_dbapi
    return create_async_engine(
        "sqlite+aiosqlite://",
        module=dbapi(shim, module),
        poolclass=AsyncAdaptedQueuePool,
        pool_size=size,
        max_overflow=0,
        hide_parameters=True,
    )
