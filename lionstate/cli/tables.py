"""Rows and facts as text for people, and JSON for machines."""

from __future__ import annotations

import datetime
import math
import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rich.console import Console

__all__ = [
    "ago",
    "cell",
    "console",
    "done",
    "duration",
    "note",
    "percent",
    "print_facts",
    "print_json",
    "print_rows",
    "printable",
    "since",
    "size",
    "until",
]

_CONTENT = 80
# Wider than any row: a pipe has no width, and what `grep` reads must be whole.
_PIPE_WIDTH = 1_000_000


def print_json(value: object) -> None:
    """Print one JSON value in one line."""
    from lionstate import wire

    sys.stdout.write(wire.encode_result(value).decode() + "\n")


def done(*lines: str, facts: Mapping[str, object], as_json: bool) -> None:
    """Print that a command did what it says, in one or several lines."""
    if as_json:
        print_json(facts)
        return
    for line in lines:
        note(line)


def note(text: str) -> None:
    """Print one line; a line break in it is no more than another control character."""
    from rich.console import Console

    Console(soft_wrap=True).print(printable(text), highlight=False, markup=False)


def printable(text: str) -> str:
    """A text without what would command a terminal: a control character becomes a replacement character."""
    return text if text.isprintable() else "".join(each if each.isprintable() else "\ufffd" for each in text)


def cell(name: str, value: Any) -> str:
    """A column's value as text: a time of day for ``…_at``, ``…_since``, ``…_until``; nothing as a dash.

    A long text is cut on a terminal.
    """
    if value is None:
        return "-"
    if name.endswith(("_at", "_since", "_until")) and isinstance(value, (int, float)):
        try:
            return datetime.datetime.fromtimestamp(value).astimezone().strftime("%Y-%m-%d %H:%M:%S")
        except (ValueError, OverflowError, OSError):
            # No calendar goes that far; the number is what the store holds.
            return f"{value:g}"
    if isinstance(value, str):
        text = value
    else:
        from lionstate import wire

        text = wire.encode_result(value).decode()
    text = printable(" ".join(text.split()))
    return text if len(text) <= _CONTENT or not sys.stdout.isatty() else text[: _CONTENT - 1] + "…"


def ago(then: float) -> str:
    """How long ago a time was, in its largest unit."""
    seconds = max(0.0, time.time() - then)
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= length:
            return f"{seconds / length:.1f} {unit} ago"
    return f"{seconds:.0f} s ago"


def since(began: float) -> str:
    """Since when something is as it is, to follow a text."""
    return f" since {cell('began_at', began)}"


def until(end: float | None) -> str:
    """When something ends by itself, to follow a text: nothing where it does not."""
    return "" if end is None else f" until {cell('expires_at', end)}"


def size(count: float) -> str:
    """Bytes in the unit that gives a short number."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"


def percent(fraction: float) -> str:
    """A share, rounded down: 100 % is when nothing is left."""
    return f"{math.floor(fraction * 1000) / 10:.1f} %"


def duration(seconds: float | None) -> str:
    """About how long something takes, in its largest unit; ``unknown`` when nobody has measured it."""
    if seconds is None:
        return "unknown"
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * length:
            return f"about {seconds / length:.0f} {unit}"
    return f"about {math.ceil(seconds)} s"


def print_rows(rows: Sequence[Sequence[str]], headings: Sequence[str], *, title: str | None = None) -> None:
    """Print a table; nothing of the texts is taken for markup. Without rows only its headings."""
    from rich.markup import escape
    from rich.table import Table

    table = Table(*headings, box=None, title=title, title_justify="left", pad_edge=False)
    for row in rows:
        table.add_row(*(escape(printable(text)) for text in row))
    console().print(table)


def print_facts(facts: Mapping[str, Any]) -> None:
    """Print names and values, one line each."""
    from rich.markup import escape
    from rich.table import Table

    table = Table(show_header=False, box=None, pad_edge=False)
    for name, value in facts.items():
        table.add_row(name, escape(cell(name, value)))
    console().print(table)


def console(**options: Any) -> Console:
    """What prints: as wide as the terminal; without one nothing is cut or folded, whatever its length."""
    from rich.console import Console

    found = Console(**options)
    return found if found.is_terminal else Console(width=_PIPE_WIDTH, **options)
