"""Backups of SQLite stores: taken while others write, proved, and put back only where nobody has the store open."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import shutil
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any, Final, Self

from sqlalchemy import Connection, delete, func, select

from lionstate.copying.comparison import sum_of
from lionstate.copying.places import (
    check_place,
    create_private,
    manifest_path,
    pending_path,
    refuse_what_is_no_store,
    store_path,
    unfinished_path,
    usable,
)
from lionstate.copying.report import OnProgress, quiet
from lionstate.copying.source import Source, opened_beside
from lionstate.copying.tables import COPIED
from lionstate.copying.values import hex_of
from lionstate.engine import EngineSettings, StoreURL
from lionstate.engine.file_copies import check_file, copy_file, put_in_place, remove_database
from lionstate.engine.libraries import load_module
from lionstate.engine.ownership import StoreLock
from lionstate.errors import BackendUnavailableError, DifferenceError, UnrecognizedStoreError
from lionstate.schema.own import migration_lease, progression_storage_state

__all__ = ["Manifest", "backup_store", "manifest_path", "restore_store"]

_FORMAT: Final = 1


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
        BackendUnavailableError: The store cannot be read, or the backup's place not be written.
        DifferenceError: What was written is damaged or not what was read; the file is removed.

    Cost: reads the store once and the backup three times.
    """
    path = store_path(store)
    with usable(backup):
        unproved = unfinished_path(backup, path)
        check_place(backup, force=force)
        given = replace(settings or EngineSettings(), readonly=True, tidy=True, readers=1)
        backup.parent.mkdir(parents=True, exist_ok=True)
        remove_database(unproved)
        return await _make_backup(path, backup, unproved, given, on_progress)


async def _make_backup(
    path: Path, backup: Path, unproved: Path, given: EngineSettings, on_progress: OnProgress
) -> Manifest:
    try:
        create_private(unproved)
        taken_at, expected = await _copied(path, unproved, given, on_progress)
        await asyncio.to_thread(check_file, unproved, load_module(given.sqlite_module), _clear_leases)
        async with opened_beside(StoreURL.of(unproved), given) as copy:
            found = await copy.run(partial(_facts, side=copy))
            if found != expected:
                raise DifferenceError("the backup does not hold the rows of the store")
            tables = await _digests(copy, on_progress)
        manifest = Manifest(
            format=_FORMAT,
            source=str(path),
            taken_at=taken_at,
            size_bytes=os.stat(unproved).st_size,
            sha256=await asyncio.to_thread(_sha256_of, unproved),
            phases=found.phases,
            tables=tables,
        )
        text = json.dumps(asdict(manifest), indent=1, sort_keys=True)
        # Both manifests are there while the file changes: at any moment one of them describes it.
        await asyncio.to_thread(_write_durably, pending_path(backup), text)
        os.replace(unproved, backup)
    except BaseException:
        remove_database(unproved)
        raise
    os.replace(pending_path(backup), manifest_path(backup))
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
        BackendUnavailableError: There is no such backup, no manifest, or the store's place cannot be written.
        DifferenceError: The backup is not what its manifest says.
        NotEmptyError: There is a store; with ``force``, a file that is not known to be one.
        OwnershipConflictError: A daemon owns the store.
        BackendBusyError: A process has the store open.

    Cost: reads the backup and the new store once each.
    Contract: design decisions 4, 27.
    """
    path, given = store_path(store), settings or EngineSettings()
    with usable(path):
        unproved = unfinished_path(path, backup)
        places = (pending_path(backup), manifest_path(backup))
        manifests = [Manifest.load(found) for found in places if found.exists()]
        if not manifests:
            raise BackendUnavailableError(f"there is no backup at {backup}, or no manifest beside it")
        await refuse_what_is_no_store(path, given, force=force)
        path.parent.mkdir(parents=True, exist_ok=True)
        return await _put_back(backup, path, unproved, manifests, load_module(given.sqlite_module))


async def _put_back(
    backup: Path, path: Path, unproved: Path, manifests: Sequence[Manifest], module: ModuleType
) -> Manifest:
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
        lock.release(refused=not await asyncio.to_thread(path.exists))
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


async def _copied(path: Path, to: Path, settings: EngineSettings, on_progress: OnProgress) -> tuple[float, _Facts]:
    """Copy the store's file; when, and what the snapshot held."""
    async with opened_beside(StoreURL.of(path), settings) as source:

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
        create_private(target)
        shutil.copyfile(source, target)
    except OSError as error:
        raise BackendUnavailableError(f"the backup cannot be copied: {error.strerror}") from error
    with target.open("rb+") as file:
        os.fsync(file.fileno())
    return _sha256_of(target)


def _write_durably(path: Path, text: str) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
