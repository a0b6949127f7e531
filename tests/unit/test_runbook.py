"""The table of codes: complete, and the same in the README."""

from __future__ import annotations

from pathlib import Path

from lionstate.errors import BlockedCode, HeldReason
from lionstate.migration import CODES, code_table

README = Path(__file__).parents[2] / "README.md"


def test_every_code_is_in_the_table_once() -> None:
    assert [*BlockedCode, *HeldReason] == [entry.code for entry in CODES]
    assert all(entry.means and entry.found_by and entry.action for entry in CODES)


def test_the_readme_has_the_table() -> None:
    text = README.read_text()
    assert code_table() == text.split("<!-- codes -->\n")[1].split("\n<!-- /codes -->")[0]
