"""One open handle per store for parts of a program that do not know of each other."""

from __future__ import annotations

import asyncio
from pathlib import Path

from lionstate.db import StateDB
from lionstate.engine import StoreURL
from lionstate.errors import ClosedError, InvalidInputError

__all__ = ["close_shared_db", "get_shared_db", "register_shared_db", "unregister_shared_db"]

_handles: dict[str, StateDB] = {}
_guards: dict[asyncio.AbstractEventLoop, asyncio.Lock] = {}
_closings = 0


def _guard() -> asyncio.Lock:
    loop = asyncio.get_running_loop()
    for known in [known for known in _guards if known.is_closed()]:
        del _guards[known]
    return _guards.setdefault(loop, asyncio.Lock())


async def get_shared_db(path: str | Path | None = None) -> StateDB:
    """The open handle of a store, opened by the first who asks.

    Args:
        path: A path or URL; there is no default store (design §8).
    Raises:
        InvalidInputError: No store was named.
        ClosedError: ``close_shared_db`` ran while this call waited.

    Contract: reference §2.0 "Shared registry".
    """
    if path is None:
        raise InvalidInputError("no store given: a shared handle needs a path or a URL")
    key = StoreURL.of(path).text
    found = _handles.get(key)
    if found is not None:
        return found
    closings = _closings
    async with _guard():
        if closings != _closings:
            raise ClosedError("the shared stores were closed meanwhile")
        found = _handles.get(key)
        if found is None:
            found = await StateDB(path).open()
            _handles[key] = found
        return found


async def register_shared_db(db: StateDB) -> None:
    """File an open handle under its URL; a different one that is filed there is closed first.

    Contract: reference §2.0 "Shared registry".
    """
    async with _guard():
        before = _handles.get(db.url)
        if before is not None and before is not db:
            await before.close()
        _handles[db.url] = db


def unregister_shared_db(db: StateDB) -> None:
    """Forget this very handle, if it is filed; it is not closed.

    Contract: reference §2.0 "Shared registry".
    """
    if _handles.get(db.url) is db:
        del _handles[db.url]


async def close_shared_db() -> None:
    """Close and forget all; may be repeated.

    Raises:
        ClosedError: Some handles could not be closed; they stay filed, and the message names their stores.

    Contract: reference §2.0 "Shared registry".
    """
    global _closings
    _closings += 1
    async with _guard():
        failed: list[str] = []
        causes: list[Exception] = []
        for key, db in list(_handles.items()):
            try:
                await db.close()
            except Exception as error:
                failed.append(str(db.path or StoreURL.of(key).masked))
                causes.append(error)
            else:
                del _handles[key]
        if failed:
            raise ClosedError(f"could not be closed: {', '.join(failed)}") from causes[0]
