"""What a row of the table came out as, and how it is printed and kept."""

from __future__ import annotations

import functools
import json
import os
import platform
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

__all__ = ["Figure", "Row", "environment", "table", "write_json"]


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured value; ``limit`` None is only told, never asserted.

    Attributes:
        what: Backend and path, in a few words.
        value: Usually a ratio; None when it could not be measured here.
        limit: What must be reached.
        at_least: The value must be at least the limit; else at most.
        unit: ``x`` for a ratio.
    """

    what: str
    value: float | None
    limit: float | None = None
    at_least: bool = False
    unit: str = "x"

    @property
    def passed(self) -> bool | None:
        """Whether the limit is reached; None when there is none or nothing was measured."""
        if self.limit is None or self.value is None:
            return None
        return self.value >= self.limit if self.at_least else self.value <= self.limit


@dataclass(slots=True)
class Row:
    """A row of the table.

    Attributes:
        notes: Absolute times and counts beside the ratios.
        missing: Why parts could not be measured.
    """

    number: int
    title: str
    figures: list[Figure] = field(default_factory=list)
    notes: dict[str, Any] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def add(self, what: str, value: float | None, limit: float | None = None, **options: Any) -> None:
        """Add a figure."""
        self.figures.append(Figure(what, None if value is None else round(value, 4), limit, **options))

    @property
    def verdict(self) -> str:
        """``fail``, ``pass``, ``part`` (what could be measured passes) or ``n/a``."""
        judged = [figure.passed for figure in self.figures if figure.passed is not None]
        if not all(judged):
            return "fail"
        if not judged:
            return "n/a"
        return "part" if self.missing else "pass"


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "-"


@functools.cache
def _daemon_sqlite() -> str:
    """Asked in another process: this one must not map two SQLite libraries (design §2.4)."""
    code = "from pysqlite3 import dbapi2; print(dbapi2.sqlite_version)"
    asked = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    return asked.stdout.strip() or "-"


def environment() -> dict[str, Any]:
    """The machine and the versions that the figures belong to."""
    model = platform.processor() or platform.machine()
    for line in Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []:
        if line.startswith("model name"):
            model = line.split(":", 1)[1].strip()
            break
    packages = ("lionstate", "SQLAlchemy", "asyncpg", "aiosqlite", "aiohttp", "uvicorn", "starlette", "msgspec")
    return {
        "at": time.strftime("%Y-%m-%dT%H:%M:%S%z"),
        "machine": f"{model}, {os.cpu_count()} cores, {platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "sqlite": sqlite3.sqlite_version,
        "pysqlite3_sqlite": _daemon_sqlite(),
        "load": [round(value, 2) for value in os.getloadavg()],
        "packages": {name: _version(name) for name in packages},
    }


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.2f}"


def _lines(row: Row) -> Iterable[str]:
    title = f"{row.number:>3}  {row.title}"
    yield f"{title:<66}{'':>22}{row.verdict:>10}   ({row.seconds:.0f} s)"
    for figure in row.figures:
        bound = "" if figure.limit is None else f"{'>=' if figure.at_least else '<='} {_number(figure.limit)}"
        passed = {True: "ok", False: "MISSED", None: ""}[figure.passed]
        yield f"       {figure.what:<59}{_number(figure.value):>10} {figure.unit:<4} {bound:>9}{passed:>8}"
    for name, value in row.notes.items():
        yield f"         {name}: {value}"
    for reason in row.missing:
        yield f"         not available: {reason}"


def table(rows: Sequence[Row], about: Mapping[str, Any]) -> str:
    """The rows as text, the machine line first."""
    versions = ", ".join(f"{name} {version}" for name, version in about["packages"].items())
    head = [
        f"{about['machine']} · Python {about['python']}",
        f"SQLite {about['sqlite']} (daemon {about['pysqlite3_sqlite']})",
        f"{versions} · load {about['load'][0]}",
        "",
    ]
    return "\n".join([*head, *(line for row in rows for line in _lines(row))])


def write_json(path: Path, rows: Sequence[Row], about: Mapping[str, Any]) -> None:
    """Keep a run."""
    path.parent.mkdir(parents=True, exist_ok=True)
    kept = []
    for row in rows:
        entry = asdict(row)
        entry["verdict"] = row.verdict
        for figure, original in zip(entry["figures"], row.figures, strict=True):
            figure["passed"] = original.passed
        kept.append(entry)
    path.write_text(json.dumps({"environment": dict(about), "rows": kept}, indent=1))
