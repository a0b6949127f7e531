"""The README: its generated tables, its table of the contract, its links."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from lionstated.metrics_table import metrics_table
from lionstated.settings import settings_table
from tests.support.deployment import REPOSITORY, readme_anchors

TEXT = (REPOSITORY / "README.md").read_text(encoding="utf-8")
ALL_CLAUSES = {*(f"ADR-0055 D{number}" for number in range(1, 6)), *(f"ADR-0117 D{number}" for number in range(1, 7))}
# `ADR-0117 D1 (cascade), D3-D5`: the ADR, then clauses with what of them is meant.
_CITED = re.compile(r'ADR-(\d{4})((?:(?:,?\s+|-)D\d+(?:\s\([^)]*\)|\s"[^"]*")?)+)')


def marked(name: str) -> str:
    """What stands between the marks of a name."""
    return TEXT.split(f"<!-- {name} -->\n")[1].split(f"<!-- /{name} -->")[0]


def cited(text: str) -> Iterator[str]:
    for adr, clauses in _CITED.findall(text):
        bare = re.sub(r'\([^)]*\)|"[^"]*"', "", clauses)
        for first, last in re.findall(r"D(\d+)(?:-D(\d+))?", bare):
            yield from (f"ADR-{adr} D{number}" for number in range(int(first), int(last or first) + 1))


def docstrings(*folders: str) -> Iterator[str]:
    for folder in folders:
        for path in (REPOSITORY / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_bytes())):
                if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
                    yield ast.get_docstring(node) or ""


@pytest.mark.parametrize("name", ["settings", "metrics"])
def test_a_table_is_the_generated_one(name: str) -> None:
    """After a change: `make tables`."""
    assert {"settings": settings_table, "metrics": metrics_table}[name]() == marked(name)


def test_a_row_says_name_default_and_whether_sighup_changes_it() -> None:
    rows = {line.split("`")[1]: line for line in settings_table().splitlines()[2:]}
    assert "| `queue.max_operations` | `10000` |  |" in rows["queue.max_operations"]
    assert '| `log.level` | `"info"` | SIGHUP |' in rows["log.level"]


def test_a_row_says_type_labels_and_small_sets_of_values() -> None:
    rows = metrics_table().splitlines()
    assert "| `lionstate_write_lock_hold_seconds` | histogram | `lane`: request, maintenance | " in "\n".join(rows)
    assert any(row.startswith("| `lionstate_migration_blocked` | gauge | `code` | ") for row in rows)
    assert any(row.startswith("| `lionstate_foreign_commits_total` | counter |  | ") for row in rows)


def test_the_clauses_of_docstrings_are_those_of_the_table() -> None:
    rows = {line.split(" | ")[0].removeprefix("| ") for line in marked("contract").splitlines()[2:]}
    assert ALL_CLAUSES == rows
    assert {"ADR-0117 D1", "ADR-0117 D3", "ADR-0117 D4", "ADR-0117 D5"} == {*cited("ADR-0117 D1 (cascade), D3-D5; D9")}
    in_docstrings = {
        clause
        for text in docstrings("lionstate", "daemon")
        for clause in cited(text)
        if clause[:8] in ("ADR-0055", "ADR-0117")
    }
    assert in_docstrings <= rows
    # How it is proved (D6) is what tests are about.
    assert rows - {"ADR-0117 D6"} <= in_docstrings


def test_what_the_table_names_is_there() -> None:
    for line in marked("contract").splitlines()[2:]:
        _, _, _, where, shown, _ = (part.strip() for part in line.split("|"))
        named = re.findall(r"`([^`]+)`", where), re.findall(r"`([^`]+)`", shown)
        assert all(named), line
        for path in named[0]:
            assert (REPOSITORY / path).exists(), path
        for name in named[1]:
            path, _, test = name.partition("::")
            assert (f"def {test}(" if test else "def ") in (REPOSITORY / path).read_text(encoding="utf-8"), name


def test_links_within_lead_somewhere() -> None:
    assert {*re.findall(r"\]\(#([^)]+)\)", TEXT)} <= readme_anchors()
