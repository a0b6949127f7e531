"""``rehearse()``: migrate a copy of a store whole and say what it took; the store itself is only read."""

from __future__ import annotations

import os
import shutil
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from lionstate.copying import StoreCopy, backup_store
from lionstate.copying.places import manifest_path
from lionstate.copying.report import OnProgress, quiet
from lionstate.engine import EngineSettings, SilentObserver, StoreURL
from lionstate.engine.file_copies import remove_database
from lionstate.errors import BackendUnavailableError, InvalidInputError
from lionstate.migration import MigrationStatus, MigrationStep, ProgressionMigrationService, Rehearsal
from lionstate.migration.until import step_until_done
from lionstate.store import Store

__all__ = ["rehearse"]

# A JSON of 3.5 MB becomes 20 MB of rows and index (design decision 38).
_ROWS_TO_JSON: Final = 6
_ACTOR: Final = "rehearsal"


class _Meter(SilentObserver):
    """What the writer of the copy says of itself; called on its thread."""

    def __init__(self) -> None:
        self.longest_hold_seconds = 0.0
        self.log_written_bytes = 0
        self.log_peak_bytes = 0

    def lock_hold(self, lane: str, seconds: float) -> None:
        self.longest_hold_seconds = max(self.longest_hold_seconds, seconds)

    def wal_written(self, count: int) -> None:
        self.log_written_bytes += count

    def wal(self, log_frames: int, checkpointed_frames: int, wal_bytes: int) -> None:
        self.log_peak_bytes = max(self.log_peak_bytes, wal_bytes)


async def rehearse(
    store: str | Path | StoreURL,
    *,
    keep: Path | None = None,
    target: str | None = None,
    settings: EngineSettings | None = None,
    on_progress: OnProgress = quiet,
) -> Rehearsal:
    """Copy a store, migrate the copy whole, and report.

    Args:
        store: Path or URL. It may be in use, by a daemon too: the copy is one snapshot of it.
        keep: SQLite: the file to make and to leave; None makes one beside the store and removes it.
        target: PostgreSQL: the URL of an empty database, in which the copy stays.
        settings: How connections behave.
        on_progress: Called with a stage (those of a backup or copy, then ``migrate``), done and in all.
    Raises:
        InvalidInputError: A memory store, PostgreSQL without a target, or a target for a file.
        BackendUnavailableError: There is not enough disk for the copy and its rows.
        NotEmptyError: The file exists, or the target holds something.
        DifferenceError: The copy is not what was read.

    Cost: a backup or a copy of the store, and its migration; one snapshot of the store meanwhile, which pins the
    write-ahead log, or old row versions, until the copy is made.
    Contract: design §5.
    """
    url, given = StoreURL.of(store), settings or EngineSettings()
    if url.is_memory:
        raise InvalidInputError("a memory store cannot be rehearsed: there is nothing to copy")
    if url.path is not None:
        if target is not None:
            raise InvalidInputError("a SQLite store is rehearsed on a file: name it with --keep, not --target")
        return await _on_file(url, url.path.resolve(), keep, given, on_progress)
    if keep is not None:
        raise InvalidInputError("a copy of a PostgreSQL store stays in its target; --keep is for SQLite")
    if target is None:
        raise InvalidInputError(
            "a PostgreSQL store is rehearsed in an empty database: make one, and name it with --target URL"
        )
    began = time.monotonic()
    await StoreCopy(url.text, target, settings=given, on_progress=on_progress, live=True).run()
    copied = StoreURL.of(target)
    return await _migrated(url.masked, copied, copied.masked, given, on_progress, time.monotonic() - began)


async def _on_file(
    url: StoreURL, path: Path, keep: Path | None, settings: EngineSettings, on_progress: OnProgress
) -> Rehearsal:
    place = path.with_name(f".{path.name}.rehearsal-{os.getpid()}") if keep is None else keep
    await _require_room(url, path, place, settings)
    began = time.monotonic()
    if keep is None:
        # Of a process with this number that was killed.
        _remove(place)
    await backup_store(path, place, settings=settings, on_progress=on_progress)
    done = False
    try:
        # It describes the file before its migration.
        manifest_path(place).unlink()
        copy_seconds = time.monotonic() - began
        kept = None if keep is None else str(place)
        found = await _migrated(str(path), StoreURL.of(place), kept, settings, on_progress, copy_seconds)
        done = True
    finally:
        if keep is None or not done:
            _remove(place)
    return found


def _remove(place: Path) -> None:
    remove_database(place)
    with suppress(FileNotFoundError):
        manifest_path(place).unlink()


def _sizes(path: Path, folder: Path) -> tuple[int, int]:
    """Bytes of the store's file, and free ones in a folder."""
    try:
        return path.stat().st_size, shutil.disk_usage(folder).free
    except OSError as error:
        raise BackendUnavailableError(f"the place for the copy cannot be looked at: {error.strerror}") from error


async def _require_room(url: StoreURL, path: Path, place: Path, settings: EngineSettings) -> None:
    """Refuse a copy that would fill the disk: the store, and the rows that its JSON becomes."""
    looking = await Store.open(url, replace(settings, readonly=True, tidy=True, readers=1))
    try:
        left = (await ProgressionMigrationService(looking).plan(limit=0)).left_bytes
    finally:
        await looking.close()
    stored, free = _sizes(path, place.parent)
    need = stored + _ROWS_TO_JSON * (stored if left is None else left)
    if free < need:
        raise BackendUnavailableError(
            f"a rehearsal needs about {need:,} bytes in {place.parent.resolve()}, where {free:,} are free; nothing was"
            " written: make room, or name a file on another disk with --keep"
        )


async def _migrated(
    source: str, copy: StoreURL, kept: str | None, settings: EngineSettings, on_progress: OnProgress, seconds: float
) -> Rehearsal:
    meter = _Meter()
    store = await Store.open(copy, replace(settings, readonly=False, tidy=False), observer=meter)
    try:
        # The schema of a store that lionstate never wrote is no part of its migration.
        meter.longest_hold_seconds = 0.0
        service = ProgressionMigrationService(store, actor=_ACTOR, accept_foreign_writers=True)
        # Orders for single progressions hold in the copy too; those for all of them are not meant for it.
        await service.resume(reason=_ACTOR)
        await service.release_all(reason=_ACTOR)
        before = (await service.plan(limit=0)).store_bytes

        def tell(status: MigrationStatus) -> None:
            done = status.phases["items"]
            on_progress("migrate", done, done + status.progress.left)

        began = time.monotonic()
        steps, status = await step_until_done(service, {"max_items": 10**9, "max_bytes": 10**12}, tell)
        work_seconds = time.monotonic() - began
        after = (await service.plan(limit=0)).store_bytes
    finally:
        await store.close()
    return Rehearsal(
        source=source,
        copy=kept,
        phases=status.phases,
        blocked=status.blocked,
        held=status.held,
        copy_seconds=seconds,
        work_seconds=work_seconds,
        longest_hold_seconds=meter.longest_hold_seconds,
        store_bytes=before,
        growth_bytes=after - before,
        log_written_bytes=None if copy.path is None else meter.log_written_bytes,
        log_peak_bytes=None if copy.path is None else meter.log_peak_bytes,
        **_sums(steps),
    )


def _sums(steps: Sequence[MigrationStep]) -> dict[str, Any]:
    verified: Counter[str] = Counter()
    for step in steps:
        verified.update(step.verified)
    return {
        "cut_over": sum(step.cut_over for step in steps),
        "items": sum(step.items for step in steps),
        "chunks": sum(step.chunks for step in steps),
        "cutover_lock_seconds": max(step.cutover_lock_seconds for step in steps),
        "verified": dict(verified),
    }
