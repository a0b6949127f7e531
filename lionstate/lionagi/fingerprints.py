"""Which LionAGI the bridge was made for: hashes of the sources of every function that it replaces or relies on."""

from __future__ import annotations

import hashlib
import importlib.metadata
import importlib.util
import inspect
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from lionstate.lionagi.pins import PINS, VERSION

__all__ = ["differences", "fingerprint", "package_folder"]

_CLASS: Final = "class"
_FUNCTION: Final = "(?:async )?def"


def package_folder() -> Path | None:
    """Where LionAGI is installed; None if it is not. It is not imported."""
    spec = importlib.util.find_spec("lionagi")
    return Path(spec.origin).parent if spec is not None and spec.origin is not None else None


def differences(folder: Path, pins: Mapping[str, Mapping[str, str]] = PINS) -> list[str]:
    """What is not as the bridge knows it, a line each; [] when everything is.

    Cost: about 100 ms, ten files are read.
    """
    found = []
    version = _installed_version()
    if version != VERSION:
        found.append(f"lionagi is {version or 'of an unknown version'}, not {VERSION}")
    for module, functions in pins.items():
        path = folder.joinpath(*module.split(".")[1:]).with_suffix(".py")
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True) if path.exists() else []
        for name, expected in functions.items():
            actual = fingerprint(lines, name)
            if actual != expected:
                found.append(f"{module}.{name} is {'missing' if actual is None else 'another'}")
    return found


def _installed_version() -> str | None:
    try:
        return importlib.metadata.version("lionagi")
    except importlib.metadata.PackageNotFoundError:
        return None


def fingerprint(lines: list[str], name: str) -> str | None:
    """The hash of a function's source, decorators included; None if the file has no such function.

    Args:
        lines: The file.
        name: ``function`` or ``Class.method``.
    """
    start = 0
    *owner, function = name.split(".")
    if owner:
        found = _line_of(lines, 0, _CLASS, owner[0])
        if found is None:
            return None
        start = found + 1
    place = _line_of(lines, start, _FUNCTION, function, indent="    " if owner else "")
    if place is None:
        return None
    block = inspect.getblock(lines[place:])
    # Decorators may take several lines; a blank one stands before them.
    while place > start and lines[place - 1].strip():
        place -= 1
        block.insert(0, lines[place])
    text = "".join(line.rstrip() + "\n" for line in block).rstrip()
    return hashlib.sha256(text.encode()).hexdigest()


def _line_of(lines: list[str], start: int, keyword: str, name: str, indent: str = "") -> int | None:
    pattern = re.compile(rf"{indent}{keyword} {name}\b")
    return next((number for number in range(start, len(lines)) if pattern.match(lines[number])), None)
