"""Backups of SQLite stores: taken while others write, proved, and put back only where nobody has the store open."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import shutil
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Final, Self

from sqlalchemy import Connection, delete, func, select

from lionstate.copying.comparison import sum_of
from lionstate.copying.report import OnProgress, quiet
from lionstate.copying.source import Source
from lionstate.copying.tables import COPIED
from lionstate.copying.values import hex_of
from lionstate.engine import EngineSettings, StoreURL
from lionstate.engine.file_copies import SIDE_FILES, check_file, copy_file, put_in_place, remove_database
from lionstate.engine.libraries import load_module
from lionstate.engine.ownership import StoreLock
from lionstate.errors import (
    BackendUnavailableError,
    DifferenceError,
    InvalidInputError,
    NotEmptyError,
    OwnershipConflictError,
    UnrecognizedStoreError,
)
from lionstate.schema.own import migration_lease, progression_storage_state

__all__ = ["Manifest", "backup_store", "manifest_path", "restore_store"]

_FORMAT: Final = 1
_POSTGRESQL: Final = "PostgreSQL is backed up with its own tools: pg_dump --format=custom, and pg_restore"


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a backup holds, kept beside it as JSON.

    Attributes:
        format: Of this record.
        source: The store's path.
        taken_at: Epoch seconds of the snapshot.
        size_bytes: Of the backup file.
        sha256: Of the backup file.
        phases: Progressions by phase; those without a state row are not counted.
        tables: By name, rows and digest as in ``TableCopied``.
    """

    format: int
    source: str
    taken_at: float
    size_bytes: int
    sha256: str
    phases: dict[str, int]
    tables: dict[str, tuple[int, str]]

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read what ``backup_store`` wrote.

        Raises:
            BackendUnavailableError: There is none.
            UnrecognizedStoreError: It is not one that this version reads.
        """
        try:
            stored = json.loads(path.read_text(encoding="utf-8"))
            tables = {name: (int(rows), str(digest)) for name, (rows, digest) in stored.pop("tables").items()}
            found = cls(**stored, tables=tables)
        except OSError as error:
            raise BackendUnavailableError(f"the backup's manifest cannot be read: {error.strerror}") from error
        except (ValueError, TypeError, AttributeError, KeyError) as error:
            raise UnrecognizedStoreError("the backup's manifest is not one") from error
        if found.format != _FORMAT:
            raise UnrecognizedStoreError(f"the backup's manifest has format {found.format}, not {_FORMAT}")
        return found


def manifest_path(backup: Path) -> Path:
    """Where the manifest of a backup is."""
    return backup.with_name(f"{backup.name}.manifest.json")


def _store_path(target: str | Path | StoreURL) -> Path:
    url = StoreURL.of(target)
    if url.dialect != "sqlite":
        raise InvalidInputError(_POSTGRESQL)
    if url.path is None:
        raise InvalidInputError("a memory store has no file")
    return url.path


def _holds_something(path: Path) -> bool:
    """Whether a file there must not be lost.

    Raises:
        InvalidInputError: Something else than a file is there: it would be replaced by one.
    """
    if not path.exists():
        return False
    if not path.is_file():
        raise InvalidInputError(f"{path} is no ordinary file; nothing was written")
    return path.stat().st_size > 0


def _pending_path(backup: Path) -> Path:
    """Where the manifest of a backup is until the backup has taken its place."""
    return backup.with_name(f"{backup.name}.manifest.json.new")


def _unfinished(target: Path, source: Path) -> Path:
    """The file that is made before it takes the place of ``target``; whatever has its name is removed.

    Raises:
        InvalidInputError: The source has that name, or is the target, or the name is a side file's.
    """
    if target.name.endswith(SIDE_FILES):
        raise InvalidInputError(f"{target} is the name of a database's own side file; name another")
    found = target.with_name(f".{target.name}.lionstate-unfinished")
    for path in (target, found):
        if path.exists() and source.exists() and path.samefile(source):
            raise InvalidInputError(f"{source} is read and would be written as well; name another file")
    return found


def _check_place(backup: Path, *, force: bool) -> None:
    """Refuse a place whose file somebody would miss: only a backup is ever replaced, and only when asked to."""
    if backup.is_symlink():
        raise InvalidInputError(f"{backup} is a symbolic link; name the file itself")
    owner = StoreLock(backup).owner()
    if owner is not None:
        raise OwnershipConflictError(f"{backup} is a store, and process {owner} owns it; nothing was written")
    if not _holds_something(backup):
        return
    if not force:
        raise NotEmptyError("the backup file exists; name another, or say --force")
    if not manifest_path(backup).is_file():
        raise NotEmptyError(f"{backup} is no backup (it has no manifest): remove it yourself, or name another file")


async def backup_store(
    store: str | Path,
    backup: Path,
    *,
    force: bool = False,
    settings: EngineSettings | None = None,
    on_progress: OnProgress = quiet,
) -> Manifest:
    """Write a proved copy of a SQLite store to a file, while others read and write the store.

    A reader like any other, so it may run beside the daemon; one snapshot, which pins the write-ahead log meanwhile.

    Args:
        store: Path or URL.
        backup: The file to make; its manifest goes beside it.
        force: Replace a backup that is there.
        settings: How connections behave.
        on_progress: Called with ``backup`` and pages, then ``verify`` and tables: done and in all.
    Raises:
        InvalidInputError: The store is no SQLite file (the message says what to use for PostgreSQL), or the backup
            would take the place of the store itself, of a side file or of something that is no file.
        NotEmptyError: The file exists, or is no backup.
        OwnershipConflictError: The file is a store that a daemon owns.
        DifferenceError: What was written is damaged or not what was read; the file is removed.

    Cost: reads the store once and the backup three times.
    """
    path = _store_path(store)
    unproved = _unfinished(backup, path)
    _check_place(backup, force=force)
    given = replace(settings or EngineSettings(), readonly=True, tidy=True, readers=1)
    backup.parent.mkdir(parents=True, exist_ok=True)
    remove_database(unproved)
    try:
        taken_at, expected = await _copied(path, unproved, given, on_progress)
        await asyncio.to_thread(check_file, unproved, load_module(given.sqlite_module), _clear_leases)
        async with _reading(unproved, given) as copy:
            found = await copy.run(partial(_facts, side=copy))
            if found != expected:
                raise DifferenceError("the backup does not hold the rows of the store")
            tables = await _digests(copy, on_progress)
        manifest = Manifest(
            format=_FORMAT,
            source=str(path),
            taken_at=taken_at,
            size_bytes=unproved.stat().st_size,
            sha256=await asyncio.to_thread(_sha256_of, unproved),
            phases=found.phases,
            tables=tables,
        )
        text = json.dumps(asdict(manifest), indent=1, sort_keys=True)
        # Both manifests are there while the file changes: at any moment one of them describes it.
        await asyncio.to_thread(_write_durably, _pending_path(backup), text)
        os.replace(unproved, backup)
    except BaseException:
        remove_database(unproved)
        raise
    os.replace(_pending_path(backup), manifest_path(backup))
    return manifest


async def restore_store(
    backup: Path, store: str | Path, *, force: bool = False, settings: EngineSettings | None = None
) -> Manifest:
    """Make a store of a backup, after proof that the backup is what was taken.

    Every progression that has a generation gets a new one: a reader's cursor of before may point at other rows now.

    Args:
        backup: The file; its manifest is beside it.
        store: Path or URL of the store to make.
        force: Replace a store that is there, which is lost.
        settings: How connections behave.
    Raises:
        InvalidInputError: The store is no SQLite file.
        BackendUnavailableError: There is no such backup, or no manifest.
        DifferenceError: The backup is not what its manifest says.
        NotEmptyError: There is a store.
        OwnershipConflictError: A daemon owns the store.
        BackendBusyError: A process has the store open.

    Cost: reads the backup and the new store once each.
    Contract: design decisions 4, 27.
    """
    path = _store_path(store)
    unproved = _unfinished(path, backup)
    manifests = [Manifest.load(found) for found in (_pending_path(backup), manifest_path(backup)) if found.exists()]
    if not manifests:
        raise BackendUnavailableError(f"there is no backup at {backup}, or no manifest beside it")
    if _holds_something(path) and not force:
        raise NotEmptyError("there is a store already; --force replaces it, and what it holds is lost")
    module = load_module((settings or EngineSettings()).sqlite_module)
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = StoreLock(path)
    lock.acquire()
    try:
        remove_database(unproved)
        digest = await asyncio.to_thread(_copy_and_hash, backup, unproved)
        manifest = next((found for found in manifests if found.sha256 == digest), None)
        if manifest is None:
            raise DifferenceError("the backup is not the file that its manifest describes")
        await asyncio.to_thread(check_file, unproved, module, _renew_generations)
        put_in_place(unproved, path, module)
    finally:
        remove_database(unproved)
        lock.release(refused=not path.exists())
    return manifest


@dataclass(frozen=True, slots=True)
class _Facts:
    counts: dict[str, int]
    phases: dict[str, int]


def _facts(conn: Connection, /, *, side: Source) -> _Facts:
    state = progression_storage_state.c
    phases = select(state.phase, func.count()).group_by(state.phase)
    return _Facts(
        {name: reading.count(conn) for name, reading in side.readings.items()},
        {phase: count for phase, count in conn.execute(phases)},
    )


@asynccontextmanager
async def _reading(path: Path, settings: EngineSettings) -> AsyncIterator[Source]:
    source = Source(StoreURL.of(path), settings, own=False)
    try:
        await source.open()
        yield source
    finally:
        await source.close()


async def _copied(path: Path, to: Path, settings: EngineSettings, on_progress: OnProgress) -> tuple[float, _Facts]:
    """Copy the store's file; when, and what the snapshot held."""
    async with _reading(path, settings) as source:

        def script(conn: Connection) -> tuple[float, _Facts]:
            # Reading first begins the snapshot, which the copy then sees too.
            found = time.time(), _facts(conn, side=source)
            copy_file(conn, to, lambda done, total: on_progress("backup", done, total))
            return found

        return await source.run(script)


async def _digests(copy: Source, on_progress: OnProgress) -> dict[str, tuple[int, str]]:
    tables: dict[str, tuple[int, str]] = {}
    for number, copied in enumerate(COPIED, 1):
        found = await sum_of(copy, copied, lambda _rows: None)
        tables[copied.name] = (found.rows, hex_of(found.digest))
        on_progress("verify", number, len(COPIED))
    return tables


def _clear_leases(driver: Any) -> None:
    if driver.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (migration_lease.name,)).fetchone():
        driver.execute(str(delete(migration_lease)))


def _renew_generations(driver: Any) -> None:
    table = progression_storage_state
    if driver.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (table.name,)).fetchone():
        driver.execute(f"UPDATE {table.name} SET generation = random() & 9223372036854775807")


def _sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _copy_and_hash(source: Path, target: Path) -> str:
    try:
        shutil.copyfile(source, target)
    except OSError as error:
        raise BackendUnavailableError(f"the backup cannot be copied: {error.strerror}") from error
    os.chmod(target, 0o600)
    with target.open("rb+") as file:
        os.fsync(file.fileno())
    return _sha256_of(target)


def _write_durably(path: Path, text: str) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
