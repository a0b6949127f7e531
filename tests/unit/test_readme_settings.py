"""The settings table of the README is generated from the code."""

from __future__ import annotations

from pathlib import Path

from lionstated.settings import settings_table

README = Path(__file__).parents[2] / "README.md"


def test_the_table_is_the_generated_one() -> None:
    """After a change: `make settings-table`."""
    text = README.read_text(encoding="utf-8")
    assert settings_table() == text.split("<!-- settings -->\n")[1].split("<!-- /settings -->")[0]


def test_a_row_says_name_default_and_whether_sighup_changes_it() -> None:
    rows = {line.split("`")[1]: line for line in settings_table().splitlines()[2:]}
    assert "| `queue.max_operations` | `10000` |  |" in rows["queue.max_operations"]
    assert '| `log.level` | `"info"` | SIGHUP |' in rows["log.level"]
