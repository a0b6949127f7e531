"""``progression-migrate plan``: what the next steps will do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from lionstate.cli import tables
from lionstate.cli.options import Daemon, Json, Token, Url, run_on_migration

if TYPE_CHECKING:
    from lionstate.migration import Plan, Planned

__all__ = ["plan"]


def plan(
    url: Url = None,
    daemon: Daemon = None,
    token: Token = None,
    limit: Annotated[int, typer.Option(help="Progressions to name and to look into.")] = 20,
    as_json: Json = False,
) -> None:
    """Say what the next steps will do, in their order; changes nothing. What was not measured is "unknown"."""
    found: Plan = run_on_migration((url, daemon, token), lambda service: service.plan(limit=limit), reads=True)
    if as_json:
        tables.print_json(found)
        return
    headings = ("progression", "next", "JSON", "items", "chunks", "work")
    tables.print_rows([_row(one) for one in found.next], headings)
    for line in _lines(found):
        tables.note(line)


def _row(one: Planned) -> list[str]:
    move = one.move if one.code is None else f"blocked {one.code}"
    if one.removed_items:
        move = f"{move} {one.removed_items:,} rows"
    work = tables.duration(one.work_seconds)
    return [one.progression_id, move, tables.size(one.size_bytes), _count(one.items), _count(one.chunks), work]


def _count(value: int | None) -> str:
    return "unknown" if value is None else f"{value:,}"


def _size(value: int | None) -> str:
    return "unknown" if value is None else tables.size(value)


def _hold(seconds: float | None) -> str:
    return "unknown" if seconds is None else f"{seconds * 1000:.1f} ms"


def _lines(found: Plan) -> list[str]:
    lines = [
        f"left: {found.left:,} progressions, {_size(found.left_bytes)} of JSON, {_count(found.items)} items in"
        f" {_count(found.chunks)} chunks",
        f"work: {tables.duration(found.work_seconds)}, waiting between steps not included",
        f"lock: chunks {_hold(found.chunk_lock_seconds)}, cutovers {_hold(found.cutover_lock_seconds)} (the longest of"
        " the last steps)",
        f"store: {tables.size(found.store_bytes)}, will grow by {_size(found.growth_bytes)}; free disk"
        f" {_size(found.free_disk_bytes)}",
        f"write-ahead log: {_size(found.log_bytes)}, at most {_size(found.log_peak_bytes)} after the last steps",
    ]
    if found.work_seconds is None or found.growth_bytes is None:
        lines.append("unknown is what no step on this store has measured yet; rehearse measures it on a copy")
    if not found.order_is_certain:
        lines.append("the first steps begin with the smallest of those whose size they have noted by then")
    return lines + [f"waits: {reason}" for reason in found.waits]
