"""Where backups and restored stores are put: names beside them, and files that nothing may replace."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from lionstate.engine import EngineSettings, StoreURL
from lionstate.engine.file_copies import SIDE_FILES
from lionstate.engine.ownership import StoreLock
from lionstate.engine.reader import SqliteReader
from lionstate.engine.sqlite_file import SqliteFile
from lionstate.errors import (
    BackendBusyError,
    BackendError,
    BackendUnavailableError,
    InvalidInputError,
    NotEmptyError,
    OwnershipConflictError,
    SchemaError,
    SchemaTooNewError,
    StateError,
)
from lionstate.opening import SMALLEST_DATABASE_BYTES
from lionstate.schema import inspect_store

__all__ = [
    "check_place",
    "create_private",
    "manifest_path",
    "pending_path",
    "refuse_what_is_no_store",
    "store_path",
    "unfinished_path",
    "usable",
]

_POSTGRESQL: Final = "PostgreSQL is backed up with its own tools: pg_dump --format=custom, and pg_restore"
_NO_STORE: Final = "is not known to be a store of lionstate or LionAGI, and is left as it is: move it away yourself"


@contextmanager
def usable(path: Path) -> Iterator[None]:
    """Make one error of what the operating system says against a path.

    Raises:
        BackendUnavailableError: The path cannot be used.
    """
    try:
        yield
    except StateError:
        raise
    except OSError as error:
        raise BackendUnavailableError(f"{path} cannot be written: {error.strerror}") from error


def create_private(path: Path) -> None:
    """Make an empty file that only its owner reads."""
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))


def store_path(target: str | Path | StoreURL) -> Path:
    """The file of a store.

    Raises:
        InvalidInputError: It has none.
    """
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


def manifest_path(backup: Path) -> Path:
    """Where the manifest of a backup is."""
    return backup.with_name(f"{backup.name}.manifest.json")


def pending_path(backup: Path) -> Path:
    """Where the manifest of a backup is until the backup has taken its place."""
    return backup.with_name(f"{backup.name}.manifest.json.new")


def unfinished_path(target: Path, source: Path) -> Path:
    """The file that is made before it takes the place of ``target``; whatever has its name is removed.

    Raises:
        InvalidInputError: The source has that name, or is the target, or the name is a side file's or none.
    """
    for path in (target, source):
        if not path.name:
            raise InvalidInputError(f"{path} is a folder and not the name of a file")
    if target.name.endswith(SIDE_FILES):
        raise InvalidInputError(f"{target} is the name of a database's own side file; name another")
    found = target.with_name(f".{target.name}.lionstate-unfinished")
    for path in (target, found):
        if path.exists() and source.exists() and path.samefile(source):
            raise InvalidInputError(f"{source} is read and would be written as well; name another file")
    return found


def check_place(backup: Path, *, force: bool) -> None:
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


def _may_be_store(path: Path, *, force: bool) -> bool:
    if not _holds_something(path):
        return False
    if not force:
        raise NotEmptyError("there is a store already; --force replaces it, and what it holds is lost")
    if path.stat().st_size < SMALLEST_DATABASE_BYTES:
        raise NotEmptyError(f"{path} {_NO_STORE}")
    return True


async def refuse_what_is_no_store(path: Path, settings: EngineSettings, *, force: bool) -> None:
    """Refuse to replace a file: any without ``force``, and with it any that cannot be seen to be a store.

    A store of a newer version is one, and may be replaced. So may one that is damaged, while it still tells what it is.

    Raises:
        NotEmptyError: There is such a file.

    Cost: one look at the file's table names.
    """
    if not _may_be_store(path, force=force):
        return
    look = dataclasses.replace(settings, readonly=True, tidy=True, readers=1)
    file = SqliteFile(path, look)
    file.claim(own=False)
    reader = SqliteReader(path, file.module, look)
    try:
        await reader.run(inspect_store)
    except (SchemaTooNewError, BackendBusyError):
        # A busy one is for who takes its locks, right after this.
        return
    except (SchemaError, BackendError) as error:
        raise NotEmptyError(f"{path} {_NO_STORE} ({error})") from error
    finally:
        await reader.close()
        file.release()
