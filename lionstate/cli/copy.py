"""``lionstate copy``: a whole store into another one."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from lionstate.cli import render, tables

if TYPE_CHECKING:
    from lionstate.copying import CopyReport

__all__ = ["copy"]


def copy(
    source: Annotated[str, typer.Option("--from", help="The store to copy: a file or a URL.")],
    target: Annotated[str, typer.Option("--to", help="A new file or an empty database; or a copy that was begun.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object for machines.")] = False,
) -> None:
    """Copy a whole store, between SQLite and PostgreSQL or within one kind.

    Stop what writes the source first; a daemon that owns it is refused. Interrupted or killed, the same command goes
    on where it was. The copy cannot be opened before it is verified. Exits with 3 when the target holds something
    else or cannot hold some values, and with 6 when the two are not equal at the end, or no more: a copy that is
    finished is compared and never written again.
    """
    from lionstate.cli.interrupt import run_until_interrupted
    from lionstate.copying import StoreCopy
    from lionstate.engine import EngineSettings

    with render.stages(show=not as_json) as advance:
        settings = EngineSettings(sqlite_module="auto")
        found = run_until_interrupted(StoreCopy(source, target, settings=settings, on_progress=advance).run())
    tables.done(*_lines(found), facts=asdict(found), as_json=as_json)


def _lines(found: CopyReport) -> list[str]:
    if found.already_finished:
        return [
            f"{found.target} is a finished copy of {found.source} already, and the {found.rows} rows of the two are"
            " equal: nothing was written"
        ]
    rate = found.copied_rows / found.copy_seconds if found.copy_seconds else 0.0
    lines = [
        f"copied {found.source} to {found.target} and verified {found.rows} rows",
        f"{found.copied_rows} rows in {found.copy_seconds:.1f} s ({rate:,.0f} a second), {found.seconds:.1f} s in all",
    ]
    if found.resumed:
        lines.append("an earlier run had copied the rest")
    lines += [f"left out, not lionstate's: {name}" for name in found.left_out]
    return lines
