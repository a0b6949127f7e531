"""Which test shows which row of the list of faults seen elsewhere; the docstrings of the tests are the table.

A test that shows a row says ``fault 23`` (or ``faults 23, 24``) in its docstring.
``python -m tests.support.fault_table`` prints the table.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

__all__ = ["REASONS", "ROWS", "cited", "table"]

ROOT = Path(__file__).resolve().parents[2]

# The list has gaps.
ROWS = frozenset(range(1, 69)) - {3, 6, 11, 22, 25, 27, 29, 36, 38, 39, 42, 51, 52, 54, 60}

# Rows that no test shows, and why.
REASONS: dict[int, str] = {}

_CITATION = re.compile(r"\bfaults? (\d+(?:(?:, | and |, and )\d+)*)", re.IGNORECASE)


def cited(docstring: str) -> set[int]:
    """The rows that a docstring names."""
    words = " ".join(docstring.split())
    return {int(number) for found in _CITATION.findall(words) for number in re.findall(r"\d+", found)}


def _tests(tree: ast.AST, prefix: str) -> Iterator[tuple[str, str]]:
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef):
            yield from _tests(node, f"{prefix}::{node.name}")
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            yield f"{prefix}::{node.name}", ast.get_docstring(node) or ""


def table() -> dict[int, list[str]]:
    """Row -> node ids of the tests that show it, without parameters."""
    found: dict[int, list[str]] = {}
    for path in sorted(ROOT.glob("tests/**/test_*.py")):
        for node, docstring in _tests(ast.parse(path.read_text()), str(path.relative_to(ROOT))):
            for row in cited(docstring):
                found.setdefault(row, []).append(node)
    return dict(sorted(found.items()))


if __name__ == "__main__":
    shown = table()
    for row in sorted(ROWS):
        print(row, *(f"  {node}" for node in shown.get(row, ())), *([REASONS[row]] if row in REASONS else []), sep="\n")
