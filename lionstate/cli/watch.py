"""``status --watch``: the state of a migration on a terminal, drawn anew at every look; lines for everything else."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from lionstate.cli import render
from lionstate.cli.tables import percent, print_json, printable

if TYPE_CHECKING:
    from lionstate.migration import MigrationStatus

__all__ = ["follow"]

_WIDTH = 40


async def follow(service: Any, *, interval: float, as_json: bool) -> None:
    """Look every ``interval`` seconds until nothing is left to move."""
    with _view(as_json=as_json) as show:
        while True:
            found: MigrationStatus = await service.status(limit=0)
            show(found)
            if not found.progress.left:
                return
            await asyncio.sleep(interval)


@contextmanager
def _view(*, as_json: bool) -> Iterator[Callable[[MigrationStatus], None]]:
    console = Console()
    if as_json:
        yield print_json
    elif not console.is_terminal:
        yield _print_line
    else:
        with Live(console=console, auto_refresh=False) as live:
            yield lambda found: live.update(picture(found), refresh=True)


def _print_line(found: MigrationStatus) -> None:
    moment = time.strftime("%H:%M:%S", time.localtime(found.measured_at))
    told = printable("; ".join(_lines(found)))
    print(f"{moment} {_counts(found)} {told}", flush=True)  # noqa: T201


def _lines(found: MigrationStatus) -> list[str]:
    return [*render.progress_lines(found), *render.standing_lines(found), *render.waiting_lines(found)]


def _counts(found: MigrationStatus) -> str:
    return " ".join(f"{phase} {count}" for phase, count in found.phases.items())


def picture(found: MigrationStatus) -> Group:
    """What a terminal shows: whether it is paused, the counts, a bar of all and one of each copy under way."""
    bars = Table.grid(padding=(0, 2))
    bars.add_row("all", _bar(found.progress.fraction), percent(found.progress.fraction), "")
    for one in found.progress.under_way:
        share = one.copied / one.to_copy
        told = f"{one.copied:,} of {one.to_copy:,}"
        bars.add_row(Text(printable(one.progression_id)[:_WIDTH]), _bar(share), percent(share), told)
    standing = map(printable, render.standing_lines(found))
    lines = [*standing, _counts(found), *render.progress_lines(found), *render.waiting_lines(found)]
    return Group(*map(Text, lines), bars)


def _bar(fraction: float) -> ProgressBar:
    return ProgressBar(total=1.0, completed=fraction, width=_WIDTH)
