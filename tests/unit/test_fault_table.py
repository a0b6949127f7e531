"""Every row of the list of faults seen elsewhere is shown by a test, or has a reason why not."""

from __future__ import annotations

from tests.support.fault_table import REASONS, ROWS, cited, table


def test_a_docstring_names_its_rows() -> None:
    assert {1, 2, 3, 40} == cited("Fault 40. As faults 1, 2\n    and 3; 4 is none, and default 5 neither.")
    assert set() == cited("faulty 12")


def test_every_row_is_shown_or_has_a_reason() -> None:
    shown = table()
    assert set() == shown.keys() - ROWS
    assert [] == sorted(ROWS - shown.keys() - REASONS.keys())
    assert {} == {row: why for row, why in REASONS.items() if row in shown or not why}
