"""``progression-migrate rehearse``: the migration of a copy."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from lionstate.cli import render, tables
from lionstate.cli.options import Daemon, Json, Token, Url, Where, run_on_migration
from lionstate.errors import InvalidInputError, StateError

if TYPE_CHECKING:
    from lionstate.migration import Rehearsal

__all__ = ["rehearse"]

_ASK_SECONDS = 1.0
_BLOCKED, _NOT_APPLICABLE = 8, 7


def rehearse(
    url: Url = None,
    daemon: Daemon = None,
    token: Token = None,
    keep: Annotated[Path | None, typer.Option(help="SQLite: make the copy here, and leave it.")] = None,
    target: Annotated[str | None, typer.Option(help="PostgreSQL: an empty database for the copy.")] = None,
    as_json: Json = False,
) -> None:
    """Migrate a copy of the store whole and say what it took; the store is only read, and may be in use.

    Exits with 2 for PostgreSQL without --target, with 4 when the disk has no room for the copy, with 8 when something
    could not be migrated, and with 7 when something is held.
    """
    if daemon is not None:
        if keep is not None:
            raise InvalidInputError("a daemon keeps no copy: name the store's file with --url")
        found = _there((url, daemon, token), target, show=not as_json)
    elif url is None:
        raise InvalidInputError("no store given: pass --url STORE or --daemon ADDRESS (or set LIONSTATE_DATABASE__URL)")
    else:
        found = _here(url, keep, target, show=not as_json)
    if as_json:
        tables.print_json(found)
    else:
        for line in _lines(found):
            tables.note(line)
    raise typer.Exit(_BLOCKED if found.blocked else _NOT_APPLICABLE if found.held else 0)


def _here(url: str, keep: Path | None, target: str | None, *, show: bool) -> Rehearsal:
    """In this process: a reader of the store like any other, beside a daemon too."""
    from lionstate.cli.interrupt import run_until_interrupted
    from lionstate.engine import EngineSettings
    from lionstate.rehearse import rehearse as run

    settings = EngineSettings(sqlite_module="auto")
    with render.stages(show=show) as advance:
        return run_until_interrupted(run(url, keep=keep, target=target, settings=settings, on_progress=advance))


def _there(where: Where, target: str | None, *, show: bool) -> Rehearsal:
    """In the daemon, which is asked how far it is meanwhile; one that does not know that verb yet tells nothing."""
    # Not above: help would pay for it.
    import asyncio

    async def work(service: Any) -> Rehearsal:
        running: asyncio.Task[Rehearsal] = asyncio.ensure_future(service.rehearse(target=target))
        with render.stages(show=show) as advance:
            try:
                while not (await asyncio.wait({running}, timeout=_ASK_SECONDS))[0]:
                    with suppress(StateError):
                        if (now := await service.rehearsal()) is not None:
                            advance(now.stage, now.done, now.total)
                return running.result()
            finally:
                running.cancel()
                await asyncio.wait({running})

    return run_on_migration(where, work)


def _lines(found: Rehearsal) -> list[str]:
    phases = ", ".join(f"{count:,} {phase}" for phase, count in found.phases.items())
    proofs = ", ".join(f"{count:,} {outcome}" for outcome, count in found.verified.items()) or "none needed"
    log = (
        ""
        if found.log_written_bytes is None or found.log_peak_bytes is None
        else f"; log: {tables.size(found.log_written_bytes)} written, at most {tables.size(found.log_peak_bytes)} large"
    )
    lines = [
        f"rehearsed {found.source}, which was only read: copied in {found.copy_seconds:.1f} s, migrated in"
        f" {found.work_seconds:.1f} s",
        f"then: {phases}",
        f"moved: {found.cut_over:,} progressions, {found.items:,} items in {found.chunks:,} chunks",
        f"digests of both representations: {proofs}",
        f"longest hold of the lock: {found.longest_hold_seconds * 1000:.1f} ms, of a cutover"
        f" {found.cutover_lock_seconds * 1000:.1f} ms",
        f"store: {tables.size(found.store_bytes)}, grew by {tables.size(found.growth_bytes)}{log}",
    ]
    for name, counts in (("blocked", found.blocked), ("held", found.held)):
        lines += [f"{name}: {reason} {count:,}" for reason, count in sorted(counts.items())]
    return [*lines, "the copy was removed" if found.copy is None else f"the copy is {found.copy}"]
