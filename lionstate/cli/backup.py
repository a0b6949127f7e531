"""``lionstate backup`` and ``lionstate restore``: a SQLite store's file, taken and put back."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lionstate.cli import render, tables

if TYPE_CHECKING:
    from lionstate.copying import Manifest

__all__ = ["backup", "restore"]

Url = Annotated[
    str, typer.Option("--url", envvar="LIONSTATE_DATABASE__URL", help="The store: a file or a URL.", show_default=False)
]
Force = Annotated[bool, typer.Option("--force", help="Replace what is there.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object for machines.")]


def backup(
    url: Url,
    to: Annotated[Path, typer.Option("--to", help="The file to make; a manifest goes beside it.")],
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Write a proved copy of a SQLite store to a file, while it is used; a daemon may own it.

    Exits with 2 for PostgreSQL, whose own tools do it, with 3 when the file exists, and with 6 when the copy is not
    what was read.
    """
    from lionstate.cli.interrupt import run_until_interrupted
    from lionstate.copying import backup_store
    from lionstate.engine import EngineSettings

    settings = EngineSettings(sqlite_module="auto")
    with render.stages(show=not as_json) as advance:
        found = run_until_interrupted(backup_store(url, to, force=force, settings=settings, on_progress=advance))
    tables.done(f"backed up {found.source} to {to}: {_text(found)}", facts=asdict(found), as_json=as_json)


def restore(
    source: Annotated[Path, typer.Option("--from", help="A file that `backup` made, its manifest beside it.")],
    url: Url,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Make a store of a backup, after proof that it is what was taken.

    Exits with 3 when there is a store already (--force replaces it), with 5 when a process has it open, with 6 when
    the backup is not what its manifest says, and with 10 when a daemon owns the store.
    """
    from lionstate.cli.interrupt import run_until_interrupted
    from lionstate.copying import restore_store
    from lionstate.engine import EngineSettings

    settings = EngineSettings(sqlite_module="auto")
    found = run_until_interrupted(restore_store(source, url, force=force, settings=settings))
    taken = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(found.taken_at))
    tables.done(f"restored {source}, taken {taken}: {_text(found)}", facts=asdict(found), as_json=as_json)


def _text(found: Manifest) -> str:
    rows = sum(count for count, _ in found.tables.values())
    phases = ", ".join(f"{count} {phase}" for phase, count in sorted(found.phases.items())) or "none migrated"
    return f"{rows} rows, {found.size_bytes} bytes, progressions: {phases}"
