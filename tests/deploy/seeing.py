"""Checks that a program of its own runs one after the other; what each has seen goes into a file."""

from __future__ import annotations

import json
import time
import traceback
from collections.abc import Callable
from pathlib import Path


class Checks:
    """A decorator that collects checks: functions that return a line of what was seen."""

    def __init__(self) -> None:
        self.all: list[Callable[[], str]] = []

    def __call__(self, function: Callable[[], str]) -> Callable[[], str]:
        self.all.append(function)
        return function

    @property
    def names(self) -> list[str]:
        """In their order."""
        return [one.__name__ for one in self.all]

    def run(self, result: Path) -> None:
        """Run them all; without the first one the others are not tried."""
        seen = {}
        for one in self.all:
            began = time.monotonic()
            try:
                seen[one.__name__] = {"ok": True, "seen": f"{one()} [{time.monotonic() - began:.1f} s]"}
            except BaseException:
                seen[one.__name__] = {"ok": False, "seen": traceback.format_exc()}
            result.write_text(json.dumps(seen, indent=1))
            if one is self.all[0] and not seen[one.__name__]["ok"]:
                return
