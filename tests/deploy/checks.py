"""What the programs of this tier do, by name, and what they have seen."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

__all__ = ["names_of", "result_of"]


def names_of(program: Path) -> list[str]:
    """The checks of a program, which is not imported: it is made for another process."""
    return re.findall(r"^@check\ndef (\w+)", program.read_text(encoding="utf-8"), re.MULTILINE)


def result_of(file: Path) -> dict[str, Any]:
    """What was seen, by check; it is printed too."""
    found: dict[str, Any] = json.loads(file.read_text())
    for name, one in found.items():
        print(f"{'ok    ' if one['ok'] else 'FAILED'} {name}: {one['seen']}")
    return found
