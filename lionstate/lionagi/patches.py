"""What takes the place of LionAGI 0.36.0's functions that read or write progressions (reference §3.1 to §3.3)."""

from __future__ import annotations

import argparse
import dataclasses
import functools
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from contextvars import ContextVar
from typing import Any, Final, TypeAlias

from lionstate.errors import MalformedCollectionError
from lionstate.lionagi.connection import has_tables, run_inside
from lionstate.lionagi.handle import Handle, Options, handle_of, is_bridged
from lionstate.lionagi.verbs import mount, run_verb
from lionstate.lionagi.views import AsyncConnectionView, DriverView, View
from lionstate.progression.append import append_to_progression
from lionstate.progression.reads import get_progression
from lionstate.progression.replace import create_progression, set_progression
from lionstate.records.live import insert_messages, record_message

__all__ = ["Patch", "PatchesOf", "patches"]

Patch: TypeAlias = Callable[[Any], Any]
"""Makes the replacement of the original that it is given."""
PatchesOf: TypeAlias = Mapping[str, Patch]
"""By qualified name within a module."""

# Inside a call of a deleting function: its transactions see progressions where their authority is.
_deleting: ContextVar[bool] = ContextVar("lionstate_deleting", default=False)

_MARKER: Final = "_lionagi_auto_marker"
_READ_ALONE: Final = "SELECT collection FROM progressions WHERE id = ?"


def patches(options: Options) -> Mapping[str, PatchesOf]:
    """Every replacement, by module and qualified name."""
    by_handle = _StateDB(options)
    return {
        "lionagi.state.db": {
            "StateDB.create_progression": functools.partial(by_handle.whole, create_progression),
            "StateDB.set_progression": functools.partial(by_handle.whole, set_progression),
            "StateDB.get_progression": by_handle.get_progression,
            "StateDB.append_to_progression": by_handle.append_to_progression,
            "StateDB.insert_messages": by_handle.insert_messages,
            "StateDB._persist_live_message": by_handle.persist_live_message,
            "StateDB.create_session": by_handle.create_session,
            "StateDB._touch_session_activity_in_tx": by_handle.touch_session_activity,
            "StateDB._close": by_handle.close,
            "StateDB.delete_imported_session": _whole_deleting,
            "StateDB._tx": _transaction,
        },
        "lionagi.cli.state": {
            "_prune": _whole_deleting,
            "run_state": functools.partial(_running_verbs, options),
        },
        "lionagi.studio.services.db_maintenance": {"_prune_session_chunk": _deleting_on_connection},
        "lionagi.studio.services.sessions": {"_open_db": _reading_pages},
        "lionagi.studio.services.admin": {"_open_db": _reading_pages},
        "lionagi.studio.scheduler.coordination": {"_worker_file_sets": _reading_files},
    }


class _StateDB:
    """Replacements of the methods of ``StateDB``, with the handle of the one that is called."""

    def __init__(self, options: Options) -> None:
        self._options = options

    def _handle(self, db: Any) -> Handle | None:
        return handle_of(db, self._options) if is_bridged(db) else None

    def whole(self, script: Callable[..., None], original: Any) -> Any:
        """A method that writes a whole collection."""

        @functools.wraps(original)
        async def write(db: Any, progression_id: str, collection: list[str] | None = None) -> None:
            if (handle := self._handle(db)) is None:
                return await _plain(original, db, progression_id, collection)
            params = {"progression_id": progression_id, "collection": collection or []}
            await handle.write(script, original, progression_id, collection, params=params)

        return write

    def append_to_progression(self, original: Any) -> Any:
        @functools.wraps(original)
        async def append(db: Any, progression_id: str, message_id: str) -> None:
            if (handle := self._handle(db)) is None:
                return await _plain(original, db, progression_id, message_id)
            params = {"progression_id": progression_id, "message_id": message_id}
            await handle.write(append_to_progression, original, progression_id, message_id, params=params)

        return append

    def get_progression(self, original: Any) -> Any:
        @functools.wraps(original)
        async def get(db: Any, progression_id: str) -> list[Any]:
            if (handle := self._handle(db)) is None:
                found: list[Any] = await original(db, progression_id)
                return found
            return await handle.read(get_progression, original, progression_id)

        return get

    def insert_messages(self, original: Any) -> Any:
        @functools.wraps(original)
        async def insert(
            db: Any,
            msgs: Sequence[dict[str, Any]],
            *,
            progression_ids: Sequence[str] = (),
            session_id: str | None = None,
            activity_at: float | None = None,
        ) -> None:
            more = {"progression_ids": progression_ids, "session_id": session_id, "activity_at": activity_at}
            if (handle := self._handle(db)) is None or not msgs:
                return await _plain(original, db, msgs, **more)
            params = {"msgs": msgs, **more, "progression_ids": list(progression_ids)}
            await handle.write(
                insert_messages,
                functools.partial(original, **more),
                msgs,
                session_id=session_id,
                params=params,
            )

        return insert

    def persist_live_message(self, original: Any) -> Any:
        @functools.wraps(original)
        async def persist(db: Any, msg: dict[str, Any], *, session_id: str, **more: Any) -> None:
            if (handle := self._handle(db)) is None:
                return await _plain(original, db, msg, session_id=session_id, **more)
            await handle.write(
                record_message,
                functools.partial(original, session_id=session_id, **more),
                msg,
                session_id=session_id,
                params={"msg": msg, "session_id": session_id, **more},
            )

        return persist

    def create_session(self, original: Any) -> Any:
        @functools.wraps(original)
        async def create(db: Any, session: dict[str, Any]) -> None:
            await original(db, session)
            if (handle := self._handle(db)) is not None:
                await handle.note(session["id"])

        return create

    def touch_session_activity(self, original: Any) -> Any:
        @functools.wraps(original)
        async def touch(db: Any, conn: Any, session_id: str, *, at: float | None = None) -> None:
            await original(db, conn, session_id, at=at)
            if (handle := self._handle(db)) is not None:
                await handle.note(session_id, conn)

        return touch

    def close(self, original: Any) -> Any:
        @functools.wraps(original)
        async def close(db: Any) -> None:
            try:
                if (handle := self._handle(db)) is not None:
                    await handle.close()
            finally:
                await original(db)

        return close


async def _plain(original: Any, *args: Any, **kwargs: Any) -> None:
    await original(*args, **kwargs)


def _whole_deleting(original: Any) -> Any:
    """A function that deletes messages nobody names, in transactions that it opens itself."""

    @functools.wraps(original)
    async def delete(*args: Any, **kwargs: Any) -> Any:
        token = _deleting.set(True)
        try:
            return await original(*args, **kwargs)
        finally:
            _deleting.reset(token)

    return delete


def _transaction(original: Any) -> Any:
    @functools.wraps(original)
    def transaction(db: Any) -> AbstractAsyncContextManager[Any]:
        opened: AbstractAsyncContextManager[Any] = original(db)
        return _deleting_transaction(opened) if _deleting.get() else opened

    return transaction


@asynccontextmanager
async def _deleting_transaction(opened: AbstractAsyncContextManager[Any]) -> AsyncIterator[Any]:
    async with opened as conn:
        yield await _view_of(conn)


def _deleting_on_connection(original: Any) -> Any:
    """A function that deletes in a transaction of its caller's."""

    @functools.wraps(original)
    async def delete(conn: Any, *args: Any, **kwargs: Any) -> Any:
        return await original(await _view_of(conn), *args, **kwargs)

    return delete


async def _view_of(conn: Any) -> Any:
    return AsyncConnectionView(conn) if await run_inside(conn, has_tables) is True else conn


def _reading_pages(original: Any) -> Any:
    """Studio's connection: its pages count and expand progressions in SQL."""

    @functools.wraps(original)
    @asynccontextmanager
    async def open_db(path: str) -> AsyncIterator[Any]:
        async with original(path) as db:
            yield await DriverView.of(db)

    return open_db


class _FileReads(View):
    """A StateDB whose read of one progression's column goes where the authority is."""

    async def fetch_one(self, sql: str, params: Any = None) -> dict[str, Any] | None:
        if sql == _READ_ALONE:
            with suppress(MalformedCollectionError):
                return {"collection": await self._inner.get_progression(params[0])}
            return None
        found: dict[str, Any] | None = await self._inner.fetch_one(sql, params)
        return found


def _reading_files(original: Any) -> Any:
    @functools.wraps(original)
    async def file_sets(db: Any, invocation_id: str) -> Any:
        return await original(_FileReads(db), invocation_id)

    return file_sets


def _with_verbs(original: Any) -> Any:
    """``li state`` with the verbs of the migration."""

    @functools.wraps(original)
    def add(subparsers: Any) -> None:
        original(subparsers)
        state: argparse.ArgumentParser = subparsers.choices["state"]
        (commands,) = (found for found in state._actions if isinstance(found, argparse._SubParsersAction))
        mount(commands)

    return add


def _running_verbs(options: Options, original: Any) -> Any:
    @functools.wraps(original)
    def run(args: argparse.Namespace) -> int:
        if args.state_command != "progression-migrate":
            code: int = original(args)
            return code
        return run_verb(args, daemon=options.daemon)

    # Where the command's parser is made was noted on the function when it was defined.
    marker = getattr(original, _MARKER)
    declared = dataclasses.replace(marker.cli, parser_factory=_with_verbs(marker.cli.parser_factory))
    setattr(run, _MARKER, dataclasses.replace(marker, cli=declared))
    return run
